// From the coefficients of a JPEG to its pixels, in the whole numbers of libjpeg-turbo's slow and exact way, so that they
// are its pixels. Each step is written once, as loops that compilers make vectors of; machines with AVX2 get a copy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && !defined(PENSTOCK_PORTABLE)
#define PENSTOCK_JPEG_AVX2
#include <immintrin.h>
#endif

#include "jpeg_bits.h"

namespace penstock {
namespace jpeg {

// Numbers wrap around: no encoder makes coefficients for which they do.
using Table = uint32_t[kBlockSide][kBlockSide];

using Factors = std::array<uint8_t, kBlockSize>;  // Of coefficients, by their places in a block.

constexpr int32_t kMost = 1 << 14;  // Between the passes: more than any pixels and factors make.
constexpr int kFractionBits = 13;   // Of constants.
constexpr int kPassBits = 2;        // Kept between the two passes.

// One pass of the inverse cosine transform, down each of 8 columns; results lose `shift` bits.
PENSTOCK_INLINE void transform(const Table& in, Table& out, int shift) {
  const uint32_t half = 1u << (shift - 1);
  for (int lane = 0; lane < kBlockSide; ++lane) {
    const uint32_t in0 = in[0][lane], in1 = in[1][lane], in2 = in[2][lane], in3 = in[3][lane];
    const uint32_t in4 = in[4][lane], in5 = in[5][lane], in6 = in[6][lane], in7 = in[7][lane];
    const uint32_t turned = (in2 + in6) * 4433;
    const uint32_t even2 = turned - in6 * 15137;
    const uint32_t even3 = turned + in2 * 6270;
    const uint32_t even0 = (in0 + in4) << kFractionBits;
    const uint32_t even1 = (in0 - in4) << kFractionBits;
    const uint32_t all = (in7 + in3 + in5 + in1) * 9633;
    const uint32_t outer = (in7 + in1) * 7373;
    const uint32_t inner = (in5 + in3) * 20995;
    const uint32_t low = all - (in7 + in3) * 16069;
    const uint32_t high = all - (in5 + in1) * 3196;
    const uint32_t odd0 = in7 * 2446 - outer + low;
    const uint32_t odd1 = in5 * 16819 - inner + high;
    const uint32_t odd2 = in3 * 25172 - inner + low;
    const uint32_t odd3 = in1 * 12299 - outer + high;
    const uint32_t sums[4] = {even0 + even3, even1 + even2, even1 - even2, even0 - even3};
    const uint32_t odds[4] = {odd3, odd2, odd1, odd0};
    for (int i = 0; i < 4; ++i) {
      out[i][lane] = static_cast<uint32_t>(static_cast<int32_t>(sums[i] + odds[i] + half) >> shift);
      out[7 - i][lane] = static_cast<uint32_t>(static_cast<int32_t>(sums[i] - odds[i] + half) >> shift);
    }
  }
}

PENSTOCK_INLINE uint8_t clamped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// Whether any block has more than pixels can make, so that the 16 bits that others take for it would overflow.
struct Excess {
  alignas(32) uint32_t seen[kBlockSide] = {0};  // All bits of what there was between the passes, and kMost.

