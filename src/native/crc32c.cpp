#include "crc32c.h"

#include <array>
#include <cstring>

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define PENSTOCK_X86_CRC 1
#include <immintrin.h>
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
  const __m128i product =
      _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<int64_t>(crc)), _mm_cvtsi32_si128(static_cast<int>(by)), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) uint32_t crc32c_sse42(const uint8_t* data, size_t nbytes, uint32_t before) {
  uint64_t crc = ~before;
  while (nbytes >= 3 * kMinWords * 8) {
    const size_t words = nbytes / 24 < kMaxWords ? nbytes / 24 : kMaxWords;
    const uint8_t* a = data;
    const uint8_t* b = data + words * 8;
    const uint8_t* c = data + words * 16;
    uint64_t crc_b = 0;
    uint64_t crc_c = 0;
    const auto step = [&]() __attribute__((target("sse4.2"), always_inline)) {
      crc = _mm_crc32_u64(crc, load<uint64_t>(a));
      crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b));
      crc_c = _mm_crc32_u64(crc_c, load<uint64_t>(c));
      a += 8, b += 8, c += 8;
    };
    // The last word of the third part takes in the other two.
    size_t left = words - 1;
    for (; left >= 8; left -= 8) {
      // The next three parts: three short streams are nothing that the processor would see coming by itself.
      _mm_prefetch(reinterpret_cast<const char*>(a + words * 24), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b + words * 24), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(c + words * 24), _MM_HINT_T0);
      for (int k = 0; k < 8; ++k) step();
    }
    for (; left > 0; --left) step();
    crc = _mm_crc32_u64(crc, load<uint64_t>(a));
    crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b));
    const uint64_t joined =
        load<uint64_t>(c) ^ shifted(crc, kShifts[words].two_parts) ^ shifted(crc_b, kShifts[words].one_part);
    crc = _mm_crc32_u64(crc_c, joined);
    data += words * 24;
    nbytes -= words * 24;
  }
  for (; nbytes >= 8; data += 8, nbytes -= 8) crc = _mm_crc32_u64(crc, load<uint64_t>(data));
  auto tail = static_cast<uint32_t>(crc);
  for (; nbytes > 0; ++data, --nbytes) tail = _mm_crc32_u8(tail, *data);
  return ~tail;
}

// Carry-less multiplications run beside the crc32 instruction, on ports of their own. So a piece is cut into two: the
// first part is folded, 128 bytes at a time, the second is checksummed meanwhile, in three streams of 48 bytes each.
constexpr size_t kSteps = 60;
constexpr size_t kFolded = 128 * kSteps;
constexpr size_t kStream = 48 * kSteps;
constexpr size_t kPiece = kFolded + 3 * kStream;  // 16 KB: beyond that, joining costs nothing anyway

// What moves the two words of a vector over `bits` bits of a message that follow.
struct Fold {
  uint64_t low;
  uint64_t high;
};
Fold fold_over(size_t bits) { return {uint64_t{power_of_x(bits + 32)} << 1, uint64_t{power_of_x(bits - 32)} << 1}; }
const Fold kFold128 = fold_over(128);
const Fold kFold1024 = fold_over(1024);
const uint32_t kAfterFolded = power_of_x(8 * 3 * kStream - 33);
const uint32_t kAfterFirst = power_of_x(8 * 2 * kStream - 33);
const uint32_t kAfterSecond = power_of_x(8 * kStream - 33);

#define PENSTOCK_VECTOR __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))

