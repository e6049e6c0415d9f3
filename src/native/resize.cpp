// Images made smaller or larger: a weighted mean of the pixels around each place, a triangle of weights as wide as what
// one new pixel stands for (so nothing is skipped where it shrinks) and at least two old pixels. In whole numbers, down
// and then across, each as Pillow's BILINEAR: the same bytes on every machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/pair.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "buffer.h"

namespace penstock {
namespace {

constexpr int kBits = 22;  // What is left of 32 bits for weights of bytes, their sum and its sign in Pillow.
constexpr uint32_t kHalf = 1u << (kBits - 1);

// Weights are rounded one by one: of very many, the sum may come out a little above 1.
inline uint8_t rounded(uint32_t sum) { return static_cast<uint8_t>(std::min(sum >> kBits, 255u)); }
constexpr int64_t kChannels = 3;
constexpr int64_t kMostPixels = int64_t{1} << 30;  // Along one side: 3 bytes each stay far below 2**63.

// Of each new pixel along one side: the first old one that it is made of, and the weights of so many from there on.
struct Weights {
  int64_t taps = 1;
  std::vector<int64_t> first;
  std::vector<uint32_t> weights;

  const uint32_t* of(int64_t place) const { return weights.data() + place * taps; }
};

// A side of an image. The last pixel may be there only in part: a JPEG that was divided has sides that are rounded up.
struct Side {
  int64_t pixels;
  double length;
};

// The old pixels [start, stop) that a new one is made of, and its weights' middle.
struct Reach {
  double center;
  double scale;
  int64_t start;
  int64_t stop;

  Reach(int64_t place, Side from, int64_t to) {
    const double step = from.length / static_cast<double>(to);
    scale = std::max(1.0, step);
    center = (static_cast<double>(place) + 0.5) * step;
    start = std::max<int64_t>(0, static_cast<int64_t>(center - scale + 0.5));
    stop = std::min(from.pixels, static_cast<int64_t>(center + scale + 0.5));
  }

  double weight(int64_t pixel) const {
    const double away = std::abs((static_cast<double>(pixel) - center + 0.5) * (1.0 / scale));
    return away < 1.0 ? 1.0 - away : 0.0;
  }
};

// The weights of the places [at, stop) of a side that shall have `to` pixels.
Weights weights_of(Side from, int64_t to, int64_t at, int64_t stop) {
  Weights made;
  for (int64_t place = at; place < stop; ++place) {
    const Reach reach(place, from, to);
    made.taps = std::max(made.taps, reach.stop - reach.start);
  }
  made.first.resize(static_cast<size_t>(stop - at));
  made.weights.assign(static_cast<size_t>((stop - at) * made.taps), 0);
  std::vector<double> shares(static_cast<size_t>(made.taps));
  for (int64_t place = at; place < stop; ++place) {
    const Reach reach(place, from, to);
    double sum = 0;
    for (int64_t pixel = reach.start; pixel < reach.stop; ++pixel) {
      sum += shares[static_cast<size_t>(pixel - reach.start)] = reach.weight(pixel);
    }
    // All have as many weights, some of which are 0: the loops over them have no end of their own.
    const int64_t first = std::min(reach.start, from.pixels - made.taps);
    made.first[static_cast<size_t>(place - at)] = first;
    uint32_t* weights = made.weights.data() + (place - at) * made.taps + (reach.start - first);
    for (int64_t i = 0; i < reach.stop - reach.start; ++i) {
      const double share = sum != 0.0 ? shares[static_cast<size_t>(i)] / sum : 0.0;
      weights[i] = static_cast<uint32_t>(0.5 + share * (1u << kBits));
    }
  }
  return made;
}

// One row of the result as wide as it was, from as many rows as there are weights.
inline __attribute__((always_inline)) void down(const uint8_t* rows, int64_t stride, const uint32_t* weights,
                                                int64_t taps, int64_t nbytes, uint8_t* out) {
  constexpr int64_t kPiece = 32;  // As many sums as there are registers for.
  int64_t done = 0;
  for (; done + kPiece <= nbytes; done += kPiece) {
    uint32_t sums[kPiece];
    for (int64_t i = 0; i < kPiece; ++i) sums[i] = kHalf;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const uint8_t* row = rows + tap * stride + done;
      const uint32_t weight = weights[tap];
      for (int64_t i = 0; i < kPiece; ++i) sums[i] += row[i] * weight;
    }
    for (int64_t i = 0; i < kPiece; ++i) out[done + i] = rounded(sums[i]);
  }
  for (; done < nbytes; ++done) {
    uint32_t sum = kHalf;
    for (int64_t tap = 0; tap < taps; ++tap) sum += rows[tap * stride + done] * weights[tap];
    out[done] = rounded(sum);
  }
}

// A row as wide as it shall be.
void across(const uint8_t* row, const Weights& by, uint8_t* out) {
  const uint32_t* weight = by.weights.data();
  for (const int64_t first : by.first) {
    const uint8_t* from = row + kChannels * first;
    uint32_t sums[kChannels] = {kHalf, kHalf, kHalf};
    for (int64_t tap = 0; tap < by.taps; ++tap, ++weight, from += kChannels) {
      for (int64_t i = 0; i < kChannels; ++i) sums[i] += from[i] * *weight;
    }
    for (int64_t i = 0; i < kChannels; ++i) *out++ = rounded(sums[i]);
  }
}

#if defined(__x86_64__)
#define PENSTOCK_AVX2 __attribute__((target("avx2"), always_inline)) inline

// The same in four lanes, of which one is thrown away: it reads one byte more than the pixels have.
template <int64_t kTaps>
PENSTOCK_AVX2 uint32_t pixel_avx2(const uint8_t* from, const uint32_t* weight, int64_t taps) {
  __m128i sums = _mm_set1_epi32(kHalf);
  for (int64_t tap = 0; tap < (kTaps ? kTaps : taps); ++tap) {
    int32_t pixel;
    std::memcpy(&pixel, from + kChannels * tap, sizeof pixel);
    const __m128i wide = _mm_cvtepu8_epi32(_mm_cvtsi32_si128(pixel));
    sums = _mm_add_epi32(sums, _mm_mullo_epi32(wide, _mm_set1_epi32(static_cast<int32_t>(weight[tap]))));
  }
  sums = _mm_min_epu32(_mm_srli_epi32(sums, kBits), _mm_set1_epi32(255));
  // The lowest byte of each lane.
  const __m128i order = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_shuffle_epi8(sums, order)));
}

