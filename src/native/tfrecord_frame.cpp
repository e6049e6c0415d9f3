#include "tfrecord_frame.h"

#include <cstring>

namespace penstock {
namespace {

template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

}  // namespace

const char* fault_name(Fault fault) {
  switch (fault) {
    case Fault::kNone:
      return "none";
    case Fault::kTruncated:
      return "truncated";
    case Fault::kLengthChecksum:
      return "length_checksum";
    case Fault::kDataChecksum:
      return "data_checksum";
    case Fault::kLengthDiffers:
      return "length_differs";
    case Fault::kMalformed:
      return "malformed";
    case Fault::kMissing:
      return "missing";
    case Fault::kWrongKind:
      return "wrong_kind";
    case Fault::kWrongSize:
      return "wrong_size";
    case Fault::kOutOfRange:
      return "out_of_range";
    case Fault::kNotUtf8:
      return "not_utf8";
    case Fault::kBadTensor:
      return "bad_tensor";
    case Fault::kTensorType:
      return "tensor_type";
    case Fault::kTensorShape:
      return "tensor_shape";
    case Fault::kTensorExpands:
      return "tensor_expands";
  }
  return "unknown";
}

Scan scan_records(const uint8_t* data, int64_t nbytes, int64_t remaining, bool verify) {
  Scan scan;
  // Records of a file are mostly alike: one guess from the first instead of a dozen reallocations.
  bool has_reserved = false;
  int64_t at = 0;
  // The buffer may hold less of the file than there is, never more.
  const bool is_bounded = remaining >= 0;
  const int64_t limit = is_bounded && remaining > nbytes ? remaining : nbytes;
  while (at < nbytes) {
    if (nbytes - at < kHeaderNbytes) {
      if (is_bounded && limit - at < kFrameNbytes) scan.fault = Fault::kTruncated;
      break;
    }
    const auto length = load<uint64_t>(data + at);
    if (verify && masked_crc32c(data + at, 8) != load<uint32_t>(data + at + 8)) {
      scan.fault = Fault::kLengthChecksum;
      break;
    }
    // No file is that long; and sums of what passes cannot overflow.
    constexpr uint64_t kAbsurd = uint64_t{1} << 62;
    const auto payload = static_cast<int64_t>(length);
    if (length > kAbsurd || (is_bounded && payload > limit - at - kFrameNbytes)) {
      scan.fault = Fault::kTruncated;
      break;
    }
    if (payload > nbytes - at - kFrameNbytes) break;
    scan.offsets.push_back(at);
    scan.lengths.push_back(payload);
    at += kFrameNbytes + payload;
    if (!has_reserved) {
      has_reserved = true;
      const auto guess = static_cast<size_t>(nbytes / at + 1);
      scan.offsets.reserve(guess);
      scan.lengths.reserve(guess);
    }
  }
  scan.consumed = at;
  return scan;
}

int64_t find_record(const uint8_t* data, int64_t nbytes, int64_t start) {
  for (int64_t at = start; at <= nbytes - kHeaderNbytes; ++at) {
    if (masked_crc32c(data + at, 8) != load<uint32_t>(data + at + 8)) continue;
    const auto length = load<uint64_t>(data + at);
    const auto left = static_cast<uint64_t>(nbytes - at);
    // Whole in the buffer: its data has a say. Else the length's checksum has to do.
    if (length <= left && left - length >= kFrameNbytes) {
      const uint8_t* payload = data + at + kHeaderNbytes;
      if (masked_crc32c(payload, length) != load<uint32_t>(payload + length)) continue;
    }
    return at;
  }
  return nbytes;
}

Fault check_frame(const uint8_t* data, int64_t nbytes, int64_t start, int64_t length, bool verify) {
  // By subtraction: a sum could overflow.
  if (start < 0 || length < 0 || start > nbytes || nbytes - start < kFrameNbytes ||
      length > nbytes - start - kFrameNbytes) {
    return Fault::kTruncated;
  }
  const uint8_t* frame = data + start;
  if (verify && masked_crc32c(frame, 8) != load<uint32_t>(frame + 8)) return Fault::kLengthChecksum;
  if (load<uint64_t>(frame) != static_cast<uint64_t>(length)) return Fault::kLengthDiffers;
  const uint8_t* payload = frame + kHeaderNbytes;
  if (verify && masked_crc32c(payload, static_cast<size_t>(length)) != load<uint32_t>(payload + length)) {
    return Fault::kDataChecksum;
  }
  return Fault::kNone;
}

void write_frame(uint8_t* frame, int64_t length) {
  const auto stored = static_cast<uint64_t>(length);
  std::memcpy(frame, &stored, 8);
  const uint32_t length_crc = masked_crc32c(frame, 8);
  std::memcpy(frame + 8, &length_crc, 4);
  uint8_t* payload = frame + kHeaderNbytes;
  const uint32_t data_crc = masked_crc32c(payload, stored);
  std::memcpy(payload + length, &data_crc, 4);
}

}  // namespace penstock
