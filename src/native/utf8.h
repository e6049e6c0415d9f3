// Whether bytes are text.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace penstock {

// Whether bytes are UTF-8 as Python reads it: no surrogates, nothing longer than it need be.
inline bool check_utf8(const uint8_t* bytes, int64_t size) {
  int64_t at = 0;
  while (at < size) {
#if defined(__SSE2__)
    while (at + 16 <= size && _mm_movemask_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + at))) == 0)
      at += 16;
#endif
    while (at + 8 <= size) {
      uint64_t word = 0;
      std::memcpy(&word, bytes + at, 8);
      if (word & 0x8080808080808080u) break;
      at += 8;
    }
    // Characters one by one, until some follow each other that take a byte each.
    int plain = 0;
    while (at < size && plain < 16) {
      const uint8_t lead = bytes[at];
      if (lead < 0x80) {
        ++at;
        ++plain;
        continue;
      }
      plain = 0;
      const int64_t left = size - at;
      const auto is_rest = [&](int64_t i) { return (bytes[at + i] & 0xC0) == 0x80; };
      if (lead < 0xC2) return false;
      if (lead < 0xE0) {
        if (left < 2 || !is_rest(1)) return false;
        at += 2;
      } else if (lead < 0xF0) {
        if (left < 3 || !is_rest(1) || !is_rest(2)) return false;
        const uint8_t second = bytes[at + 1];
        if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)) return false;
        at += 3;
      } else {
        if (lead > 0xF4 || left < 4 || !is_rest(1) || !is_rest(2) || !is_rest(3)) return false;
        const uint8_t second = bytes[at + 1];
        if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) return false;
        at += 4;
      }
    }
  }
  return true;
}

}  // namespace penstock
