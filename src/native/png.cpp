// The filters of PNG undone: each byte of a row is stored as what it differs by from those to the left and above.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "buffer.h"

namespace penstock {
namespace {

enum Filter : uint8_t { kNone, kSub, kUp, kAverage, kPaeth };

// Whichever of three bytes is nearest to left + up - corner; of equals the first.
inline uint8_t nearest(int left, int up, int corner) {
  const int by_left = std::abs(up - corner);
  const int by_up = std::abs(left - corner);
  const int by_corner = std::abs(left + up - 2 * corner);
  if (by_left <= by_up && by_left <= by_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(by_up <= by_corner ? up : corner);
}

// One row, byte by byte; `above` is the row before it, without its filter.
void undo(uint8_t filter, uint8_t* row, const uint8_t* above, int64_t nbytes, int64_t width) {
  for (int64_t i = 0; i < nbytes; ++i) {
    const int left = i < width ? 0 : row[i - width];
    const int corner = i < width ? 0 : above[i - width];
    int more = 0;
    if (filter == kSub) more = left;
    if (filter == kAverage) more = (left + above[i]) / 2;
    if (filter == kPaeth) more = nearest(left, above[i], corner);
    row[i] = static_cast<uint8_t>(row[i] + more);
  }
}

// The row above, added: no byte waits for another, and compilers take many at once.
void undo_up(uint8_t* __restrict row, const uint8_t* __restrict above, int64_t nbytes) {
  for (int64_t i = 0; i < nbytes; ++i) row[i] = static_cast<uint8_t>(row[i] + above[i]);
}

#if defined(__SSE2__)
// Pixels of 3 or 4 bytes: the bytes of one at once, as each waits for the pixel before. Some 5 times as fast.
template <int kWidth>
struct Pixels {
  // Four bytes where there are as many, whatever a pixel has: three are put together by way of memory.
  static __m128i load(const uint8_t* row, int64_t at, int64_t nbytes) {
    int32_t bytes = 0;
    if (at + 4 <= nbytes) {
      std::memcpy(&bytes, row + at, 4);
    } else {
      std::memcpy(&bytes, row + at, kWidth);
    }
    return _mm_cvtsi32_si128(bytes);
  }
  static void store(uint8_t* at, __m128i pixel) {
    const int32_t bytes = _mm_cvtsi128_si32(pixel);
    std::memcpy(at, &bytes, kWidth);
  }

  static void sub(uint8_t* row, int64_t nbytes) {
    __m128i left = _mm_setzero_si128();
    for (int64_t i = 0; i < nbytes; i += kWidth) {
      left = _mm_add_epi8(left, load(row, i, nbytes));
      store(row + i, left);
    }
  }

  static void average(uint8_t* row, const uint8_t* above, int64_t nbytes) {
    const __m128i one = _mm_set1_epi8(1);
    __m128i left = _mm_setzero_si128();
    for (int64_t i = 0; i < nbytes; i += kWidth) {
      const __m128i up = load(above, i, nbytes);
      // The instruction rounds up, PNG down.
      const __m128i odd = _mm_and_si128(_mm_xor_si128(left, up), one);
      left = _mm_add_epi8(load(row, i, nbytes), _mm_sub_epi8(_mm_avg_epu8(left, up), odd));
      store(row + i, left);
    }
  }

  static void paeth(uint8_t* row, const uint8_t* above, int64_t nbytes) {
    const __m128i zero = _mm_setzero_si128();
    const auto size_of = [&](__m128i x) { return _mm_max_epi16(x, _mm_sub_epi16(zero, x)); };
    const auto choose = [](__m128i which, __m128i yes, __m128i no) {
      return _mm_or_si128(_mm_and_si128(which, yes), _mm_andnot_si128(which, no));
    };
    __m128i left = zero;  // All of them in lanes of 16 bits.
    __m128i corner = zero;
    for (int64_t i = 0; i < nbytes; i += kWidth) {
      const __m128i up = _mm_unpacklo_epi8(load(above, i, nbytes), zero);
      const __m128i from_left = _mm_sub_epi16(up, corner);
      const __m128i from_up = _mm_sub_epi16(left, corner);
      const __m128i by_left = size_of(from_left);
      const __m128i by_up = size_of(from_up);
      const __m128i by_corner = size_of(_mm_add_epi16(from_left, from_up));
      const __m128i least = _mm_min_epi16(by_corner, _mm_min_epi16(by_left, by_up));
      const __m128i found =
          choose(_mm_cmpeq_epi16(least, by_left), left, choose(_mm_cmpeq_epi16(least, by_up), up, corner));
      const __m128i pixel = _mm_add_epi8(load(row, i, nbytes), _mm_packus_epi16(found, found));
      store(row + i, pixel);
      left = _mm_unpacklo_epi8(pixel, zero);
      corner = up;
    }
  }

  static void undo(uint8_t filter, uint8_t* row, const uint8_t* above, int64_t nbytes) {
    if (filter == kSub) sub(row, nbytes);
    if (filter == kAverage) average(row, above, nbytes);
    if (filter == kPaeth) paeth(row, above, nbytes);
  }
};
#endif

void undo_row(uint8_t filter, uint8_t* row, const uint8_t* above, int64_t nbytes, int64_t width) {
  if (filter == kNone) return;
  if (filter == kUp) return undo_up(row, above, nbytes);
#if defined(__SSE2__)
  if (width == 3) return Pixels<3>::undo(filter, row, above, nbytes);
  if (width == 4) return Pixels<4>::undo(filter, row, above, nbytes);
#endif
  undo(filter, row, above, nbytes, width);
}

void undo_png_filters(nb::handle rows_object, int64_t pixel_nbytes) {
  const Buffer rows(rows_object, "rows", Element::kUint8, 2, Access::kWrite);
  if (pixel_nbytes < 1 || pixel_nbytes > 8) {
    raise_value_error("pixel_nbytes must be from 1 to 8, got " + std::to_string(pixel_nbytes) + ".");
  }
  const int64_t nbytes = rows.size(1) - 1;
  if (nbytes < 0 || nbytes % pixel_nbytes != 0) raise_value_error("rows must be a byte, and then whole pixels, each.");
  if (rows.size(0) > 1 && rows.stride(0) != rows.size(1)) raise_value_error("rows must be contiguous.");
  int64_t bad = -1;
  {
    nb::gil_scoped_release release;
    const std::vector<uint8_t> nothing(static_cast<size_t>(nbytes));
    const uint8_t* above = nothing.data();
    for (int64_t number = 0; number < rows.size(0) && bad < 0; ++number) {
      uint8_t* const row = rows.data<uint8_t>() + number * (nbytes + 1);
      const uint8_t filter = row[0];
      if (filter > kPaeth) {
        bad = number;
      } else {
        undo_row(filter, row + 1, above, nbytes, pixel_nbytes);
      }
      above = row + 1;
    }
  }
  if (bad >= 0) raise_value_error("row " + std::to_string(bad) + " has a filter that there is none of");
}

}  // namespace

void bind_png(nb::module_& m) {
  m.def("undo_png_filters", &undo_png_filters, nb::arg("rows"), nb::arg("pixel_nbytes"),
        "Undo the filters of the rows of a PNG, in place.");
}

}  // namespace penstock
