// Python's side of the TFRecord kernels: checks arguments, lets go of the interpreter lock, and hands over arrays.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "bind_example.h"
#include "jobs.h"
#include "open_file.h"
#include "tfrecord_frame.h"

namespace penstock {
namespace {

using FeatureTuple = std::tuple<std::string, std::string, int, std::vector<int64_t>, bool, nb::object>;

// Between records that are read in one go.
constexpr int64_t kNearNbytes = 4096;

PyObject* record_error = nullptr;

[[noreturn]] void raise_record_error(const RecordFault& fault) {
  std::string message = std::string(fault_name(fault.fault)) + " in record " + std::to_string(fault.record) +
                        ", byte " + std::to_string(fault.offset);
  nb::object error = nb::borrow(record_error)(message);
  error.attr("kind") = fault_name(fault.fault);
  error.attr("record") = fault.record;
  error.attr("offset") = fault.offset;
  error.attr("feature") = fault.feature;
  error.attr("found") = fault.found;
  PyErr_SetObject(record_error, error.ptr());
  throw nb::python_error();
}

nb::object shifted(const std::vector<int64_t>& values, int64_t shift) {
  Growable memory;
  memory.reserve(8 * static_cast<int64_t>(values.size()));
  for (const int64_t value : values) memory.append(value + shift);
  return to_numpy<int64_t>(std::move(memory));
}

Form form_of(const std::string& name) {
  if (name == "fixed") return Form::kFixed;
  if (name == "variable") return Form::kVariable;
  if (name == "tensor") return Form::kTensor;
  raise_value_error("form must be 'fixed', 'variable' or 'tensor', got '" + name + "'.");
}

void take_default(nb::handle value, FeaturePlan& feature) {
  feature.has_default = !value.is_none();
  if (nb::isinstance<nb::bytes>(value)) {
    const auto row = nb::borrow<nb::bytes>(value);
    const auto* data = static_cast<const uint8_t*>(row.data());
    feature.default_row.assign(data, data + row.size());
  } else if (feature.has_default) {
    for (nb::handle item : nb::cast<nb::list>(value)) {
      const auto bytes = nb::cast<nb::bytes>(item);
      feature.default_items.emplace_back(bytes.c_str(), bytes.size());
    }
  }
}

void make_plan(Plan* self, const std::vector<FeatureTuple>& tuples) {
  std::vector<FeaturePlan> features;
  for (const auto& [name, form, type, shape, is_utf8, default_value] : tuples) {
    FeaturePlan feature;
    feature.name = name;
    feature.form = form_of(form);
    feature.type = static_cast<Type>(type);
    feature.shape = shape;
    feature.is_utf8 = is_utf8;
    take_default(default_value, feature);
    features.push_back(std::move(feature));
  }
  new (self) Plan(std::move(features));
}

nb::tuple scan(nb::handle buffer_object, int64_t offset0, bool verify_length_crc, int64_t remaining) {
  const Buffer buffer(buffer_object, "buffer", Element::kUint8, 1, Access::kRead);
  Scan found;
  {
    nb::gil_scoped_release release;
    found = scan_records(buffer.data<const uint8_t>(), buffer.size(0), remaining, verify_length_crc);
  }
  // Records before a damaged one are the caller's; the next call starts with the damaged one, and raises.
  if (found.fault != Fault::kNone && found.offsets.empty()) raise_record_error({0, offset0, -1, found.fault, 0});
  return nb::make_tuple(shifted(found.offsets, offset0), shifted(found.lengths, 0), found.consumed);
}

int64_t find(nb::handle buffer_object, int64_t start) {
  const Buffer buffer(buffer_object, "buffer", Element::kUint8, 1, Access::kRead);
  if (start < 0) raise_value_error("start must be at least 0, got " + std::to_string(start) + ".");
  nb::gil_scoped_release release;
  return find_record(buffer.data<const uint8_t>(), buffer.size(0), start);
}

nb::object take_column(const FeaturePlan& feature, Column& column) {
  if (feature.has_slots) return nb::none();
  nb::object values = to_numpy<uint8_t>(std::move(column.values));
  const auto rows = static_cast<size_t>(column.row_lengths.size()) / 8;
  nb::object lengths = to_numpy<int64_t>(std::move(column.row_lengths));
  nb::list parts;
  parts.append(values);
  if (feature.width == 0) parts.append(to_numpy<int64_t>(std::move(column.offsets)));
  parts.append(lengths);
  if (feature.form == Form::kTensor && feature.count < 0) {
    parts.append(to_numpy<int64_t>(std::move(column.shapes), {rows, feature.shape.size()}));
  }
  return nb::tuple(parts);
}

// Where rows of one size go: the slots of their columns, and which of them each record has.
class Places {
 public:
  Places(const Plan& plan, const nb::list& outs, const Buffer& source, nb::handle at_object, int64_t num_records)
      : slots_(plan, outs, Access::kWrite, &source) {
    if (!at_object.is_none()) {
      at_ = std::make_unique<Buffer>(at_object, "at", Element::kInt64, 1, Access::kRead);
      at_->require_size(0, num_records, "starts");
    } else if (slots_.is_used() && num_records > slots_.count()) {
      raise_value_error("outs must have a slot for each record: got " + std::to_string(num_records) + " records for " +
                        std::to_string(slots_.count()) + " slots.");
    }
  }

