// Count, mean, squared deviations, minimum and maximum of every place of a row, in one pass over memory.
//
// Rows are taken a few at a time, little enough to be in a cache: first the sums of what they differ from the first of
// them by, then the squares of what they differ from their own mean by, then both are joined with those of all rows
// before (the method of Chan and others). So numbers that are large and alike lose little, and the second look costs no
// memory traffic.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <nanobind/stl/string.h>

#include "buffer.h"

namespace penstock {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 62;
constexpr int64_t kTileNbytes = 1 << 17;
constexpr int64_t kMinTile = 32;
constexpr int64_t kMaxTile = 1024;

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

inline float widen(Brain value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

inline float widen(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t rest = value.bits & 0x7FFFu;
  uint32_t bits;
  if (rest >= 0x7C00u) {
    bits = 0x7F800000u | (rest << 13);  // Infinity, or not a number.
  } else if (rest >= 0x0400u) {
    bits = (rest + 0x1C000u) << 13;
  } else {
    const float small = static_cast<float>(rest) * 5.9604644775390625e-8f;  // 2**-24, exactly.
    std::memcpy(&bits, &small, 4);
  }
  bits |= sign;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

// Registers have few operations for numbers this narrow.
inline int32_t widen(int8_t value) { return value; }
inline int32_t widen(uint8_t value) { return value; }
inline int32_t widen(int16_t value) { return value; }
inline int32_t widen(uint16_t value) { return value; }

template <typename T>
inline T widen(T value) {
  return value;
}

template <typename T>
using Wide = decltype(widen(T{}));

// The statistics so far.
template <typename W>
struct Running {
  int64_t count;
  double* mean;
  double* squares;
  std::vector<W> low;
  std::vector<W> high;
};

template <typename T>
inline Wide<T> load(const uint8_t* row, int64_t place) {
  T value;
  std::memcpy(&value, row + place * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return widen(value);
}

// The statistics of one place in a few rows.
template <typename W>
struct Found {
  double mean;
  double squares;
  W low;
  W high;
};

template <typename T>
__attribute__((always_inline)) inline void join(const uint8_t* const* rows, int64_t count, int64_t place,
                                                const Found<Wide<T>>& found, Running<Wide<T>>& running) {
  using W = Wide<T>;
  W low = found.low;
  W high = found.high;
  if constexpr (std::is_floating_point_v<W>) {
    // A comparison with NaN is false: it is looked for where the mean shows that there may be one.
    if (std::isnan(found.mean)) {
      for (int64_t row = 0; row < count; ++row) {
        const W value = load<T>(rows[row], place);
        if (std::isnan(value)) low = high = value;
      }
    }
  }
  const auto at = static_cast<size_t>(place);
  if (running.count == 0) {
    running.mean[at] = found.mean;
    running.squares[at] = found.squares;
    running.low[at] = low;
    running.high[at] = high;
    return;
  }
  const double before = static_cast<double>(running.count);
  const double share = static_cast<double>(count) / (before + static_cast<double>(count));
  const double delta = found.mean - running.mean[at];
  // Infinity less infinity is not a number, but the mean with an infinity is that one, unless there are both.
  const bool is_infinite = std::isinf(found.mean) || std::isinf(running.mean[at]);
  running.mean[at] += is_infinite ? found.mean : delta * share;
  running.squares[at] += found.squares + delta * delta * (before * share);
  if (low != low || low < running.low[at]) running.low[at] = low;
  if (high != high || high > running.high[at]) running.high[at] = high;
}

// Vectors of the compiler's: four places of a row.
constexpr int kLanes = 4;
template <typename T>
struct Lanes {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};
using Doubles = Lanes<double>::Type;

// By reference: what a function returns in a vector register depends on the machine.
template <typename T>
__attribute__((always_inline)) inline void load_lanes(const uint8_t* row, int64_t place,
                                                      typename Lanes<Wide<T>>::Type& out) {
  if constexpr (std::is_arithmetic_v<T>) {
    typename Lanes<T>::Type lanes;
    std::memcpy(&lanes, row + place * static_cast<int64_t>(sizeof(T)), sizeof(lanes));
    out = __builtin_convertvector(lanes, typename Lanes<Wide<T>>::Type);
  } else {
    for (int i = 0; i < kLanes; ++i) out[i] = load<T>(row, place + i);
  }
}

// Adds `count` rows at the given addresses, kVectors * kLanes places of each from `first` on. All that is counted stays
// in registers meanwhile.
template <typename T, int kVectors>
__attribute__((always_inline)) inline void add_strip(const uint8_t* const* rows, int64_t count, int64_t first,
                                                     Running<Wide<T>>& running) {
  using Values = typename Lanes<Wide<T>>::Type;
  Doubles sums[kVectors];
  Doubles bases[kVectors];  // What is far from 0 is summed up as what it is away from here.
  Values low[kVectors];
  Values high[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    sums[i] = Doubles{0, 0, 0, 0};
    load_lanes<T>(rows[0], first + i * kLanes, low[i]);
    high[i] = low[i];
    bases[i] = __builtin_convertvector(low[i], Doubles);
    bases[i] = bases[i] - bases[i] == 0.0 ? bases[i] : Doubles{0, 0, 0, 0};  // Infinity and NaN are away from all.
  }
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* values = rows[row];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      Values value;
      load_lanes<T>(values, first + i * kLanes, value);
      sums[i] += __builtin_convertvector(value, Doubles) - bases[i];
      low[i] = value < low[i] ? value : low[i];
      high[i] = value > high[i] ? value : high[i];
    }
  }
  Doubles squares[kVectors];
  Doubles means[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    squares[i] = Doubles{0, 0, 0, 0};
    means[i] = sums[i] / static_cast<double>(count);
  }
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* values = rows[row];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      Values value;
      load_lanes<T>(values, first + i * kLanes, value);
      const Doubles away = __builtin_convertvector(value, Doubles) - bases[i] - means[i];
      squares[i] += away * away;
    }
  }
  for (int i = 0; i < kVectors; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const Found<Wide<T>> found{bases[i][lane] + means[i][lane], squares[i][lane], low[i][lane], high[i][lane]};
      join<T>(rows, count, first + i * kLanes + lane, found, running);
    }
  }
}

