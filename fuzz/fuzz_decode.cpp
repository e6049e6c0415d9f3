// Any bytes as records, decoded by plans of all forms: the fast path and the general one must agree, and what was
// decoded must encode to records that decode to the same.
//
// The first byte of the input chooses the plan, the second the number of records; the rest is cut into that many, each
// decoded twice in a row so that the fast path meets what it remembers.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "../src/native/example.h"
#include "../src/native/example_encode.h"

using namespace penstock;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

FeaturePlan feature(const char* name, Form form, Type type, std::vector<int64_t> shape = {}) {
  FeaturePlan made;
  made.name = name;
  made.form = form;
  made.type = type;
  made.shape = std::move(shape);
  made.is_utf8 = name[0] == 'u';
  return made;
}

FeaturePlan with_default(FeaturePlan made, size_t nbytes) {
  made.has_default = true;
  // Zeros: a double has to survive as a float.
  made.default_row.assign(nbytes, 0);
  return made;
}

FeaturePlan with_items(FeaturePlan made, size_t count) {
  made.has_default = true;
  made.default_items.assign(count, "default");
  return made;
}

// fuzz/corpus.py makes records for these, in this order.
const std::vector<std::vector<FeaturePlan>>& plans() {
  static const std::vector<std::vector<FeaturePlan>> all = {
      {feature("x", Form::kFixed, Type::kFloat32, {3}), feature("y", Form::kFixed, Type::kInt64)},
      {feature("x", Form::kTensor, Type::kFloat32, {2, 2}), feature("y", Form::kFixed, Type::kInt8)},
      {feature("x", Form::kVariable, Type::kFloat16), feature("y", Form::kVariable, Type::kUint64),
       feature("s", Form::kVariable, Type::kString)},
      {feature("x", Form::kTensor, Type::kInt32, {-1, -1}), feature("s", Form::kTensor, Type::kString, {-1})},
      {with_default(feature("x", Form::kFixed, Type::kFloat64, {2}), 16),
       with_default(feature("y", Form::kFixed, Type::kBool, {2}), 2),
       with_items(feature("u", Form::kFixed, Type::kString, {2}), 2)},
      {feature("x", Form::kTensor, Type::kBool, {3}), feature("y", Form::kTensor, Type::kBfloat16, {-1}),
       feature("s", Form::kTensor, Type::kString, {2})},
      {feature("x", Form::kTensor, Type::kComplex64, {-1}), feature("y", Form::kTensor, Type::kUint64, {2}),
       feature("u", Form::kVariable, Type::kString)},
      {feature("x", Form::kVariable, Type::kBfloat16), feature("y", Form::kVariable, Type::kInt16),
       feature("", Form::kTensor, Type::kFloat8E5m2, {-1}), feature("z", Form::kFixed, Type::kUint32, {0})},
      {},
  };
  return all;
}

// All that a decoding leaves behind.
struct Result {
  std::vector<RecordFault> faults;
  std::vector<Column> columns;
  std::vector<std::vector<uint8_t>> rows;
};

Result decode(const Plan& plan, const uint8_t* data, int64_t nbytes, const std::vector<int64_t>& starts,
              const std::vector<int64_t>& lengths, bool is_framed, bool has_fast_path) {
  Result result;
  const auto count = static_cast<int64_t>(starts.size());
  result.columns.resize(static_cast<size_t>(plan.size()));
  result.rows.resize(static_cast<size_t>(plan.size()));
  for (size_t i = 0; i < result.columns.size(); ++i) {
    const FeaturePlan& wanted = plan.features()[i];
    if (!wanted.has_slots) continue;
    const int64_t row = wanted.count * wanted.width;
    result.rows[i].resize(static_cast<size_t>(row * count));
    result.columns[i].rows = result.rows[i].data();
    result.columns[i].slot_stride = row;
  }
  DecodeJob job;
  job.plan = &plan;
  job.data = data;
  job.nbytes = nbytes;
  job.starts = starts.data();
  job.lengths = lengths.data();
  job.count = count;
  job.groups = 1;
  job.group_rows = count;
  job.is_framed = is_framed;
  job.skip = true;
  job.has_fast_path = has_fast_path;
  result.faults = decode_records(job, result.columns);
  return result;
}

bool is_same(const Growable& a, const Growable& b) {
  return a.size() == b.size() && (a.size() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.size())) == 0);
}

void require_same(const Result& a, const Result& b) {
  require(a.faults.size() == b.faults.size());
  for (size_t i = 0; i < a.faults.size(); ++i) {
    require(std::memcmp(&a.faults[i], &b.faults[i], sizeof(RecordFault)) == 0);
  }
  for (size_t i = 0; i < a.columns.size(); ++i) {
    require(a.rows[i] == b.rows[i]);
    require(is_same(a.columns[i].values, b.columns[i].values) && is_same(a.columns[i].offsets, b.columns[i].offsets));
    require(is_same(a.columns[i].row_lengths, b.columns[i].row_lengths));
    require(is_same(a.columns[i].shapes, b.columns[i].shapes));
  }
}

const int64_t* ints(const Growable& memory) { return reinterpret_cast<const int64_t*>(memory.data()); }

// Writes what was read without a fault, and reads it again.
void check_encoding(const Plan& plan, const Result& result, int64_t count) {
  EncodeJob job;
  job.plan = &plan;
  job.count = count;
  job.group_rows = count;
  for (size_t i = 0; i < result.columns.size(); ++i) {
    const Column& from = result.columns[i];
    EncodeColumn column;
    column.rows = from.rows;
    column.slot_stride = from.slot_stride;
    column.values = from.values.data();
    column.values_nbytes = from.values.size();
    column.offsets = ints(from.offsets);
    column.num_offsets = from.offsets.size() / 8;
    column.row_lengths = ints(from.row_lengths);
    column.shapes = ints(from.shapes);
    job.columns.push_back(column);
  }
  Growable out;
  Growable offsets;
  encode_records(job, out, offsets);
  std::vector<int64_t> starts;
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    starts.push_back(ints(offsets)[i]);
    lengths.push_back(ints(offsets)[i + 1] - ints(offsets)[i] - kFrameNbytes);
  }
  for (const bool has_fast_path : {true, false}) {
    const Result again = decode(plan, out.data(), out.size(), starts, lengths, true, has_fast_path);
    require(again.faults.empty());
    require_same(result, again);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  if (size < 2) return 0;
  const Plan plan(plans()[input[0] % plans().size()]);
  const int64_t count = input[1] % 4 + 1;
  const auto nbytes = static_cast<int64_t>(size);
  std::vector<int64_t> starts;
  std::vector<int64_t> lengths;
  const int64_t each = (nbytes - 2) / count;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = 2 + i * each;
    const int64_t length = i + 1 < count ? each : nbytes - start;
    starts.insert(starts.end(), {start, start});
    lengths.insert(lengths.end(), {length, length});
  }
  const Result fast = decode(plan, input, nbytes, starts, lengths, false, true);
  require_same(fast, decode(plan, input, nbytes, starts, lengths, false, false));
  // The same bytes as frames: nearly all of them are refused, none may crash.
  decode(plan, input, nbytes, starts, lengths, true, true);
  if (fast.faults.empty()) check_encoding(plan, fast, 2 * count);

  std::vector<FeatureSummary> features;
  Problem problem;
  list_features({input + 2, input + nbytes}, features, problem);
  return 0;
}
