#include "example_rows.h"

#include <algorithm>
#include <cstring>

#include "example_values.h"

namespace penstock {
namespace {

// A tensor may say 'this value, a billion times' in thirty bytes. Where the plan does not fix the shape, no more is
// believed than this many times the bytes of the record.
constexpr int64_t kMaxExpansion = 64;

bool fail(Problem& problem, Fault fault, const uint8_t* at, int64_t found = 0) {
  problem = {fault, at, found};
  return false;
}

template <typename T>
bool copy_ints(Reader& packed, uint8_t* out, int64_t room, int64_t& count, Problem& problem) {
  count = 0;
  while (!packed.done() && count < room) {
    const uint8_t* at = packed.at;
    uint64_t value = 0;
    if (!packed.varint(value)) return fail(problem, Fault::kMalformed, at);
    if (!put_int<T>(out, count, static_cast<int64_t>(value))) {
      return fail(problem, Fault::kOutOfRange, at, static_cast<int64_t>(value));
    }
    ++count;
  }
  return true;
}

bool copy_ints(Type type, Reader& packed, uint8_t* out, int64_t room, int64_t& count, Problem& problem) {
  return with_int_type(
      type, [&](auto tag) { return copy_ints<decltype(tag)>(packed, out, room, count, problem); }, false);
}

// The bits of one that does not fit are what was found.
bool put_all(Type type, const Reader& floats, int64_t count, uint8_t* to, Problem& problem) {
  const int64_t fitting = copy_floats(type, floats.at, count, to);
  if (fitting == count) return true;
  uint32_t bits;
  std::memcpy(&bits, floats.at + 4 * fitting, 4);
  return fail(problem, Fault::kOutOfRange, floats.at + 4 * fitting, bits);
}

bool has_shape(const Tensor& tensor, const std::vector<int64_t>& shape) {
  if (static_cast<size_t>(tensor.rank) != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] >= 0 && shape[i] != tensor.shape[i]) return false;
  }
  return true;
}

}  // namespace

Rows::Rows(const Plan& plan, std::vector<Column>& columns) : features_(plan.features()), columns_(columns) {
  for (int i = 0; i < plan.size(); ++i) {
    if (this->plan(i).has_slots) continue;
    variable_.push_back({i, 0, 0, 0, 0});
    if (this->plan(i).width == 0) column(i).offsets.append(0);
  }
}

void Rows::mark() {
  for (Mark& mark : variable_) {
    const Column& at = column(mark.feature);
    mark = {mark.feature, at.values.size(), at.offsets.size(), at.row_lengths.size(), at.shapes.size()};
  }
}

void Rows::restart() {
  for (const Mark& mark : variable_) {
    Column& at = column(mark.feature);
    at.values.truncate(mark.values);
    at.offsets.truncate(mark.offsets);
    at.row_lengths.truncate(mark.row_lengths);
    at.shapes.truncate(mark.shapes);
  }
}

bool Rows::put_floats(int feature, Reader packed, Problem& problem) {
  const FeaturePlan& wanted = plan(feature);
  const int64_t count = packed.left() / 4;
  if (packed.left() % 4 != 0) return fail(problem, Fault::kMalformed, packed.at);
  if (wanted.has_slots) {
    if (count != wanted.count) return fail(problem, Fault::kWrongSize, packed.at, count);
    return put_all(wanted.type, packed, count, slot(feature), problem);
  }
  Column& to = column(feature);
  if (!put_all(wanted.type, packed, count, to.values.reserve(count * wanted.width), problem)) return false;
  to.values.commit(count * wanted.width);
  to.row_lengths.append(count);
  return true;
}

bool Rows::put_ints(int feature, Reader packed, Problem& problem) {
  const FeaturePlan& wanted = plan(feature);
  int64_t count = 0;
  if (wanted.has_slots) {
    // A label, by far the most frequent.
    if (wanted.count == 1 && wanted.type == Type::kInt64) {
      uint64_t value = 0;
      Reader label = packed;
      if (label.varint(value) && label.done()) return put_int<int64_t>(slot(feature), 0, static_cast<int64_t>(value));
    }
    if (!copy_ints(wanted.type, packed, slot(feature), wanted.count, count, problem)) return false;
    if (count == wanted.count && packed.done()) return true;
    return fail(problem, Fault::kWrongSize, packed.at, count);
  }
  Column& to = column(feature);
  // An int takes at least a byte. Memory for that many is only taken if there are that many.
  int64_t room = packed.left();
  if (!to.values.has_room(room * wanted.width)) {
    room = std::count_if(packed.at, packed.end, [](uint8_t byte) { return byte < 0x80; });
  }
  if (!copy_ints(wanted.type, packed, to.values.reserve(room * wanted.width), room, count, problem)) return false;
  to.values.commit(count * wanted.width);
  to.row_lengths.append(count);
  return true;
}

