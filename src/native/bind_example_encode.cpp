// Columns of Python's to records.
#include <cstring>
#include <stdexcept>

#include "bind_example.h"
#include "example_encode.h"

namespace penstock {
namespace {

// The arguments of one column of variable rows.
struct ColumnBuffers {
  std::unique_ptr<Buffer> values, offsets, row_lengths, shapes;
};

void take_parts(const FeaturePlan& feature, nb::handle object, int64_t num_rows, ColumnBuffers& hold,
                EncodeColumn& to) {
  const auto parts = nb::cast<nb::tuple>(object);
  const bool is_text = feature.width == 0;
  const bool has_shapes = feature.form == Form::kTensor && feature.count < 0;
  const size_t wanted = 2 + size_t{is_text} + size_t{has_shapes};
  if (parts.size() != wanted) {
    raise_value_error("column of feature '" + feature.name + "' must have " + std::to_string(wanted) + " parts, got " +
                      std::to_string(parts.size()) + ".");
  }
  size_t next = 0;
  const auto part = [&](const char* name, Element element, int ndim) {
    return std::make_unique<Buffer>(parts[next++], name, element, ndim, Access::kRead);
  };
  hold.values = part("values", Element::kUint8, 1);
  if (is_text) hold.offsets = part("offsets", Element::kInt64, 1);
  hold.row_lengths = part("row_lengths", Element::kInt64, 1);
  hold.row_lengths->require_size(0, num_rows, "num_rows");
  if (has_shapes) {
    hold.shapes = part("shapes", Element::kInt64, 2);
    hold.shapes->require_size(0, num_rows, "num_rows");
    hold.shapes->require_size(1, static_cast<int64_t>(feature.shape.size()), "shape");
    to.shapes = hold.shapes->data<const int64_t>();
    if (num_rows > 1 && hold.shapes->stride(0) != 8 * hold.shapes->size(1)) {
      raise_value_error("shapes must be contiguous.");
    }
  }
  to.values = hold.values->data<const uint8_t>();
  to.values_nbytes = hold.values->size(0);
  to.row_lengths = hold.row_lengths->data<const int64_t>();
  if (!is_text) return;
  to.offsets = hold.offsets->data<const int64_t>();
  to.num_offsets = hold.offsets->size(0);
}

nb::tuple encode(const Plan& plan, const nb::list& objects, int64_t num_rows, bool framed) {
  if (num_rows < 0) raise_value_error("num_rows must be at least 0, got " + std::to_string(num_rows) + ".");
  const Slots slots(plan, objects, Access::kRead, nullptr);
  if (slots.is_used() && num_rows > slots.count()) {
    raise_value_error("columns must have a slot for each row: got " + std::to_string(num_rows) + " rows for " +
                      std::to_string(slots.count()) + " slots.");
  }
  EncodeJob job;
  job.plan = &plan;
  job.count = num_rows;
  job.group_rows = slots.group_rows;
  job.is_framed = framed;
  std::vector<ColumnBuffers> holds(static_cast<size_t>(plan.size()));
  for (int i = 0; i < plan.size(); ++i) {
    const auto index = static_cast<size_t>(i);
    const Buffer* rows = slots.of(i);
    EncodeColumn column;
    if (rows != nullptr) {
      column.rows = rows->data<const uint8_t>();
      column.group_stride = rows->stride(0);
      column.slot_stride = rows->stride(1);
    } else {
      take_parts(plan.features()[index], objects[index], num_rows, holds[index], column);
    }
    job.columns.push_back(column);
  }
  Growable out;
  Growable offsets;
  {
    nb::gil_scoped_release release;
    encode_records(job, out, offsets);
  }
  return nb::make_tuple(to_numpy<uint8_t>(std::move(out)), to_numpy<int64_t>(std::move(offsets)));
}

nb::object frame(nb::handle data_object, nb::handle offsets_object) {
  const Buffer data(data_object, "data", Element::kUint8, 1, Access::kRead);
  const Buffer offsets(offsets_object, "offsets", Element::kInt64, 1, Access::kRead);
  const auto* at = offsets.data<const int64_t>();
  Growable out;
  {
    nb::gil_scoped_release release;
    for (int64_t i = 0; i + 1 < offsets.size(0); ++i) {
      const int64_t start = at[i];
      const int64_t end = at[i + 1];
      if (start < 0 || end < start || end > data.size(0)) {
        throw std::invalid_argument("offsets must rise from 0 to " + std::to_string(data.size(0)) + ", got " +
                                    std::to_string(start) + " to " + std::to_string(end) + ".");
      }
      uint8_t* to = out.reserve(end - start + kFrameNbytes);
      const uint8_t* payload = data.data<const uint8_t>() + start;
      if (end > start) std::memcpy(to + kHeaderNbytes, payload, static_cast<size_t>(end - start));
      write_frame(to, end - start);
      out.commit(end - start + kFrameNbytes);
    }
  }
  return to_numpy<uint8_t>(std::move(out));
}

}  // namespace

void bind_example_encode(nb::module_& m) {
  m.def("tfrecord_frame", &frame, nb::arg("data"), nb::arg("offsets"), "Frame payloads.");
  m.def("example_encode", &encode, nb::arg("plan"), nb::arg("columns"), nb::arg("num_rows"), nb::kw_only(),
        nb::arg("framed") = true, "Encode columns to records.");
}

}  // namespace penstock