  void put_into(DecodeJob& job) const {
    job.slots = at_ && slots_.is_used() ? at_->data<const int64_t>() : nullptr;
    job.groups = slots_.groups;
    job.group_rows = slots_.group_rows;
  }

  std::vector<Column> columns(const Plan& plan, int64_t* left) const {
    std::vector<Column> columns;
    for (int i = 0; i < plan.size(); ++i) {
      columns.emplace_back(left);
      const Buffer* out = slots_.of(i);
      if (out == nullptr) continue;
      columns.back().rows = out->data<uint8_t>();
      columns.back().group_stride = out->stride(0);
      columns.back().slot_stride = out->stride(1);
    }
    return columns;
  }

 private:
  Slots slots_;
  std::unique_ptr<Buffer> at_;
};

nb::tuple decode(nb::handle buffer_object, nb::handle starts_object, nb::handle lengths_object, const Plan& plan,
                 const nb::list& outs, bool verify, bool framed, nb::handle at_object, bool skip, bool fast,
                 int64_t most) {
  const Buffer buffer(buffer_object, "buffer", Element::kUint8, 1, Access::kRead);
  const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kRead);
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
  lengths.require_size(0, starts.size(0), "starts");
  const Places places(plan, outs, buffer, at_object, starts.size(0));

  DecodeJob job;
  job.plan = &plan;
  job.data = buffer.data<const uint8_t>();
  job.nbytes = buffer.size(0);
  job.starts = starts.data<const int64_t>();
  job.lengths = lengths.data<const int64_t>();
  job.count = starts.size(0);
  places.put_into(job);
  job.is_framed = framed;
  job.verify = verify;
  job.skip = skip;
  job.has_fast_path = fast;
  int64_t left = most;
  std::vector<Column> columns = places.columns(plan, most < 0 ? nullptr : &left);
  std::vector<RecordFault> faults;
  {
    nb::gil_scoped_release release;
    faults = decode_records(job, columns);
  }
  if (!skip && !faults.empty()) raise_record_error(faults[0]);

  nb::list made;
  for (int i = 0; i < plan.size(); ++i) {
    made.append(take_column(plan.features()[static_cast<size_t>(i)], columns[static_cast<size_t>(i)]));
  }
  Growable bad;
  const auto count = static_cast<size_t>(job.count);
  if (count > 0) std::memset(bad.reserve(job.count), 0, count);
  bad.commit(job.count);
  Growable errors;
  for (const RecordFault& fault : faults) {
    bad.data()[fault.record] = 1;
    errors.append(fault.record);
    errors.append(fault.offset);
    errors.append(fault.feature);
    errors.append(static_cast<int64_t>(fault.fault));
    errors.append(fault.found);
  }
  return nb::make_tuple(made, to_numpy<bool>(std::move(bad)), to_numpy<int64_t>(std::move(errors), {faults.size(), 5}));
}

// Reads records through the page cache and decodes them, as many at a time as fit into a room: bytes that were just
// read are still in the core's own cache.
class RecordWork : public Runnable {
 public:
  RecordWork(int fd, nb::handle begins_object, nb::handle ends_object, nb::object plan, const nb::list& outs,
             bool verify, nb::handle at_object)
      : file_(fd), plan_(std::move(plan)) {
    const Buffer begins(begins_object, "begins", Element::kInt64, 1, Access::kRead);
    const Buffer ends(ends_object, "ends", Element::kInt64, 1, Access::kRead);
    ends.require_size(0, begins.size(0), "begins");
    const Plan& features = nb::cast<const Plan&>(plan_);
    for (const FeaturePlan& feature : features.features()) {
      if (!feature.has_slots) raise_value_error("all rows must have one size: feature '" + feature.name + "' has not.");
    }
    begins_.assign(begins.data<const int64_t>(), begins.data<const int64_t>() + begins.size(0));
    ends_.assign(ends.data<const int64_t>(), ends.data<const int64_t>() + ends.size(0));
    places_ = std::make_unique<Places>(features, outs, begins, at_object, begins.size(0));
    job_.plan = &features;
    places_->put_into(job_);
    job_.verify = verify;
    columns_ = places_->columns(features, nullptr);
  }

  int64_t count() const { return static_cast<int64_t>(begins_.size()); }

  bool run() override {
    const int64_t started = nanoseconds(CLOCK_MONOTONIC);
    const int64_t on_core = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    const bool is_good = file_.is_open() && read_all();
    gather_ns = nanoseconds(CLOCK_MONOTONIC) - started;
    core_ns = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - on_core;
    return is_good;
  }

