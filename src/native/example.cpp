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
        kind, list, problem, [&](Reader floats) { return rows.put_part(floats, problem); },
        [&](uint64_t value, const uint8_t* at) { return rows.put_part(value, at, problem); },
        [&](Reader item) { return rows.put_string(feature, item, problem); });
  });
  if (is_done) rows.finish(feature);
  return is_done;
}

[[noreturn]] void refuse(const FeaturePlan& feature, const std::string& rule) {
  throw std::invalid_argument("feature '" + feature.name + "' " + rule);
}

void check_type(const FeaturePlan& feature) {
  const bool is_list = feature.form != Form::kTensor;
  const bool is_known = type_nbytes(feature.type) > 0 || feature.type == Type::kString;
  if (is_known && (!is_list || feature.kind != Kind::kInts || is_int_type(feature.type))) return;
  refuse(feature, std::string("must have a type that a ") + (is_list ? "list" : "tensor") + " can hold, got DataType " +
                      std::to_string(static_cast<int>(feature.type)) + ".");
}

void check_default(const FeaturePlan& feature, int64_t nbytes) {
  const bool is_text = feature.width == 0;
  const auto have = static_cast<int64_t>(is_text ? feature.default_items.size() : feature.default_row.size());
  const int64_t want = is_text ? feature.count : nbytes;
  if (feature.form != Form::kFixed) refuse(feature, "must be fixed to have a default.");
  if (have != want) {
    refuse(feature, "must have a default of " + std::to_string(want) + (is_text ? " strings" : " bytes") + ", got " +
                        std::to_string(have) + ".");
  }
}

// Sets what follows from the rest, and checks that it makes sense.
void complete(FeaturePlan& feature) {
  feature.width = type_nbytes(feature.type);
  feature.kind = feature.form == Form::kTensor || feature.width == 0 ? Kind::kBytes
                 : is_float_type(feature.type)                       ? Kind::kFloats
                                                                     : Kind::kInts;
  check_type(feature);
  if (feature.shape.size() > kMaxRank) refuse(feature, "must have at most 254 dimensions.");
  feature.count = feature.form == Form::kVariable ? -1 : 1;
  for (const int64_t size : feature.shape) {
    if (size < -1 || (size == -1 && feature.form != Form::kTensor)) refuse(feature, "must have sizes of at least 0.");
    if (size == -1) feature.count = -1;
  }
  int64_t nbytes = 0;
  for (const int64_t size : feature.shape) {
    if (feature.count < 0) break;
    if (__builtin_mul_overflow(feature.count, size, &feature.count)) refuse(feature, "must have fewer values.");
  }
  if (__builtin_mul_overflow(feature.count, feature.width, &nbytes)) refuse(feature, "must have fewer bytes.");
  feature.has_slots = feature.count >= 0 && feature.width > 0;
  if (feature.has_default) check_default(feature, nbytes);
}

}  // namespace

Plan::Plan(std::vector<FeaturePlan> features) : features_(std::move(features)) {
  for (size_t i = 0; i < features_.size(); ++i) {
    complete(features_[i]);
    if (!numbers_.emplace(features_[i].name, static_cast<int>(i)).second) {
      refuse(features_[i], "must be there once, got it twice.");
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
