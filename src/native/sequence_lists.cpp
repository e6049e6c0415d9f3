// The feature lists of tf.train.SequenceExamples, as tf.train.Examples: all values of a list are one feature, and how
// many each of its steps has is told beside it. The decoder of Examples then makes columns of them.
//
// In a SequenceExample the context lies where an Example has its features, so that it needs no help from here. A list
// is a map entry whose value holds a Feature for each step. An entry of an Example whose value is there several times
// means the same values, since protobuf merges what is repeated: so each step is copied as it is, under another tag.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "bind_example.h"
#include "wire.h"

namespace penstock {
namespace {

constexpr int64_t kHeaderNbytes = 12;  // Of a framed record: its length, and the checksum of that.

struct Step {
  Reader feature;
  int64_t count = 0;
};

// What a record has of one list that is wanted.
struct List {
  bool is_there = false;
  std::vector<Reader> values;  // The messages that the value of its map entry is merged from.
  std::vector<Step> steps;
};

bool count_values(uint32_t kind, Reader list, int64_t& count) {
  while (!list.done()) {
    Field field;
    if (!field.read(list)) return false;
    if (field.tag >> 3 != 1) {
      if (!field.skip(list)) return false;
      continue;
    }
    const auto wire = static_cast<Wire>(field.tag & 7);
    if (kind == 1 && wire == Wire::kBytes) {
      ++count;
    } else if (kind == 2 && wire == Wire::kBytes) {
      if (field.body.left() % 4 != 0) return false;
      count += field.body.left() / 4;
    } else if (kind == 3 && wire == Wire::kBytes) {
      uint64_t ignored = 0;
      for (; !field.body.done(); ++count) {
        if (!field.body.varint(ignored)) return false;
      }
    } else {
      const bool is_value = (kind == 2 && wire == Wire::kFixed32) || (kind == 3 && wire == Wire::kVarint);
      if (!field.skip(list)) return false;
      count += is_value ? 1 : 0;
    }
  }
  return true;
}

// Reads one step. `kind` is that of the steps before it, 0 if none of them had values: all must have the same.
bool read_step(Reader feature, uint32_t& kind, Step& step) {
  step.feature = feature;
  while (!feature.done()) {
    Field field;
    if (!field.read(feature)) return false;
    const uint32_t number = field.tag >> 3;
    if (number < 1 || number > 3 || static_cast<Wire>(field.tag & 7) != Wire::kBytes) {
      if (!field.skip(feature)) return false;
      continue;
    }
    if (kind != 0 && kind != number) return false;
    kind = number;
    if (!count_values(number, field.body, step.count)) return false;
  }
  return true;
}

bool read_steps(List& list) {
  uint32_t kind = 0;
  for (Reader value : list.values) {
    while (!value.done()) {
      Field field;
      if (!field.read(value)) return false;
      if (!field.is(1, Wire::kBytes)) {
        if (!field.skip(value)) return false;
        continue;
      }
      Step step;
      if (!read_step(field.body, kind, step)) return false;
      list.steps.push_back(step);
    }
  }
  return true;
}

class Lists {
 public:
  explicit Lists(const std::vector<std::string>& names) : names_(names), found_(names.size()) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!numbers_.emplace(names_[i], i).second)
        raise_value_error("names must differ, got '" + names_[i] + "' twice.");
    }
  }

  // Finds the wanted lists of a record; false if it is no SequenceExample.
  bool read(Reader record) {
    for (List& list : found_) list = List{};
    while (!record.done()) {
      Field field;
      if (!field.read(record)) return false;
      if (!field.is(2, Wire::kBytes)) {
        if (!field.skip(record)) return false;
      } else if (!read_map(field.body)) {
        return false;
      }
    }
    for (List& list : found_) {
      if (!read_steps(list)) return false;
    }
    return true;
  }

  const std::vector<List>& found() const { return found_; }

  // Appends the lists as an Example.
  void write(Growable& out) const {
    int64_t nbytes = 0;
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < found_.size(); ++i) {
      int64_t size = 1 + varint_nbytes(length_of(names_[i])) + length_of(names_[i]);
      for (const Step& step : found_[i].steps) size += 1 + varint_nbytes(step.feature.left()) + step.feature.left();
      sizes.push_back(size);
      if (found_[i].is_there) nbytes += 1 + varint_nbytes(size) + size;
    }
    put(out, 0x0A, nbytes);
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i].is_there) continue;
      put(out, 0x0A, sizes[i]);
      put(out, 0x0A, length_of(names_[i]));
      out.append(reinterpret_cast<const uint8_t*>(names_[i].data()), length_of(names_[i]));
      for (const Step& step : found_[i].steps) {
        put(out, 0x12, step.feature.left());
        out.append(step.feature.at, step.feature.left());
      }
    }
  }

 private:
  static int64_t length_of(const std::string& name) { return static_cast<int64_t>(name.size()); }

  static int64_t varint_nbytes(int64_t value) {
    int64_t count = 1;
    for (; value >= 0x80; value >>= 7) ++count;
    return count;
  }

  static void put(Growable& out, uint8_t tag, int64_t length) {
    uint8_t* at = out.reserve(11);
    int64_t used = 0;
    at[used++] = tag;
    for (; length >= 0x80; length >>= 7) at[used++] = static_cast<uint8_t>(length | 0x80);
    at[used++] = static_cast<uint8_t>(length);
    out.commit(used);
  }

  bool read_map(Reader map) {
    while (!map.done()) {
      Field field;
      if (!field.read(map)) return false;
      if (!field.is(1, Wire::kBytes)) {
        if (!field.skip(map)) return false;
      } else if (!read_entry(field.body)) {
        return false;
      }
    }
    return true;
  }

  // The last of equal keys counts; values of one entry are merged.
  bool read_entry(Reader entry) {
    Reader key;
    std::vector<Reader> values;
    while (!entry.done()) {
      Field field;
      if (!field.read(entry)) return false;
      if (field.is(1, Wire::kBytes)) {
        key = field.body;
      } else if (field.is(2, Wire::kBytes)) {
        values.push_back(field.body);
      } else if (!field.skip(entry)) {
        return false;
      }
    }
    const auto at = numbers_.find(std::string(key.at, key.end));
    if (at == numbers_.end()) return true;
    found_[at->second].is_there = true;
    found_[at->second].values = std::move(values);
    return true;
  }

  const std::vector<std::string>& names_;
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<List> found_;
};