// The same for a single place.
template <typename T>
__attribute__((always_inline)) inline void add_place(const uint8_t* const* rows, int64_t count, int64_t place,
                                                     Running<Wide<T>>& running) {
  using W = Wide<T>;
  const W start = load<T>(rows[0], place);
  const double base = std::isfinite(static_cast<double>(start)) ? static_cast<double>(start) : 0.0;
  Found<W> found{0, 0, start, start};
  double sum = 0;
  for (int64_t row = 0; row < count; ++row) {
    const W value = load<T>(rows[row], place);
    sum += static_cast<double>(value) - base;
    found.low = value < found.low ? value : found.low;
    found.high = value > found.high ? value : found.high;
  }
  const double mean = sum / static_cast<double>(count);
  for (int64_t row = 0; row < count; ++row) {
    const double away = static_cast<double>(load<T>(rows[row], place)) - base - mean;
    found.squares += away * away;
  }
  found.mean = base + mean;
  join<T>(rows, count, place, found, running);
}

template <typename T>
__attribute__((always_inline)) inline void add_tile(const uint8_t* const* rows, int64_t count, int64_t width,
                                                    Running<Wide<T>>& running) {
  constexpr int kVectors = 4;
  int64_t place = 0;
  for (; place + kVectors * kLanes <= width; place += kVectors * kLanes) {
    add_strip<T, kVectors>(rows, count, place, running);
  }
  for (; place + kLanes <= width; place += kLanes) add_strip<T, 1>(rows, count, place, running);
  for (; place < width; ++place) add_place<T>(rows, count, place, running);
  running.count += count;
}

template <typename T>
void add_tile_portable(const uint8_t* const* rows, int64_t count, int64_t width, Running<Wide<T>>& running) {
  add_tile<T>(rows, count, width, running);
}

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx2"))) void add_tile_avx2(const uint8_t* const* rows, int64_t count, int64_t width,
                                                   Running<Wide<T>>& running) {
  add_tile<T>(rows, count, width, running);
}
#endif

