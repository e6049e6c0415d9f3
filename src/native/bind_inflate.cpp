// Deflate streams, bare and as zlib frames them, for Python.
#include <string>
#include <tuple>

#include <nanobind/stl/tuple.h>

#include "buffer.h"
#include "inflate.h"

namespace penstock {
namespace {

InflateResult unpacked(const uint8_t* in, int64_t in_size, const Buffer& out) {
  InflateResult found{};
  {
    nb::gil_scoped_release release;
    found = inflate(in, in_size, out.data<uint8_t>(), out.size(0));
  }
  if (found.status == Inflated::kTooMuch) {
    throw nb::buffer_error(("packed holds more than the " + std::to_string(out.size(0)) + " bytes of out.").c_str());
  }
  if (found.status == Inflated::kCutOff) raise_value_error("its deflated bytes are cut off");
  if (found.status == Inflated::kDamaged) raise_value_error("its deflated bytes are damaged");
  return found;
}

std::tuple<int64_t, int64_t> unpack_deflate(nb::handle packed_object, nb::handle out_object) {
  const Buffer packed(packed_object, "packed", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  if (may_share_memory(packed, out)) raise_value_error("packed and out must not share memory.");
  const InflateResult found = unpacked(packed.data<const uint8_t>(), packed.size(0), out);
  return {found.in_used, found.out_used};
}

int64_t unpack_zlib(nb::handle packed_object, nb::handle out_object) {
  const Buffer packed(packed_object, "packed", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  if (may_share_memory(packed, out)) raise_value_error("packed and out must not share memory.");
  const auto* in = packed.data<const uint8_t>();
  const int64_t size = packed.size(0);
  if (size < 2) raise_value_error("its deflated bytes are cut off");
  // The method, the size of the window, a dictionary that both sides would have to know.
  if ((in[0] << 8 | in[1]) % 31 != 0 || (in[0] & 15) != 8 || in[0] >> 4 > 7 || (in[1] & 32) != 0) {
    raise_value_error("its deflated bytes are damaged: they have no header of zlib");
  }
  const InflateResult found = unpacked(in + 2, size - 2, out);
  const uint8_t* tail = in + 2 + found.in_used;
  if (in + size - tail < 4) raise_value_error("its deflated bytes are cut off");
  const uint32_t stored = static_cast<uint32_t>(tail[0]) << 24 | static_cast<uint32_t>(tail[1]) << 16 |
                          static_cast<uint32_t>(tail[2]) << 8 | static_cast<uint32_t>(tail[3]);
  uint32_t sum = 0;
  {
    nb::gil_scoped_release release;
    sum = adler32(out.data<const uint8_t>(), found.out_used);
  }
  if (sum != stored) raise_value_error("its deflated bytes are damaged: their checksum (Adler-32) is wrong");
  return found.out_used;
}

}  // namespace

void bind_inflate(nb::module_& m) {
  m.def("unpack_deflate", &unpack_deflate, nb::arg("packed"), nb::arg("out"),
        "Unpack a bare deflate stream; return how many bytes of packed it has, and how many were written.");
  m.def("unpack_zlib", &unpack_zlib, nb::arg("packed"), nb::arg("out"),
        "Unpack a deflate stream with the header and the checksum of zlib; return how many bytes were written.");
}

}  // namespace penstock
