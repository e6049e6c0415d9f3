// Values of JSON as they are written: numbers, and texts with their escapes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "system.h"

namespace penstock {

constexpr int64_t kMaxDigits = 19;              // As many are a uint64.
constexpr int64_t kMaxNumber = 4000;            // Python reads no whole numbers that are much longer.
constexpr int64_t kMaxExponent = 1 << 20;       // Those beyond it are all alike.
constexpr uint64_t kExact = uint64_t{1} << 53;  // Whole numbers up to here are float64.
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr int64_t kMaxPower = 22;  // Powers of ten up to here are float64.

inline bool is_digit(uint8_t byte) { return static_cast<uint8_t>(byte - '0') < 10; }

struct JsonNumber {
  const uint8_t* start;
  const uint8_t* stop;
  uint64_t digits;  // All of them, without the point, if there are few enough.
  int64_t count;
  int64_t exponent;  // Of ten.
  bool is_negative;
  bool is_whole;

  // Reads the number at `at`; returns false if there is none, or one that JSON does not allow. What follows the number
  // must be in memory.
  bool read(const uint8_t* at) {
    start = at;
    digits = 0;
    exponent = 0;
    is_negative = *at == '-';
    is_whole = true;
    at += is_negative;
    const uint8_t* const first = at;
    for (; is_digit(*at); ++at) digits = digits * 10 + (*at - '0');
    count = at - first;
    if (count == 0 || (count > 1 && *first == '0')) return false;
    if (*at == '.') {
      const uint8_t* const point = at++;
      for (; is_digit(*at); ++at) digits = digits * 10 + (*at - '0');
      exponent = point + 1 - at;
      if (exponent == 0) return false;
      count -= exponent;
      is_whole = false;
    }
    if (*at == 'e' || *at == 'E') {
      ++at;
      const bool is_below = *at == '-';
      at += is_below || *at == '+';
      if (!is_digit(*at)) return false;
      int64_t power = 0;
      for (; is_digit(*at); ++at) power = std::min<int64_t>(power * 10 + (*at - '0'), kMaxExponent);
      exponent += is_below ? -power : power;
      is_whole = false;
    }
    stop = at;
    return count <= kMaxNumber;
  }

  // Returns false if no float64 is near it.
  bool to_float(double& value) const {
    if (count > kMaxDigits || digits > kExact || exponent < -kMaxPower || exponent > kMaxPower) {
      return parse_float(reinterpret_cast<const char*>(start), reinterpret_cast<const char*>(stop), value);
    }
    // Both factors are exact, so that their product or quotient is rounded once, as it must be.
    const auto whole = static_cast<double>(digits);
    value = exponent < 0 ? whole / kPowers[-exponent] : whole * kPowers[exponent];
    if (is_negative) value = -value;
    return true;
  }

  // Returns false if it is no whole number, or has so many digits that it may not be an int64.
  bool to_int(int64_t& value) const {
    if (!is_whole || count >= kMaxDigits) return false;
    const auto whole = static_cast<int64_t>(digits);
    value = is_negative ? -whole : whole;
    return true;
  }
};

// Returns the first quote, backslash or control character in [at, end); `end` if there is none.
inline const uint8_t* find_special(const uint8_t* at, const uint8_t* end) {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i backslash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1f);
  for (; end - at >= 16; at += 16) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
    found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(v, control), v));
    const int mask = _mm_movemask_epi8(found);
    if (mask != 0) return at + __builtin_ctz(static_cast<unsigned>(mask));
  }
#endif
  while (at < end && *at != '"' && *at != '\\' && *at >= ' ') ++at;
  return at;
}

// What a backslash begins: so many bytes that stand for a character, in UTF-8.
struct JsonEscape {
  int64_t used = 0;  // 0: it is none that JSON has.
  int64_t made = 0;  // 0: half of a letter, which is no UTF-8.
  uint8_t bytes[4];

  JsonEscape(const uint8_t* at, const uint8_t* end) {
    if (end - at < 2) return;
    static constexpr char kNames[] = "\"\\/bfnrt";
    static constexpr char kBytes[] = "\"\\/\b\f\n\r\t";
    const void* const found = memchr(kNames, at[1], sizeof(kNames) - 1);
    if (found != nullptr) {
      bytes[0] = static_cast<uint8_t>(kBytes[static_cast<const char*>(found) - kNames]);
      used = 2;
      made = 1;
      return;
    }
    int64_t code = read_unit(at, end);
    if (code < 0) return;
    used = 6;
    if (code >= 0xD800 && code < 0xE000) {
      const int64_t second = code < 0xDC00 ? read_unit(at + 6, end) : -1;
      if (second < 0xDC00 || second > 0xDFFF) return;
      code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
      used = 12;
    }
    encode(static_cast<uint32_t>(code));
  }

 private:
  // Returns the number of `\uXXXX`; -1 if it is not there.
  static int64_t read_unit(const uint8_t* at, const uint8_t* end) {
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    int64_t code = 0;
    for (int place = 2; place < 6; ++place) {
      const uint8_t byte = at[place];
      const auto letter = static_cast<uint8_t>((byte | 0x20) - 'a');
      if (!is_digit(byte) && letter > 5) return -1;
      code = code * 16 + (is_digit(byte) ? byte - '0' : letter + 10);
    }
    return code;
  }

  void encode(uint32_t code) {
    const auto tail = [code](int shift) { return static_cast<uint8_t>(0x80 | ((code >> shift) & 0x3F)); };
    if (code < 0x80) {
      made = 1;
      bytes[0] = static_cast<uint8_t>(code);
    } else if (code < 0x800) {
      made = 2;
      bytes[0] = static_cast<uint8_t>(0xC0 | (code >> 6));
      bytes[1] = tail(0);
    } else if (code < 0x10000) {
      made = 3;
      bytes[0] = static_cast<uint8_t>(0xE0 | (code >> 12));
      bytes[1] = tail(6);
      bytes[2] = tail(0);
    } else {
      made = 4;
      bytes[0] = static_cast<uint8_t>(0xF0 | (code >> 18));
      bytes[1] = tail(12);
      bytes[2] = tail(6);
      bytes[3] = tail(0);
    }
  }
};

}  // namespace penstock
