// Python's side of the checksums: checks arguments, and lets go of the interpreter lock.
#include <string>

#include "buffer.h"
#include "crc32c.h"

namespace penstock {
namespace {

uint32_t checksum(nb::handle data_object, uint32_t before, bool portable) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const auto nbytes = static_cast<size_t>(data.size(0));
  const auto* bytes = data.data<const uint8_t>();
  nb::gil_scoped_release release;
  return portable ? crc32c_portable(bytes, nbytes, before) : crc32c(bytes, nbytes, before);
}

void checksums_of_spans(nb::handle data_object, nb::handle edges_object, nb::handle out_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer edges(edges_object, "edges", Element::kInt64, 1, Access::kRead);
  const Buffer out(out_object, "out", Element::kUint32, 1, Access::kWrite);
  const int64_t count = out.size(0);
  edges.require_size(0, count + 1, "out plus one");
  const auto* at = edges.data<const int64_t>();
  int64_t last = 0;
  for (int64_t i = 0; i <= count; ++i) {
    if (at[i] < last || at[i] > data.size(0)) {
      raise_value_error("edges must rise from 0 to at most " + std::to_string(data.size(0)) + ", got " +
                        std::to_string(at[i]) + " after " + std::to_string(last) + ".");
    }
    last = at[i];
  }
  const auto* bytes = data.data<const uint8_t>();
  auto* found = out.data<uint32_t>();
  nb::gil_scoped_release release;
  for (int64_t i = 0; i < count; ++i) found[i] = crc32c(bytes + at[i], static_cast<size_t>(at[i + 1] - at[i]));
}

}  // namespace

void bind_crc32c(nb::module_& m) {
  m.def("crc32c", &checksum, nb::arg("data"), nb::kw_only(), nb::arg("before") = 0, nb::arg("portable") = false,
        "Return the CRC32C.");
  m.def("crc32c_of_spans", &checksums_of_spans, nb::arg("data"), nb::arg("edges"), nb::arg("out"),
        "Write the CRC32C of each span between two edges.");
  m.def("combined_crc", &combined_crc, nb::arg("first"), nb::arg("second"), nb::arg("second_nbytes"), nb::kw_only(),
        nb::arg("polynomial"), "Return the CRC of two pieces, one after the other.");
}

}  // namespace penstock
