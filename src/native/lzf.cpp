// LZF, which h5py packs chunks with. Reads and writes only what it was given, whatever the packed bytes say.
#include <cstring>
#include <string>

#include "buffer.h"

namespace penstock {
namespace {

constexpr int64_t kDamaged = -1;
constexpr int64_t kTooMuch = -2;

int64_t unpack(const uint8_t* in, int64_t in_size, uint8_t* out, int64_t out_size) {
  int64_t at = 0;
  int64_t done = 0;
  while (at < in_size) {
    const int64_t control = in[at++];
    if (control < 32) {  // That many bytes and one more, as they are.
      const int64_t length = control + 1;
      if (length > in_size - at) return kDamaged;
      if (length > out_size - done) return kTooMuch;
      std::memcpy(out + done, in + at, static_cast<size_t>(length));
      at += length;
      done += length;
      continue;
    }
    int64_t length = control >> 5;  // Bytes that were there before, at some distance.
    if (length == 7) {
      if (at >= in_size) return kDamaged;
      length += in[at++];
    }
    length += 2;
    if (at >= in_size) return kDamaged;
    const int64_t distance = ((control & 31) << 8) + in[at++] + 1;
    if (distance > done) return kDamaged;
    if (length > out_size - done) return kTooMuch;
    // Byte by byte where they overlap: a short distance repeats what was just written.
    if (distance >= length) {
      std::memcpy(out + done, out + done - distance, static_cast<size_t>(length));
    } else {
      for (int64_t i = 0; i < length; ++i) out[done + i] = out[done - distance + i];
    }
    done += length;
  }
  return done;
}

int64_t unpack_lzf(nb::handle packed_object, nb::handle out_object) {
  const Buffer packed(packed_object, "packed", Element::kUint8, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
  if (may_share_memory(packed, out)) raise_value_error("packed and out must not share memory.");
  int64_t found = 0;
  {
    nb::gil_scoped_release release;
    found = unpack(packed.data<const uint8_t>(), packed.size(0), out.data<uint8_t>(), out.size(0));
  }
  if (found == kTooMuch) {
    throw nb::buffer_error(("packed holds more than the " + std::to_string(out.size(0)) + " bytes of out.").c_str());
  }
  if (found == kDamaged) raise_value_error("packed is no LZF, or cut off.");
  return found;
}

}  // namespace

void bind_lzf(nb::module_& m) {
  m.def("unpack_lzf", &unpack_lzf, nb::arg("packed"), nb::arg("out"), "Unpack LZF, and return how many bytes it has.");
}

}  // namespace penstock
