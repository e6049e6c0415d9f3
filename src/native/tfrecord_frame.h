// TFRecord framing: uint64 length, its masked CRC32C, the payload, the masked CRC32C of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "crc32c.h"

namespace penstock {

constexpr int64_t kHeaderNbytes = 12;
constexpr int64_t kFooterNbytes = 4;
constexpr int64_t kFrameNbytes = kHeaderNbytes + kFooterNbytes;

// What can be wrong with a record. Python sees the names, in this order (see `fault_name`).
enum class Fault : int64_t {
  kNone,
  kTruncated,       // the record is longer than what is left
  kLengthChecksum,  // the length does not match its checksum: where the next record starts is unknown
  kDataChecksum,
  kLengthDiffers,  // the file does not have the length that the caller has for this record
  kMalformed,      // not in the wire format of a tf.train.Example
  kMissing,        // a feature that has no default is not there
  kWrongKind,      // bytes, floats or ints, but not those that were declared
  kWrongSize,
  kOutOfRange,  // a number that the declared dtype cannot hold
  kNotUtf8,
  kBadTensor,  // not in the wire format of a TensorProto, or one that contradicts itself
  kTensorType,
  kTensorShape,
  kTensorExpands,  // a shape that varies, and a value repeated far beyond the bytes of the record
};
const char* fault_name(Fault fault);

// Why TensorFlow masks: the checksum of data that holds checksums would be weak.
inline uint32_t mask_crc(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }
inline uint32_t masked_crc32c(const uint8_t* data, size_t nbytes) { return mask_crc(crc32c(data, nbytes)); }

struct Scan {
  std::vector<int64_t> offsets;  // of each complete record's header, from the start of the data
  std::vector<int64_t> lengths;  // of each payload
  int64_t consumed = 0;          // bytes of complete records; what is left is the beginning of another
  Fault fault = Fault::kNone;    // of the record that starts at `consumed`
};

// Finds the complete records at the start of `data`. `remaining` is how many bytes there are from there to the end of
// the file: a record that claims to be longer is truncated; negative means not known.
Scan scan_records(const uint8_t* data, int64_t nbytes, int64_t remaining, bool verify);

// Returns where, at `start` or after, a record begins: its length matches its checksum, and so does its data as far
// as that is there. `nbytes` if there is none. For going on after a length that was damaged.
int64_t find_record(const uint8_t* data, int64_t nbytes, int64_t start);

// Checks the frame of the record at `start`, whose payload the caller believes to have `length` bytes.
Fault check_frame(const uint8_t* data, int64_t nbytes, int64_t start, int64_t length, bool verify);

// Writes header and footer around a payload that is already in place, 12 bytes after `frame`.
void write_frame(uint8_t* frame, int64_t length);

}  // namespace penstock
