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

int64_t first_bad_run(nb::handle data_object, nb::handle stretches_object, int64_t width, int64_t run_rows,
                      int64_t lead, int64_t num_rows, nb::handle expected_object) {
  static_assert(sizeof(Stretch) == 3 * sizeof(int64_t));
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer stretches(stretches_object, "stretches", Element::kInt64, 2, Access::kRead);
  const Buffer expected(expected_object, "expected", Element::kUint32, 1, Access::kRead);
  constexpr int64_t kMost = int64_t{1} << 62;
  if (width < 1 || run_rows < 1 || lead < 0 || lead >= run_rows || num_rows < 0 || num_rows > kMost ||
      run_rows > kMost) {
    raise_value_error("width and run_rows must be at least 1, lead less than run_rows, and num_rows at least 0.");
  }
  if (stretches.size(1) != 3 || (stretches.size(0) > 1 && stretches.stride(0) != int64_t{sizeof(Stretch)})) {
    raise_value_error("stretches must be contiguous rows of 3 numbers.");
  }
  const RunGrid grid{run_rows, lead, num_rows};
  expected.require_size(0, grid.num_runs(), "all runs");
  const auto* some = stretches.data<const Stretch>();
  const int64_t count = stretches.size(0);
  for (int64_t i = 0; i < count; ++i) {
    const auto [row, place, length] = some[i];
    // By division and subtraction: products and sums could overflow.
    const bool is_inside = row >= 0 && length >= 1 && row <= num_rows && length <= num_rows - row && place >= 0 &&
                           place <= data.size(0) && length <= (data.size(0) - place) / width;
    if (!is_inside) raise_value_error("stretch " + std::to_string(i) + " must lie within the array and the data.");
  }
  const auto* bytes = data.data<const uint8_t>();
  const auto* checks = expected.data<const uint32_t>();
  nb::gil_scoped_release release;
  return grid.first_bad(bytes, some, count, width, checks);
}

}  // namespace

void bind_crc32c(nb::module_& m) {
  m.def("crc32c", &checksum, nb::arg("data"), nb::kw_only(), nb::arg("before") = 0, nb::arg("portable") = false,
        "Return the CRC32C.");
  m.def("crc32c_of_spans", &checksums_of_spans, nb::arg("data"), nb::arg("edges"), nb::arg("out"),
        "Write the CRC32C of each span between two edges.");
  m.def("first_bad_run", &first_bad_run, nb::arg("data"), nb::arg("stretches"), nb::kw_only(), nb::arg("width"),
        nb::arg("run_rows"), nb::arg("lead"), nb::arg("num_rows"), nb::arg("expected"),
        "Return the first run of rows whose CRC32C is not the expected one.");
  m.def("combined_crc", &combined_crc, nb::arg("first"), nb::arg("second"), nb::arg("second_nbytes"), nb::kw_only(),
        nb::arg("polynomial"), "Return the CRC of two pieces, one after the other.");
}

}  // namespace penstock
