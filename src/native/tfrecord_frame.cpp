#include "tfrecord_frame.h"

#include <array>
#include <cstring>

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define PENSTOCK_X86_CRC 1
#include <nmmintrin.h>
#include <wmmintrin.h>
#endif

namespace penstock {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected

template <typename T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      tables[k][i] = tables[k - 1][i] >> 8 ^ tables[0][tables[k - 1][i] & 0xFF];
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

#ifdef PENSTOCK_X86_CRC
// The instruction takes three cycles but can start every cycle, so that three streams run for the price of one. A
// payload is cut into three parts of `words` each, and the parts are joined by moving the first two checksums over the
// bytes that follow them: a carry-less multiplication by a power of x that depends on `words` alone.
constexpr size_t kMaxWords = 168;  // 4 KB in three parts: beyond that, joining costs nothing anyway
constexpr size_t kMinWords = 4;    // below, joining costs more than it gains

// x^bits modulo the polynomial, bit-reflected.
constexpr uint32_t power_of_x(size_t bits) {
  uint32_t value = 0x80000000u;
  for (size_t i = 0; i < bits; ++i) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
  return value;
}

struct Shift {
  uint32_t two_parts;  // over two parts
  uint32_t one_part;
};

std::array<Shift, kMaxWords + 1> make_shifts() {
  std::array<Shift, kMaxWords + 1> shifts{};
  // The product of two reflected polynomials is one bit to the right, and is then pushed through 64 bits of zeros by
  // the crc32 instruction with the last word: hence 33 bits less.
  for (size_t words = 1; words <= kMaxWords; ++words) {
    shifts[words] = {power_of_x(128 * words - 33), power_of_x(64 * words - 33)};
  }
  return shifts;
}
const std::array<Shift, kMaxWords + 1> kShifts = make_shifts();

__attribute__((target("sse4.2,pclmul"))) uint64_t shifted(uint64_t crc, uint32_t by) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)),
                                               _mm_cvtsi32_si128(static_cast<int>(by)), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) uint32_t crc32c_sse42(const uint8_t* data, size_t nbytes) {
  uint64_t crc = 0xFFFFFFFFu;
  while (nbytes >= 3 * kMinWords * 8) {
    const size_t words = nbytes / 24 < kMaxWords ? nbytes / 24 : kMaxWords;
    const uint8_t* a = data;
    const uint8_t* b = data + words * 8;
    const uint8_t* c = data + words * 16;
    uint64_t crc_b = 0;
    uint64_t crc_c = 0;
    // The last word of the third part takes in the other two.
    const uint8_t* last = c + (words - 1) * 8;
    for (; c < last; a += 8, b += 8, c += 8) {
      crc = _mm_crc32_u64(crc, load<uint64_t>(a));
      crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b));
      crc_c = _mm_crc32_u64(crc_c, load<uint64_t>(c));
    }
    crc = _mm_crc32_u64(crc, load<uint64_t>(a));
    crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b));
    const uint64_t joined = load<uint64_t>(c) ^ shifted(crc, kShifts[words].two_parts) ^
                            shifted(crc_b, kShifts[words].one_part);
    crc = _mm_crc32_u64(crc_c, joined);
    data += words * 24;
    nbytes -= words * 24;
  }
  for (; nbytes >= 8; data += 8, nbytes -= 8) crc = _mm_crc32_u64(crc, load<uint64_t>(data));
  auto tail = static_cast<uint32_t>(crc);
  for (; nbytes > 0; ++data, --nbytes) tail = _mm_crc32_u8(tail, *data);
  return ~tail;
}
#endif

using CrcFunction = uint32_t (*)(const uint8_t*, size_t);

CrcFunction choose_crc() {
#ifdef PENSTOCK_X86_CRC
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return crc32c_sse42;
#endif
  return crc32c_portable;
}
const CrcFunction kCrc = choose_crc();

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

uint32_t crc32c(const uint8_t* data, size_t nbytes) { return kCrc(data, nbytes); }

uint32_t crc32c_portable(const uint8_t* data, size_t nbytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (; nbytes >= 8; data += 8, nbytes -= 8) {
    const uint64_t word = load<uint64_t>(data) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 0xFF];
  }
  for (; nbytes > 0; ++data, --nbytes) crc = crc >> 8 ^ kTables[0][(crc ^ *data) & 0xFF];
  return ~crc;
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