template <int64_t kTaps>
PENSTOCK_AVX2 void across_avx2(const uint8_t* row, const Weights& by, uint8_t* out) {
  const int64_t last = static_cast<int64_t>(by.first.size()) - 1;
  const int64_t* first = by.first.data();
  for (int64_t place = 0; place < last; ++place) {
    // The byte too many is the first of the next pixel, which comes after it.
    const uint32_t made = pixel_avx2<kTaps>(row + kChannels * first[place], by.of(place), by.taps);
    std::memcpy(out + kChannels * place, &made, sizeof made);
  }
  const uint32_t made = pixel_avx2<kTaps>(row + kChannels * first[last], by.of(last), by.taps);
  std::memcpy(out + kChannels * last, &made, kChannels);
}

// A number of weights that the compiler knows makes no loop.
__attribute__((target("avx2"))) void across_avx2_any(const uint8_t* row, const Weights& by, uint8_t* out) {
  switch (by.taps) {
    case 2:
      return across_avx2<2>(row, by, out);
    case 3:
      return across_avx2<3>(row, by, out);
    case 4:
      return across_avx2<4>(row, by, out);
    case 5:
      return across_avx2<5>(row, by, out);
    default:
      return across_avx2<0>(row, by, out);
  }
}
#endif

using Across = void (*)(const uint8_t*, const Weights&, uint8_t*);

struct Task {
  const uint8_t* source;
  int64_t source_stride;
  int64_t first;  // Which row of the image the source begins with.
  int64_t width;
  uint8_t* out;
  int64_t out_stride;
  int64_t out_rows;
  int64_t out_width;
  bool is_as_wide;
  Weights columns;
  Weights rows;

  inline __attribute__((always_inline)) void run(Across across_row) const {
    std::vector<uint8_t> wide(static_cast<size_t>(kChannels * width + 1));
    for (int64_t place = 0; place < out_rows; ++place) {
      const uint8_t* from = source + (rows.first[static_cast<size_t>(place)] - first) * source_stride;
      uint8_t* to = out + place * out_stride;
      down(from, source_stride, rows.of(place), rows.taps, kChannels * width, is_as_wide ? to : wide.data());
      if (!is_as_wide) across_row(wide.data(), columns, to);
    }
  }
};

void run_portable(const Task& task) { task.run(across); }

#if defined(__x86_64__)
// The baseline has no multiplication of 32-bit lanes.
__attribute__((target("avx2"))) void run_avx2(const Task& task) { task.run(across_avx2_any); }

