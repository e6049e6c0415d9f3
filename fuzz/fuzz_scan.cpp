// Any bytes as a piece of a TFRecord file.
#include <cstdint>
#include <cstdlib>

#include "../src/native/tfrecord_frame.h"

using namespace penstock;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const uint8_t* data, int64_t nbytes, int64_t remaining, bool verify) {
  const Scan scan = scan_records(data, nbytes, remaining, verify);
  require(scan.offsets.size() == scan.lengths.size());
  int64_t at = 0;
  for (size_t i = 0; i < scan.offsets.size(); ++i) {
    require(scan.offsets[i] == at && scan.lengths[i] >= 0);
    // What was found can be read: at most the data's checksum is wrong, which the scan does not look at.
    const Fault fault = check_frame(data, nbytes, at, scan.lengths[i], verify);
    require(fault == Fault::kNone || (verify && fault == Fault::kDataChecksum));
    at += kFrameNbytes + scan.lengths[i];
  }
  require(at == scan.consumed && at <= nbytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  const auto nbytes = static_cast<int64_t>(size);
  for (const bool verify : {false, true}) {
    for (const int64_t remaining : {int64_t{-1}, int64_t{0}, nbytes, nbytes + 40, INT64_MAX}) {
      check(input, nbytes, remaining, verify);
    }
  }
  // From any position: after damage the next sound record is looked for.
  const int64_t found = find_record(input, nbytes, size > 0 ? input[0] : 0);
  require(found == nbytes || found <= nbytes - kHeaderNbytes);
  require(crc32c(input, size) == crc32c_portable(input, size));
  // A start and a length out of the input itself.
  if (size >= 16) {
    int64_t start;
    int64_t length;
    __builtin_memcpy(&start, input, 8);
    __builtin_memcpy(&length, input + 8, 8);
    check_frame(input, nbytes, start, length, true);
    check_frame(input, nbytes, start % 64, length % 64, true);
  }
  return 0;
}
