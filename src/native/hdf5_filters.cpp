// The filters of HDF5 that only move or add up bytes: shuffle and Fletcher-32.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>

#include <nanobind/stl/tuple.h>

#include "buffer.h"

namespace penstock {
namespace {

// Each width is a loop of its own, which the compiler turns into moves of 16 bytes.
template <int kWidth>
void unshuffle_width(const uint8_t* __restrict in, int64_t count, uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    for (int byte = 0; byte < kWidth; ++byte) out[i * kWidth + byte] = in[byte * count + i];
  }
}

void unshuffle_any(const uint8_t* in, int64_t count, int64_t width, uint8_t* out) {
  // So many values at a time that what is written stays in the cache until all of their bytes are there.
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 14) / width);
  for (int64_t first = 0; first < count; first += step) {
    const int64_t last = std::min(count, first + step);
    for (int64_t byte = 0; byte < width; ++byte) {
      for (int64_t i = first; i < last; ++i) out[i * width + byte] = in[byte * count + i];
    }
  }
}

void unshuffle(nb::handle packed_object, int64_t width, nb::handle out_object) {
  const Buffer packed(packed_object, "packed", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  if (width < 1) raise_value_error("width must be at least 1, got " + std::to_string(width) + ".");
  out.require_size(0, packed.size(0), "packed");
  if (may_share_memory(packed, out)) raise_value_error("packed and out must not share memory.");
  nb::gil_scoped_release release;
  const auto* from = packed.data<const uint8_t>();
  auto* to = out.data<uint8_t>();
  const int64_t size = packed.size(0);
  const int64_t count = size / width;
  switch (width) {
    case 2:
      unshuffle_width<2>(from, count, to);
      break;
    case 4:
      unshuffle_width<4>(from, count, to);
      break;
    case 8:
      unshuffle_width<8>(from, count, to);
      break;
    default:
      unshuffle_any(from, count, width, to);
  }
  // What is left over of a value is as it was.
  const int64_t whole = count * width;
  if (size > whole) std::memcpy(to + whole, from + whole, static_cast<size_t>(size - whole));
}

std::tuple<int64_t, int64_t> fletcher32(nb::handle data_object) {
  constexpr uint64_t kModulus = 65535;
  constexpr int64_t kBlock = 1 << 16;  // Words after which the sums still fit into 64 bits.
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const auto* at = data.data<const uint8_t>();
  uint64_t first = 0;
  uint64_t second = 0;
  {
    nb::gil_scoped_release release;
    for (int64_t left = data.size(0) / 2; left > 0;) {
      const int64_t block = std::min(left, kBlock);
      left -= block;
      int64_t done = 0;
      // Eight words at a time, so that one sum need not wait for the other.
      for (; done + 8 <= block; done += 8, at += 16) {
        uint64_t sum = 0;
        uint64_t weighted = 0;
        for (uint64_t i = 0; i < 8; ++i) {
          const uint64_t word = static_cast<uint64_t>(at[2 * i] << 8 | at[2 * i + 1]);
          sum += word;
          weighted += (8 - i) * word;
        }
        second += 8 * first + weighted;
        first += sum;
      }
      for (; done < block; ++done, at += 2) {
        first += static_cast<uint64_t>(at[0] << 8 | at[1]);
        second += first;
      }
      first %= kModulus;
      second %= kModulus;
    }
    if (data.size(0) % 2 != 0) {
      first = (first + (static_cast<uint64_t>(*at) << 8)) % kModulus;
      second = (second + first) % kModulus;
    }
  }
  return {static_cast<int64_t>(first), static_cast<int64_t>(second)};
}

}  // namespace

void bind_hdf5_filters(nb::module_& m) {
  m.def("unshuffle", &unshuffle, nb::arg("packed"), nb::arg("width"), nb::arg("out"),
        "Put the bytes of values together again, of which all first bytes came first.");
  m.def("fletcher32", &fletcher32, nb::arg("data"),
        "Return the sum of all big-endian words of 16 bits, and the sum of those sums, both modulo 65535.");
}

}  // namespace penstock