  bool is_there() const {
    uint32_t all = 0;
    for (const uint32_t one : seen) all |= one;
    return all >= 2 * kMost;
  }
};

// Pixels of a block.
template <typename Steps>
PENSTOCK_INLINE void block_pixels(const Block& block, const Factors& factors, uint8_t* out, int64_t stride,
                                  Excess& excess) {
  constexpr int kLast = kPassBits + 3;
  if (block.is_flat) {
    const int32_t value = block.values[0] * factors[0] * (1 << kPassBits);
    const uint8_t pixel = clamped(((value + (1 << (kLast - 1))) >> kLast) + 128);
    for (int y = 0; y < kBlockSide; ++y) std::memset(out + y * stride, pixel, kBlockSide);
    excess.seen[0] |= static_cast<uint32_t>(value + kMost);
    return;
  }
  alignas(32) Table first, second;
  for (int y = 0; y < kBlockSide; ++y) {
    for (int x = 0; x < kBlockSide; ++x) {
      const int at = y * kBlockSide + x;
      first[y][x] = static_cast<uint32_t>(block.values[at] * factors[static_cast<size_t>(at)]);
    }
  }
  transform(first, second, kFractionBits - kPassBits);
  for (int y = 0; y < kBlockSide; ++y) {
    for (int x = 0; x < kBlockSide; ++x) excess.seen[x] |= second[y][x] + kMost;
  }
  Steps::turn(second, first);
  transform(first, second, kFractionBits + kLast);
  Steps::put(second, out, stride);
}

// Twice as many samples across, each three parts of the nearest one and one of the next. There is a sample before the
// first, and one behind the last; sums of two parts are rounded up or down in turns, as `even` and `odd` say.
PENSTOCK_INLINE void widen(const uint16_t* __restrict in, int64_t size, int even, int odd, int shift,
                           uint8_t* __restrict out) {
  for (int64_t i = 0; i < size; ++i) {
    const int thrice = 3 * in[i];
    const auto left = static_cast<uint16_t>(static_cast<uint16_t>(thrice + in[i - 1] + even) >> shift);
    const auto right = static_cast<uint16_t>(static_cast<uint16_t>(thrice + in[i + 1] + odd) >> shift);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const auto both = static_cast<uint16_t>(left | right << 8);
#else
    const auto both = static_cast<uint16_t>(left << 8 | right);
#endif
    std::memcpy(out + 2 * i, &both, sizeof both);
  }
}

// A row that is half as wide as it shall be; `room` has room for its samples, and two more.
PENSTOCK_INLINE void widen_row(const uint8_t* __restrict row, int64_t size, uint16_t* __restrict room,
                               uint8_t* __restrict out) {
  for (int64_t i = 0; i < size; ++i) room[i + 1] = row[i];
  room[0] = room[1];
  room[size + 1] = room[size];
  widen(room + 1, size, 1, 2, 2, out);
}

// The same where there are half as many rows, too: from the nearest one and the next.
PENSTOCK_INLINE void widen_rows(const uint8_t* __restrict near, const uint8_t* __restrict far, int64_t size,
                                uint16_t* __restrict room, uint8_t* __restrict out) {
  for (int64_t i = 0; i < size; ++i) room[i + 1] = static_cast<uint16_t>(3 * near[i] + far[i]);
  room[0] = room[1];
  room[size + 1] = room[size];
  widen(room + 1, size, 8, 7, 4, out);
}

// RGB of brightness and colour; from `at` on, for those who did the pixels before.
PENSTOCK_INLINE void to_rgb(const uint8_t* light, const uint8_t* blue, const uint8_t* red, int64_t at, int64_t width,
                            uint8_t* out) {
  for (; at < width; ++at) {
    const int32_t y = light[at], cb = blue[at] - 128, cr = red[at] - 128;
    out[3 * at] = clamped(y + ((91881 * cr + 32768) >> 16));
    out[3 * at + 1] = clamped(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
    out[3 * at + 2] = clamped(y + ((116130 * cb + 32768) >> 16));
  }
}

PENSTOCK_INLINE void grey_to_rgb(const uint8_t* light, int64_t width, uint8_t* out) {
  for (int64_t at = 0; at < width; ++at) out[3 * at] = out[3 * at + 1] = out[3 * at + 2] = light[at];
}

// What there is of each step for one kind of machine.
struct Plain {
  static PENSTOCK_INLINE void turn(const Table& in, Table& out) {
    for (int y = 0; y < kBlockSide; ++y) {
      for (int x = 0; x < kBlockSide; ++x) out[x][y] = in[y][x];
    }
  }
  // Puts pixels, of which the columns are turned to rows, and which lie around 0.
  static PENSTOCK_INLINE void put(const Table& in, uint8_t* out, int64_t stride) {
    for (int y = 0; y < kBlockSide; ++y) {
      for (int x = 0; x < kBlockSide; ++x) out[y * stride + x] = clamped(static_cast<int32_t>(in[x][y]) + 128);
    }
  }
  static PENSTOCK_INLINE int64_t to_rgb(const uint8_t*, const uint8_t*, const uint8_t*, int64_t, uint8_t*) { return 0; }
};

#if defined(PENSTOCK_JPEG_AVX2)
#define PENSTOCK_AVX2_INLINE inline __attribute__((target("avx2"), always_inline))

// What templates call is not `always_inline`: these are compiled for every machine before they become part of anything.
struct Avx2 {
  static __attribute__((target("avx2"))) inline void turn(const Table& in, Table& out) {
    __m256i rows[8], pairs[8], fours[8];
    for (int i = 0; i < 8; ++i) rows[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(in[i]));
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
      fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
      fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
      fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      const __m256i low = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
      const __m256i high = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out[i]), low);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out[i + 4]), high);
    }
  }

  static __attribute__((target("avx2"))) inline void put(const Table& in, uint8_t* out, int64_t stride) {
    __m256i columns[8];
    for (int i = 0; i < 8; ++i) columns[i] = _mm256_load_si256(reinterpret_cast<const __m256i*>(in[i]));
    // To be packed clamps them. Each half has 4 columns of 4 rows, which 16 bytes can be put in order at once.
    const __m256i turned =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    __m256i fours[2];
    for (int i = 0; i < 2; ++i) {
      const __m256i* const four = columns + 4 * i;
      const __m256i packed =
          _mm256_packs_epi16(_mm256_packs_epi32(four[0], four[1]), _mm256_packs_epi32(four[2], four[3]));
      fours[i] = _mm256_shuffle_epi8(_mm256_xor_si256(packed, _mm256_set1_epi8(-128)), turned);
    }
    const __m256i rows[2] = {_mm256_unpacklo_epi32(fours[0], fours[1]), _mm256_unpackhi_epi32(fours[0], fours[1])};
    for (int i = 0; i < 2; ++i, out += 2 * stride) {
      const __m128i upper = _mm256_castsi256_si128(rows[i]);
      const __m128i lower = _mm256_extracti128_si256(rows[i], 1);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), upper);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + stride), _mm_unpackhi_epi64(upper, upper));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 4 * stride), lower);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + 5 * stride), _mm_unpackhi_epi64(lower, lower));
    }
  }

  // 16 pixels at a time; returns how many were done. Constants above 1 or so do not fit 16 bits: what is left of them
  // without whole numbers does, and a whole number times a colour is added by itself.
  static __attribute__((target("avx2"))) inline int64_t to_rgb(const uint8_t* light, const uint8_t* blue,
                                                               const uint8_t* red, int64_t width, uint8_t* out) {
    int64_t at = 0;
    for (; at + 16 <= width; at += 16, out += 48) {
      const __m256i y = load(light + at);
      const __m256i cb = _mm256_sub_epi16(load(blue + at), _mm256_set1_epi16(128));
      const __m256i cr = _mm256_sub_epi16(load(red + at), _mm256_set1_epi16(128));
      const __m256i r = _mm256_add_epi16(_mm256_add_epi16(y, cr), part(cr, 26345));
      const __m256i b = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(cb, cb)), part(cb, -14942));
      const __m256i g = _mm256_add_epi16(_mm256_sub_epi16(y, cr), both(cb, cr));
      store(bytes(r), bytes(g), bytes(b), out);
    }
    return at;
  }

 private:
  static PENSTOCK_AVX2_INLINE __m256i load(const uint8_t* at) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  // x * factor / 2**16, rounded: of twice x the high half, with a bit more to round by.
  static PENSTOCK_AVX2_INLINE __m256i part(__m256i x, int16_t factor) {
    const __m256i twice = _mm256_mulhi_epi16(_mm256_add_epi16(x, x), _mm256_set1_epi16(factor));
    return _mm256_srai_epi16(_mm256_add_epi16(twice, _mm256_set1_epi16(1)), 1);
  }
  // What both colours add to green, without the whole of red that is taken away.
  static PENSTOCK_AVX2_INLINE __m256i both(__m256i cb, __m256i cr) {
    const __m256i factors = _mm256_set1_epi32((18734 << 16) | (-22554 & 0xFFFF));
    const __m256i half = _mm256_set1_epi32(1 << 15);
    const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
    const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);
    return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                              _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
  }
  static PENSTOCK_AVX2_INLINE __m128i bytes(__m256i x) {
    return _mm_packus_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  // Bytes of three colours in turns.
  static PENSTOCK_AVX2_INLINE void store(__m128i r, __m128i g, __m128i b, uint8_t* out) {
    const __m128i places[3] = {_mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5),
                               _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1),
                               _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1)};
    const __m128i green[3] = {_mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1),
                              _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10),
                              _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1)};
    const __m128i blue[3] = {_mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1),
                             _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1),
                             _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15)};
    for (int i = 0; i < 3; ++i) {
      const __m128i made = _mm_or_si128(_mm_shuffle_epi8(r, places[i]),
                                        _mm_or_si128(_mm_shuffle_epi8(g, green[i]), _mm_shuffle_epi8(b, blue[i])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * i), made);
    }
  }
};
#endif

}  // namespace jpeg
}  // namespace penstock