 private:
  bool read_all() {
    uint8_t* const room = room_of_thread();
    DecodeJob job = job_;
    job.data = room;
    const int64_t* const at = job.slots;
    std::vector<int64_t> starts;
    std::vector<int64_t> lengths;
    for (int64_t first = 0; first < count(); first += job.count) {
      const int64_t start = begins_[static_cast<size_t>(first)];
      int64_t stop = start;
      starts.clear();
      lengths.clear();
      for (auto record = static_cast<size_t>(first); record < begins_.size(); ++record) {
        const int64_t begin = begins_[record];
        const int64_t end = ends_[record];
        if (begin < stop || end < begin || begin - stop > kNearNbytes || end - start > kRoomNbytes) break;
        starts.push_back(begin - start);
        lengths.push_back(end - begin - kFrameNbytes);
        stop = end;
      }
      job.count = static_cast<int64_t>(starts.size());
      if (job.count == 0 || !file_.read(room, stop - start, start)) return false;
      job.nbytes = stop - start;
      job.starts = starts.data();
      job.lengths = lengths.data();
      if (at != nullptr) {
        job.slots = at + first;
      } else {
        job.first_slot = first;
      }
      if (!decode_records(job, columns_).empty()) return false;
    }
    return true;
  }

  OpenFile file_;
  nb::object plan_;
  std::vector<int64_t> begins_;
  std::vector<int64_t> ends_;
  std::unique_ptr<Places> places_;
  DecodeJob job_;
  std::vector<Column> columns_;
};

Job* record_job(int fd, nb::handle begins, nb::handle ends, nb::object plan, const nb::list& outs, bool verify,
                nb::handle at) {
  auto work = std::make_unique<RecordWork>(fd, begins, ends, std::move(plan), outs, verify, at);
  const int64_t count = work->count();
  return new Job(std::move(work), count);
}

// (type, shape) of bytes that are a TensorProto beyond doubt; else None.
nb::object tensor_of(const Reader& bytes) {
  Tensor tensor;
  Problem problem;
  // Two fields that TensorFlow always writes first. Text and images do not begin like that.
  if (bytes.left() < 4 || bytes.at[0] != 0x08 || bytes.at[2] != 0x12) return nb::none();
  if (!read_tensor(bytes, tensor, problem)) return nb::none();
  nb::list shape;
  for (int i = 0; i < tensor.rank; ++i) shape.append(tensor.shape[i]);
  return nb::make_tuple(static_cast<int>(tensor.type), nb::tuple(shape));
}

nb::list features_of(nb::handle payload_object) {
  const Buffer payload(payload_object, "payload", Element::kUint8, 1, Access::kRead);
  const auto* data = payload.data<const uint8_t>();
  std::vector<FeatureSummary> found;
  Problem problem;
  if (!list_features({data, data + payload.size(0)}, found, problem)) {
    raise_record_error({0, problem.at - data, -1, problem.fault, problem.found});
  }
  nb::list features;
  for (const FeatureSummary& feature : found) {
    const bool is_one = feature.kind == Kind::kBytes && feature.count == 1;
    features.append(nb::make_tuple(nb::str(feature.name.data(), feature.name.size()), static_cast<int>(feature.kind),
                                   feature.count, is_one ? tensor_of(feature.first) : nb::none()));
  }
  return features;
}

}  // namespace

void bind_tfrecord(nb::module_& m) {
  record_error =
      PyErr_NewExceptionWithDoc("penstock._native.RecordError", "A record that is damaged, or not what was asked for.",
                                PyExc_ValueError, nullptr);
  if (record_error == nullptr) throw nb::python_error();
  m.attr("RecordError") = nb::borrow(record_error);
  nb::list names;
  for (int64_t i = 0; i <= static_cast<int64_t>(Fault::kTensorExpands); ++i) {
    names.append(fault_name(static_cast<Fault>(i)));
  }
  m.attr("RECORD_FAULTS") = nb::tuple(names);

  nb::class_<Plan>(m, "ExamplePlan", "Which features of an Example to decode, and to what.")
      .def("__init__", &make_plan, nb::arg("features"))
      .def("__len__", &Plan::size);
  m.def("tfrecord_scan", &scan, nb::arg("buffer"), nb::arg("offset0") = 0, nb::arg("verify_length_crc") = true,
        nb::kw_only(), nb::arg("remaining") = -1, "Find the complete records of a piece of a file.");
  m.def("tfrecord_find", &find, nb::arg("buffer"), nb::arg("start"), "Find the next sound record.");
  m.def("tfrecord_decode", &decode, nb::arg("buffer"), nb::arg("starts"), nb::arg("lengths"), nb::arg("plan"),
        nb::arg("outs"), nb::arg("verify") = true, nb::kw_only(), nb::arg("framed") = true, nb::arg("at") = nb::none(),
        nb::arg("skip") = false, nb::arg("fast") = true, nb::arg("most") = -1, "Decode records into columns.");
  m.def("record_job", &record_job, nb::arg("fd"), nb::arg("begins"), nb::arg("ends"), nb::arg("plan"), nb::arg("outs"),
        nb::arg("verify") = true, nb::kw_only(), nb::arg("at") = nb::none(), nb::rv_policy::take_ownership,
        "Return the job that reads records of a file, and decodes them into columns of fixed rows.");
  bind_example_encode(m);
  m.def("example_features", &features_of, nb::arg("payload"), "List the features of a record.");
}

}  // namespace penstock