void run(const Task& task) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  has_avx2 ? run_avx2(task) : run_portable(task);
}
#else
void run(const Task& task) { run_portable(task); }
#endif

void check_pixels(const char* name, int64_t value) {
  if (value < 1 || value > kMostPixels) {
    raise_value_error(std::string(name) + " must be from 1 to 2**30, got " + std::to_string(value) + ".");
  }
}

Side checked_side(const char* name, int64_t pixels, double length) {
  if (!(length > static_cast<double>(pixels - 1) && length <= static_cast<double>(pixels))) {
    raise_value_error(std::string(name) + " must be that of " + std::to_string(pixels) +
                      " pixels, of which the last may be less than whole, got " + std::to_string(length) + ".");
  }
  return {pixels, length};
}

void check_span(const char* name, int64_t at, int64_t count, int64_t rows) {
  if (at < 0 || count < 0 || count > rows - at) {
    raise_value_error(std::string(name) + " must lie within the " + std::to_string(rows) + " rows of the image, got " +
                      std::to_string(count) + " from " + std::to_string(at) + " on.");
  }
}

// The old rows [start, stop) that the new rows [at, at + count) are made of.
std::pair<int64_t, int64_t> span_of(Side from, int64_t to, int64_t at, int64_t count) {
  int64_t taps = 1;
  for (int64_t place = at; place < at + count; ++place) {
    const Reach reach(place, from, to);
    taps = std::max(taps, reach.stop - reach.start);
  }
  const Reach top(at, from, to);
  const Reach bottom(at + count - 1, from, to);
  return {std::min(top.start, from.pixels - taps),
          std::max(bottom.stop, std::min(bottom.start, from.pixels - taps) + taps)};
}

nb::tuple rows_to_resize(int64_t rows, double height, int64_t at, int64_t count, int64_t out_rows) {
  check_pixels("rows", rows);
  check_pixels("out_rows", out_rows);
  const Side side = checked_side("height", rows, height);
  check_span("the new rows", at, count, out_rows);
  if (count == 0) return nb::make_tuple(0, 0);
  const auto [start, stop] = span_of(side, out_rows, at, count);
  return nb::make_tuple(start, stop);
}

void check_image(const Buffer& buffer) {
  if (buffer.size(2) != kChannels || (buffer.size(1) > 1 && buffer.stride(1) != kChannels)) {
    raise_value_error(std::string(buffer.name()) + " must have pixels of 3 bytes, one after the other.");
  }
  check_pixels((std::string("the width of ") + buffer.name()).c_str(), buffer.size(1));
}

void resize(nb::handle source_object, int64_t first, int64_t rows, std::pair<double, double> size,
            nb::handle out_object, int64_t at, int64_t out_rows) {
  const Buffer source(source_object, "source", Element::kUint8, 3, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 3, Access::kWrite);
  check_image(source);
  check_image(out);
  check_pixels("rows", rows);
  check_pixels("out_rows", out_rows);
  const Side height = checked_side("height", rows, size.first);
  const Side width = checked_side("width", source.size(1), size.second);
  check_span("source", first, source.size(0), rows);
  check_span("out", at, out.size(0), out_rows);
  if (may_share_memory(source, out)) raise_value_error("source and out must not share memory.");
  if (out.size(0) == 0) return;
  bool is_enough = false;
  {
    nb::gil_scoped_release release;
    const auto [start, stop] = span_of(height, out_rows, at, out.size(0));
    is_enough = first <= start && stop <= first + source.size(0);
    if (is_enough) {
      run({source.data<const uint8_t>(), source.stride(0), first, source.size(1), out.data<uint8_t>(), out.stride(0),
           out.size(0), out.size(1), width.length == static_cast<double>(out.size(1)),
           weights_of(width, out.size(1), 0, out.size(1)), weights_of(height, out_rows, at, at + out.size(0))});
    }
  }
  if (!is_enough) raise_value_error("source has not all rows that the rows of out are made of.");
}

}  // namespace

void bind_resize(nb::module_& m) {
  m.def("resize", &resize, nb::arg("source"), nb::arg("first"), nb::arg("rows"), nb::arg("size"), nb::arg("out"),
        nb::arg("at"), nb::arg("out_rows"), "Resize rows of an image.");
  m.def("rows_to_resize", &rows_to_resize, nb::arg("rows"), nb::arg("height"), nb::arg("at"), nb::arg("count"),
        nb::arg("out_rows"), "Return which rows of an image are needed to resize some.");
}

}  // namespace penstock
