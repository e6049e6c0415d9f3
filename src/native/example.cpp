#include "example.h"

#include <stdexcept>

#include "example_general.h"
#include "example_values.h"

namespace penstock {
namespace {

bool fail(Problem& problem, const Reader& reader) {
  problem = {Fault::kMalformed, reader.at, 0};
  return false;
}

// Finds key and entry of each feature, in the order of the record: visit(key, entry).
template <typename Visit>
bool walk_features(Reader payload, Problem& problem, Visit visit) {
  while (!payload.done()) {
    Field features;
    if (!features.read(payload)) return fail(problem, payload);
    if (!features.is(1, Wire::kBytes)) {
      if (!features.skip(payload)) return fail(problem, payload);
      continue;
    }
    while (!features.body.done()) {
      Field entry;
      if (!entry.read(features.body)) return fail(problem, features.body);
      if (!entry.is(1, Wire::kBytes)) {
        if (!entry.skip(features.body)) return fail(problem, features.body);
        continue;
      }
      Reader key;  // an entry without one has the empty key
      for (Reader rest = entry.body; !rest.done();) {
        Field field;
        if (!field.read(rest) || !field.skip(rest)) return fail(problem, rest);
        if (field.is(1, Wire::kBytes)) key = field.body;
      }
      if (!visit(key, entry.body)) return false;
    }
  }
  return true;
}

// Finds the lists of one entry: visit(kind, list). Several values of an entry are merged, as protobuf does.
template <typename Visit>
bool walk_lists(Reader entry, Problem& problem, Visit visit) {
  while (!entry.done()) {
    Field value;
    if (!value.read(entry)) return fail(problem, entry);
    if (!value.is(2, Wire::kBytes)) {
      if (!value.skip(entry)) return fail(problem, entry);
      continue;
    }
    while (!value.body.done()) {
      Field list;
      if (!list.read(value.body)) return fail(problem, value.body);
      const uint32_t number = list.tag >> 3;
      if (number <= 3 && list.is(number, Wire::kBytes)) {
        if (!visit(static_cast<Kind>(number), list.body)) return false;
      } else if (!list.skip(value.body)) {
        return fail(problem, value.body);
      }
    }
  }
  return true;
}

// Finds the values of one list, packed or not: floats(bytes), ints(value, at), strings(bytes).
template <typename Floats, typename Ints, typename Strings>
bool walk_values(Kind kind, Reader list, Problem& problem, Floats floats, Ints ints, Strings strings) {
  while (!list.done()) {
    Field field;
    if (!field.read(list)) return fail(problem, list);
    const uint8_t* at = list.at;
    if (kind == Kind::kBytes && field.is(1, Wire::kBytes)) {
      if (!strings(field.body)) return false;
    } else if (kind == Kind::kFloats && field.is(1, Wire::kBytes)) {
      if (field.body.left() % 4 != 0) return fail(problem, field.body);
      if (!floats(field.body)) return false;
    } else if (kind == Kind::kInts && field.is(1, Wire::kBytes)) {
      while (!field.body.done()) {
        uint64_t value = 0;
        at = field.body.at;
        if (!field.body.varint(value)) return fail(problem, field.body);
        if (!ints(value, at)) return false;
      }
    } else if (kind == Kind::kInts && field.is(1, Wire::kVarint)) {
      uint64_t value = 0;
      if (!list.varint(value)) return fail(problem, list);
      if (!ints(value, at)) return false;
    } else {
      if (!field.skip(list)) return fail(problem, list);
      if (kind == Kind::kFloats && field.is(1, Wire::kFixed32) && !floats(Reader{at, list.at})) return false;
    }
  }
  return true;
}

// What one entry holds once merged: the last kind, from its last unbroken run of lists.
struct Summary {
  Kind kind = Kind::kNone;
  int64_t count = 0;
  const uint8_t* run = nullptr;  // the first list of the run; lists before it do not count
  Reader first;                  // string
};

bool summarize(Reader entry, Summary& summary, Problem& problem) {
  return walk_lists(entry, problem, [&](Kind kind, Reader list) {
    if (kind != summary.kind) summary = {kind, 0, list.at, {}};
    return walk_values(
        kind, list, problem, [&](Reader floats) { return (summary.count += floats.left() / 4, true); },
        [&](uint64_t, const uint8_t*) { return (++summary.count, true); },
        [&](Reader item) {
          if (summary.count++ == 0) summary.first = item;
          return true;
        });
  });
}

bool decode_entry(Rows& rows, const Plan& plan, int feature, Reader entry, Problem& problem) {
  const FeaturePlan& wanted = plan.features()[static_cast<size_t>(feature)];
  Summary summary;
  if (!summarize(entry, summary, problem)) return false;
  // A Feature that is there but has no list is as good as missing.
  if (summary.kind == Kind::kNone) return rows.put_missing(feature, problem);
  if (summary.kind != wanted.kind) {
    problem = {Fault::kWrongKind, entry.at, static_cast<int64_t>(summary.kind)};
    return false;
  }
  if (wanted.form == Form::kTensor) {
    if (summary.count != 1) {
      problem = {Fault::kWrongSize, entry.at, summary.count};
      return false;
    }
    Tensor tensor;
    return rows.put_tensor(feature, summary.first, tensor, problem);
  }
  if (!rows.claim(feature, summary.count, entry.at, problem)) return false;
  const bool is_done = walk_lists(entry, problem, [&](Kind kind, Reader list) {
    if (kind != summary.kind || list.at < summary.run) return true;
    return walk_values(
        kind, list, problem, [&](Reader floats) { return rows.put_part(floats); },
        [&](uint64_t value, const uint8_t* at) { return rows.put_part(value, at, problem); },
        [&](Reader item) { return rows.put_string(feature, item, problem); });
  });
  if (is_done) rows.finish(feature);
  return is_done;
}

void complete(FeaturePlan& feature) {
  const bool is_list = feature.form != Form::kTensor;
  feature.width = type_nbytes(feature.type);
  if (feature.width == 0 && feature.type != Type::kString) throw std::invalid_argument("a type that is not supported");
  feature.kind = !is_list || feature.width == 0 ? Kind::kBytes
                 : is_float_type(feature.type)  ? Kind::kFloats
                                                : Kind::kInts;
  if (feature.kind == Kind::kInts && !is_int_type(feature.type)) {
    throw std::invalid_argument("a type that a list of an Example cannot hold");
  }
  if (feature.shape.size() > kMaxRank) throw std::invalid_argument("a shape of more than 254 dimensions");
  feature.count = feature.form == Form::kVariable ? -1 : 1;
  for (const int64_t size : feature.shape) {
    if (size < -1 || (size == -1 && is_list)) throw std::invalid_argument("a dimension that is negative");
    if (size == -1) feature.count = -1;
  }
  for (const int64_t size : feature.shape) {
    if (feature.count >= 0 && __builtin_mul_overflow(feature.count, size, &feature.count)) {
      throw std::invalid_argument("a shape of more than 2**63 values");
    }
  }
  int64_t nbytes = 0;
  if (__builtin_mul_overflow(feature.count, feature.width, &nbytes)) {
    throw std::invalid_argument("a shape of more than 2**63 bytes");
  }
  feature.has_slots = feature.count >= 0 && feature.width > 0;
  if (!feature.has_default) return;
  const auto have = static_cast<int64_t>(feature.width > 0 ? feature.default_row.size() : feature.default_items.size());
  if (feature.form != Form::kFixed || have != (feature.width > 0 ? nbytes : feature.count)) {
    throw std::invalid_argument("a default of another size than its feature");
  }
}

}  // namespace

Plan::Plan(std::vector<FeaturePlan> features) : features_(std::move(features)) {
  for (size_t i = 0; i < features_.size(); ++i) {
    complete(features_[i]);
    if (!numbers_.emplace(features_[i].name, static_cast<int>(i)).second) {
      throw std::invalid_argument("two features of one name");
    }
  }
}

int Plan::find(const Reader& name) const {
  const auto found = numbers_.find({reinterpret_cast<const char*>(name.at), static_cast<size_t>(name.left())});
  return found == numbers_.end() ? -1 : found->second;
}

bool decode_general(const Plan& plan, Reader payload, std::vector<Reader>& entries, Rows& rows, int& feature,
                    Problem& problem) {
  feature = -1;
  entries.assign(static_cast<size_t>(plan.size()), {});
  const bool is_sound = walk_features(payload, problem, [&](Reader key, Reader entry) {
    const int number = plan.find(key);
    if (number >= 0) entries[static_cast<size_t>(number)] = entry;
    return true;
  });
  if (!is_sound) return false;
  for (feature = 0; feature < plan.size(); ++feature) {
    const Reader entry = entries[static_cast<size_t>(feature)];
    if (entry.at == nullptr ? !rows.put_missing(feature, problem)
                            : !decode_entry(rows, plan, feature, entry, problem)) {
      if (problem.at == nullptr) problem.at = payload.at;
      return false;
    }
  }
  return true;
}

bool list_features(Reader payload, std::vector<FeatureSummary>& features, Problem& problem) {
  std::unordered_map<std::string_view, size_t> numbers;
  return walk_features(payload, problem, [&](Reader key, Reader entry) {
    if (!is_utf8(key.at, key.end)) {
      problem = {Fault::kNotUtf8, key.at, 0};
      return false;
    }
    Summary summary;
    if (!summarize(entry, summary, problem)) return false;
    const std::string_view name(reinterpret_cast<const char*>(key.at), static_cast<size_t>(key.left()));
    const FeatureSummary found{name, summary.kind, summary.count, summary.first};
    const auto [at, is_new] = numbers.emplace(name, features.size());
    if (is_new) {
      features.push_back(found);
    } else {
      features[at->second] = found;
    }
    return true;
  });
}

}  // namespace penstock