template <typename T>
void add_all(const Buffer& source, int64_t width, Running<Wide<T>>& running) {
  auto* add = add_tile_portable<T>;
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  if (has_avx2) add = add_tile_avx2<T>;
#endif
  const int64_t row_nbytes = std::max<int64_t>(1, source.size(2));
  const int64_t tile = std::clamp(kTileNbytes / row_nbytes, kMinTile, kMaxTile);
  std::vector<const uint8_t*> rows;
  rows.reserve(static_cast<size_t>(tile));
  const auto* data = source.data<const uint8_t>();
  for (int64_t group = 0; group < source.size(0); ++group) {
    for (int64_t row = 0; row < source.size(1); ++row) {
      rows.push_back(data + group * source.stride(0) + row * source.stride(1));
      if (static_cast<int64_t>(rows.size()) == tile) {
        add(rows.data(), tile, width, running);
        rows.clear();
      }
    }
  }
  if (!rows.empty()) add(rows.data(), static_cast<int64_t>(rows.size()), width, running);
}

struct Arguments {
  const Buffer& source;
  int64_t count;
  const Buffer& mean;
  const Buffer& squares;
  const Buffer& low;
  const Buffer& high;
};

template <typename T>
void run(const Arguments& arguments) {
  using W = Wide<T>;
  const int64_t width = arguments.mean.size(0);
  if (arguments.source.size(2) != width * static_cast<int64_t>(sizeof(T))) {
    raise_value_error("source must have " + std::to_string(width * static_cast<int64_t>(sizeof(T))) +
                      " bytes a row, got " + std::to_string(arguments.source.size(2)) + ".");
  }
  for (const Buffer* one : {&arguments.low, &arguments.high}) {
    if (one->size(0) != width * static_cast<int64_t>(sizeof(W))) {
      raise_value_error(std::string(one->name()) + " must have " +
                        std::to_string(width * static_cast<int64_t>(sizeof(W))) + " bytes, got " +
                        std::to_string(one->size(0)) + ".");
    }
  }
  const auto places = static_cast<size_t>(width);
  Running<W> running{arguments.count, arguments.mean.data<double>(), arguments.squares.data<double>(),
                     std::vector<W>(places), std::vector<W>(places)};
  nb::gil_scoped_release release;
  if (places == 0) return;
  std::memcpy(running.low.data(), arguments.low.data<const uint8_t>(), places * sizeof(W));
  std::memcpy(running.high.data(), arguments.high.data<const uint8_t>(), places * sizeof(W));
  add_all<T>(arguments.source, width, running);
  std::memcpy(arguments.low.data<uint8_t>(), running.low.data(), places * sizeof(W));
  std::memcpy(arguments.high.data<uint8_t>(), running.high.data(), places * sizeof(W));
}

void add_moments(nb::handle source_object, const std::string& kind, int64_t count, nb::handle mean_object,
                 nb::handle squares_object, nb::handle low_object, nb::handle high_object) {
  const Buffer source(source_object, "source", Element::kUint8, 3, Access::kRead);
  const Buffer mean(mean_object, "mean", Element::kFloat64, 1, Access::kWrite);
  const Buffer squares(squares_object, "squares", Element::kFloat64, 1, Access::kWrite);
  const Buffer low(low_object, "low", Element::kUint8, 1, Access::kWrite);
  const Buffer high(high_object, "high", Element::kUint8, 1, Access::kWrite);
  squares.require_size(0, mean.size(0), "mean");
  if (count < 0 || count > kMaxCount) {
    raise_value_error("count must be between 0 and 2**62, got " + std::to_string(count) + ".");
  }
  const Arguments arguments{source, count, mean, squares, low, high};
  if (kind == "i1") return run<int8_t>(arguments);
  if (kind == "i2") return run<int16_t>(arguments);
  if (kind == "i4") return run<int32_t>(arguments);
  if (kind == "i8") return run<int64_t>(arguments);
  if (kind == "u1") return run<uint8_t>(arguments);
  if (kind == "u2") return run<uint16_t>(arguments);
  if (kind == "u4") return run<uint32_t>(arguments);
  if (kind == "u8") return run<uint64_t>(arguments);
  if (kind == "f2") return run<Half>(arguments);
  if (kind == "bf") return run<Brain>(arguments);
  if (kind == "f4") return run<float>(arguments);
  if (kind == "f8") return run<double>(arguments);
  raise_value_error("kind must be one of i1 to i8, u1 to u8, f2, f4, f8 and bf, got " + kind + ".");
}

}  // namespace

void bind_moments(nb::module_& m) {
  m.def("add_moments", &add_moments, nb::arg("source"), nb::arg("kind"), nb::arg("count"), nb::arg("mean"),
        nb::arg("squares"), nb::arg("low"), nb::arg("high"));
}

}  // namespace penstock