bool Rows::claim(int feature, int64_t count, const uint8_t* at, Problem& problem) {
  const FeaturePlan& wanted = plan(feature);
  if (wanted.form == Form::kFixed && count != wanted.count) return fail(problem, Fault::kWrongSize, at, count);
  type_ = wanted.type;
  claimed_ = count;
  written_ = 0;
  if (wanted.width > 0) out_ = wanted.has_slots ? slot(feature) : column(feature).values.reserve(count * wanted.width);
  return true;
}

bool Rows::put_part(const Reader& floats, Problem& problem) {
  // Claimed from the same bytes, which may have changed since: never write beyond.
  const int64_t count = std::min(floats.left() / 4, claimed_ - written_);
  if (!put_all(type_, floats, count, out_ + written_ * type_nbytes(type_), problem)) return false;
  written_ += count;
  return true;
}

bool Rows::put_part(uint64_t value, const uint8_t* at, Problem& problem) {
  if (written_ == claimed_) return true;
  const auto number = static_cast<int64_t>(value);
  const bool fits =
      with_int_type(type_, [&](auto tag) { return put_int<decltype(tag)>(out_, written_, number); }, false);
  if (!fits) return fail(problem, Fault::kOutOfRange, at, number);
  ++written_;
  return true;
}

bool Rows::put_string(int feature, const Reader& item, Problem& problem) {
  if (plan(feature).is_utf8 && !is_utf8(item.at, item.end)) return fail(problem, Fault::kNotUtf8, item.at);
  Column& to = column(feature);
  to.values.append(item.at, item.left());
  to.offsets.append(to.values.size());
  ++written_;
  return true;
}

void Rows::finish(int feature) {
  const FeaturePlan& wanted = plan(feature);
  if (wanted.has_slots) return;
  Column& to = column(feature);
  to.values.commit(written_ * wanted.width);
  to.row_lengths.append(written_);
}

bool Rows::put_tensor(int feature, Reader message, Tensor& tensor, Problem& problem) {
  const FeaturePlan& wanted = plan(feature);
  if (!read_tensor(message, tensor, problem)) return false;
  if (tensor.type != wanted.type) {
    return fail(problem, Fault::kTensorType, message.at, static_cast<int64_t>(tensor.stored_type));
  }
  if (!has_shape(tensor, wanted.shape)) return fail(problem, Fault::kTensorShape, message.at, tensor.count);
  if (wanted.has_slots) return copy_tensor(tensor, slot(feature), problem);

  Column& to = column(feature);
  if (wanted.width == 0) {
    if (!put_strings(feature, tensor, problem)) return false;
  } else {
    // What stands in tensor_content is as large as it says; everything else might not be.
    if (tensor.content.done() && tensor.count > record_nbytes_ * kMaxExpansion / wanted.width) {
      return fail(problem, Fault::kTensorExpands, message.at, tensor.count);
    }
    if (!copy_tensor(tensor, to.values.reserve(tensor.count * wanted.width), problem)) return false;
    to.values.commit(tensor.count * wanted.width);
  }
  to.row_lengths.append(tensor.count);
  if (wanted.count < 0) to.shapes.append(reinterpret_cast<const uint8_t*>(tensor.shape), 8 * tensor.rank);
  return true;
}

bool Rows::put_strings(int feature, const Tensor& tensor, Problem& problem) {
  TensorStrings strings(tensor);
  if (!strings.start(tensor, problem)) return false;
  // Even of a fixed number: it is the length of the string that is repeated.
  int64_t room = record_nbytes_ * kMaxExpansion;
  for (int64_t i = 0; i < tensor.count; ++i) {
    const Reader item = strings.next();
    room -= 8 + item.left();
    if (room < 0) return fail(problem, Fault::kTensorExpands, tensor.message.at, tensor.count);
    if (!put_string(feature, item, problem)) return false;
  }
  return true;
}

bool Rows::put_missing(int feature, Problem& problem) {
  const FeaturePlan& wanted = plan(feature);
  if (wanted.form == Form::kVariable) {
    column(feature).row_lengths.append(0);
    return true;
  }
  if (!wanted.has_default) return fail(problem, Fault::kMissing, nullptr);
  if (wanted.has_slots) {
    if (!wanted.default_row.empty()) std::memcpy(slot(feature), wanted.default_row.data(), wanted.default_row.size());
    return true;
  }
  for (const std::string& item : wanted.default_items) {
    const auto* at = reinterpret_cast<const uint8_t*>(item.data());
    column(feature).values.append(at, static_cast<int64_t>(item.size()));
    column(feature).offsets.append(column(feature).values.size());
  }
  column(feature).row_lengths.append(wanted.count);
  return true;
}

void Rows::put_nothing(int feature) {
  const FeaturePlan& wanted = plan(feature);
  if (wanted.has_slots) {
    const auto nbytes = static_cast<size_t>(wanted.count * wanted.width);
    if (nbytes > 0) std::memset(slot(feature), 0, nbytes);
    return;
  }
  column(feature).row_lengths.append(0);
  if (wanted.form == Form::kTensor && wanted.count < 0) {
    for (size_t i = 0; i < wanted.shape.size(); ++i) column(feature).shapes.append(0);
  }
}

}  // namespace penstock