PENSTOCK_VECTOR inline __m256i vector_at(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

PENSTOCK_VECTOR inline __m256i folded(__m256i sum, __m256i over, __m256i next) {
  const __m256i low = _mm256_clmulepi64_epi128(sum, over, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(sum, over, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

// The checksum, from 0 on, of the 128 bytes that four folded vectors stand for.
PENSTOCK_VECTOR inline uint64_t crc_of_folded(const __m256i (&sums)[4]) {
  const __m128i over = _mm_set_epi64x(static_cast<int64_t>(kFold128.high), static_cast<int64_t>(kFold128.low));
  alignas(32) __m128i parts[8];
  std::memcpy(parts, sums, sizeof(parts));
  __m128i sum = parts[0];
  for (int i = 1; i < 8; ++i) {
    const __m128i moved = _mm_xor_si128(_mm_clmulepi64_si128(sum, over, 0x00), _mm_clmulepi64_si128(sum, over, 0x11));
    sum = _mm_xor_si128(moved, parts[i]);
  }
  const uint64_t crc = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(sum)));
  return _mm_crc32_u64(crc, static_cast<uint64_t>(_mm_extract_epi64(sum, 1)));
}

PENSTOCK_VECTOR uint32_t crc32c_vector(const uint8_t* data, size_t nbytes, uint32_t before) {
  uint64_t crc = ~before;
  const __m256i over = _mm256_broadcastsi128_si256(
      _mm_set_epi64x(static_cast<int64_t>(kFold1024.high), static_cast<int64_t>(kFold1024.low)));
  for (; nbytes >= kPiece; data += kPiece, nbytes -= kPiece) {
    __m256i sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = vector_at(data + 32 * i);
    sums[0] = _mm256_xor_si256(sums[0], _mm256_set_epi64x(0, 0, 0, static_cast<int64_t>(crc)));
    const uint8_t* a = data + kFolded;
    const uint8_t* b = a + kStream;
    const uint8_t* c = b + kStream;
    uint64_t crc_a = 0;
    uint64_t crc_b = 0;
    uint64_t crc_c = 0;
    for (size_t step = 1; step < kSteps; ++step, a += 48, b += 48, c += 48) {
      const uint8_t* next = data + 128 * step;
      for (int i = 0; i < 4; ++i) sums[i] = folded(sums[i], over, vector_at(next + 32 * i));
      for (const uint8_t* soon : {next, next + 64, a, b, c}) {
        _mm_prefetch(reinterpret_cast<const char*>(soon + kPiece), _MM_HINT_T0);
      }
      for (int word = 0; word < 6; ++word) {
        crc_a = _mm_crc32_u64(crc_a, load<uint64_t>(a + 8 * word));
        crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b + 8 * word));
        crc_c = _mm_crc32_u64(crc_c, load<uint64_t>(c + 8 * word));
      }
    }
    for (int word = 0; word < 6; ++word) {
      crc_a = _mm_crc32_u64(crc_a, load<uint64_t>(a + 8 * word));
      crc_b = _mm_crc32_u64(crc_b, load<uint64_t>(b + 8 * word));
      if (word < 5) crc_c = _mm_crc32_u64(crc_c, load<uint64_t>(c + 8 * word));
    }
    // The last word of the last stream takes in the others.
    const uint64_t joined = load<uint64_t>(c + 40) ^ shifted(crc_of_folded(sums), kAfterFolded) ^
                            shifted(crc_a, kAfterFirst) ^ shifted(crc_b, kAfterSecond);
    crc = _mm_crc32_u64(crc_c, joined);
  }
  return crc32c_sse42(data, nbytes, ~static_cast<uint32_t>(crc));
}
#endif

using CrcFunction = uint32_t (*)(const uint8_t*, size_t, uint32_t);

CrcFunction choose_crc() {
#ifdef PENSTOCK_X86_CRC
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul")) {
    return crc32c_vector;
  }
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")) return crc32c_sse42;
#endif
  return crc32c_portable;
}
const CrcFunction kCrc = choose_crc();

}  // namespace

uint32_t crc32c(const uint8_t* data, size_t nbytes, uint32_t before) { return kCrc(data, nbytes, before); }

uint32_t crc32c_portable(const uint8_t* data, size_t nbytes, uint32_t before) {
  uint32_t crc = ~before;
  for (; nbytes >= 8; data += 8, nbytes -= 8) {
    const uint64_t word = load<uint64_t>(data) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 0xFF];
  }
  for (; nbytes > 0; ++data, --nbytes) crc = crc >> 8 ^ kTables[0][(crc ^ *data) & 0xFF];
  return ~crc;
}

namespace {

constexpr uint32_t product(uint32_t a, uint32_t b, uint32_t polynomial) {
  uint32_t sum = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (a & bit) sum ^= b;
    b = b >> 1 ^ (b & 1 ? polynomial : 0);
  }
  return sum;
}

constexpr uint32_t kOneByte = 0x00800000u;  // x^8

// x to the power of the bits of 1, 2, 4, 8 ... bytes.
constexpr std::array<uint32_t, 64> make_powers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = kOneByte;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = product(powers[k - 1], powers[k - 1], kPolynomial);
  return powers;
}
constexpr std::array<uint32_t, 64> kPowers = make_powers();

}  // namespace

uint32_t moved_crc32c(uint32_t crc, uint64_t nbytes) {
  for (size_t k = 0; nbytes != 0; ++k, nbytes >>= 1) {
    if (nbytes & 1) crc = product(kPowers[k], crc, kPolynomial);
  }
  return crc;
}

uint32_t combined_crc(uint32_t first, uint32_t second, uint64_t second_nbytes, uint32_t polynomial) {
  // The first checksum moves over the bytes that follow it: a multiplication by x to the power of their bits.
  uint32_t power = kOneByte;
  uint32_t moved = first;
  for (; second_nbytes != 0; second_nbytes >>= 1) {
    if (second_nbytes & 1) moved = product(power, moved, polynomial);
    power = product(power, power, polynomial);
  }
  return moved ^ second;
}

}  // namespace penstock