nb::tuple sequence_lists(nb::handle buffer_object, nb::handle starts_object, nb::handle lengths_object,
                         const std::vector<std::string>& names, bool framed) {
  const Buffer buffer(buffer_object, "buffer", Element::kUint8, 1, Access::kRead);
  const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kRead);
  const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
  lengths.require_size(0, starts.size(0), "starts");
  const int64_t head = framed ? kHeaderNbytes : 0;
  const auto* data = buffer.data<const uint8_t>();
  const auto* start_of = starts.data<const int64_t>();
  const auto* length_of = lengths.data<const int64_t>();
  for (int64_t j = 0; j < starts.size(0); ++j) {
    const int64_t room = buffer.size(0) - head;
    if (start_of[j] < 0 || length_of[j] < 0 || start_of[j] > room || length_of[j] > room - start_of[j]) {
      raise_index_error("record " + std::to_string(j) + " reaches outside the buffer.");
    }
  }
  Lists lists(names);
  Growable flat, out_starts, out_lengths, steps, bad;
  std::vector<Growable> counts(names.size());
  {
    nb::gil_scoped_release release;
    for (int64_t j = 0; j < starts.size(0); ++j) {
      const uint8_t* at = data + start_of[j] + head;
      const bool is_good = lists.read({at, at + length_of[j]});
      const int64_t before = flat.size();
      if (is_good) {
        lists.write(flat);
      } else {
        bad.append(j);
      }
      out_starts.append(before);
      out_lengths.append(flat.size() - before);
      for (size_t i = 0; i < names.size(); ++i) {
        const List& list = lists.found()[i];
        steps.append(!is_good ? 0 : list.is_there ? static_cast<int64_t>(list.steps.size()) : -1);
        if (!is_good) continue;
        for (const Step& step : list.steps) counts[i].append(step.count);
      }
    }
  }
  nb::list made;
  for (Growable& one : counts) made.append(to_numpy<int64_t>(std::move(one)));
  const auto rows = static_cast<size_t>(starts.size(0));
  return nb::make_tuple(to_numpy<uint8_t>(std::move(flat)), to_numpy<int64_t>(std::move(out_starts)),
                        to_numpy<int64_t>(std::move(out_lengths)),
                        to_numpy<int64_t>(std::move(steps), {rows, names.size()}), made,
                        to_numpy<int64_t>(std::move(bad)));
}

}  // namespace

void bind_sequence_lists(nb::module_& m) {
  m.def("sequence_lists", &sequence_lists, nb::arg("buffer"), nb::arg("starts"), nb::arg("lengths"), nb::arg("names"),
        nb::kw_only(), nb::arg("framed") = true, "Make Examples of the feature lists of SequenceExamples.");
}

}  // namespace penstock
