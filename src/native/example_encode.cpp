#include "example_encode.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "example_values.h"

namespace penstock {
namespace {

int64_t varint_nbytes(uint64_t value) {
  int64_t count = 1;
  for (; value >= 0x80; value >>= 7) ++count;
  return count;
}
// A length-delimited field with a tag of one byte.
int64_t field_nbytes(int64_t body) { return 1 + varint_nbytes(static_cast<uint64_t>(body)) + body; }

struct Writer {
  uint8_t* at;

  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value | 0x80);
    *at++ = static_cast<uint8_t>(value);
  }
  void head(uint32_t field, int64_t nbytes) {
    *at++ = static_cast<uint8_t>(make_tag(field, Wire::kBytes));
    varint(static_cast<uint64_t>(nbytes));
  }
  void bytes(const void* from, int64_t nbytes) {
    if (nbytes > 0) std::memcpy(at, from, static_cast<size_t>(nbytes));
    at += nbytes;
  }
};

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7FFF;
  uint32_t bits = 0;
  float value = 0;
  if (magnitude >= 0x7C00) {
    bits = 0x7F800000 | (magnitude & 0x3FF) << 13;
  } else if (magnitude >= 0x400) {
    bits = (magnitude << 13) + 0x38000000;
  } else {
    value = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&bits, &value, 4);
  }
  bits |= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <typename T>
T load(const uint8_t* from, int64_t index) {
  T value;
  std::memcpy(&value, from + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float load_float(Type type, const uint8_t* from, int64_t index) {
  if (type == Type::kFloat64) return static_cast<float>(load<double>(from, index));
  if (type == Type::kFloat16) return half_to_float(load<uint16_t>(from, index));
  const uint32_t bits = static_cast<uint32_t>(load<uint16_t>(from, index)) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

uint64_t load_int(Type type, const uint8_t* from, int64_t index) {
  if (type == Type::kBool) return from[index] != 0;
  return with_int_type(
      type,
      [&](auto tag) -> uint64_t {
        if constexpr (std::is_same_v<decltype(tag), BoolInt>) {
          return 0;
        } else {
          return static_cast<uint64_t>(static_cast<int64_t>(load<decltype(tag)>(from, index)));
        }
      },
      uint64_t{0});
}

// One row of one feature: where its values are, and how many bytes they take.
struct Row {
  const uint8_t* values = nullptr;
  size_t first_item = 0;  // of strings: where they are in items_
  int64_t first_int = 0;  // of ints: where they are in ints_, already packed
  int64_t count = 0;
  const int64_t* shape = nullptr;  // of a tensor
  int64_t packed = 0;              // bytes of the packed values, or of the TensorProto
  int64_t list = 0;                // bytes of the list around it
};

class Encoder {
 public:
  explicit Encoder(const EncodeJob& job)
      : job_(job),
        features_(job.plan->features()),
        rows_(features_.size()),
        order_(features_.size()),
        used_(features_.size(), 0),
        used_strings_(features_.size(), 0),
        shape_(features_.size()) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    // The order of protobuf's deterministic maps.
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return features_[a].name < features_[b].name; });
  }

  void encode(int64_t row, Growable& out) {
    row_ = row;
    items_.clear();
    ints_.truncate(0);
    int64_t features_nbytes = 0;
    for (const size_t i : order_) {
      measure(i);
      features_nbytes += field_nbytes(entry_nbytes(i));
    }
    const int64_t payload = field_nbytes(features_nbytes);
    if (payload > INT32_MAX) refuse(0, "takes " + std::to_string(payload) + " bytes; a message has at most 2**31 - 1");
    const int64_t header = job_.is_framed ? kHeaderNbytes : 0;
    const int64_t total = payload + (job_.is_framed ? kFrameNbytes : 0);
    uint8_t* start = out.reserve(total);
    Writer writer{start + header};
    writer.head(1, features_nbytes);
    for (const size_t i : order_) {
      const std::string& name = features_[i].name;
      writer.head(1, entry_nbytes(i));
      writer.head(1, static_cast<int64_t>(name.size()));
      writer.bytes(name.data(), static_cast<int64_t>(name.size()));
      writer.head(2, field_nbytes(rows_[i].list));
      writer.head(static_cast<uint32_t>(features_[i].kind), rows_[i].list);
      write_list(i, writer);
    }
    if (job_.is_framed) write_frame(start, payload);
    out.commit(total);
  }

 private:
  [[noreturn]] void refuse(size_t feature, const std::string& why) const {
    throw std::invalid_argument("row " + std::to_string(row_) + " of feature '" + features_[feature].name + "' " + why +
                                ".");
  }

  int64_t entry_nbytes(size_t i) const {
    return field_nbytes(static_cast<int64_t>(features_[i].name.size())) + field_nbytes(field_nbytes(rows_[i].list));
  }

  void measure(size_t i) {
    locate(i);
    const FeaturePlan& feature = features_[i];
    Row& row = rows_[i];
    if (feature.form == Form::kTensor) {
      row.packed = measure_tensor(i);
      row.list = field_nbytes(row.packed);
    } else if (feature.kind == Kind::kBytes) {
      row.list = strings_nbytes(i);
    } else {
      row.packed = feature.kind == Kind::kInts ? pack_ints(i) : 4 * row.count;
      row.list = row.count > 0 ? field_nbytes(row.packed) : 0;
    }
  }

  // Finds the values of a row, and checks that they are there.
  void locate(size_t i) {
    const FeaturePlan& feature = features_[i];
    const EncodeColumn& column = job_.columns[i];
    Row& row = rows_[i] = {};
    row.shape = feature.shape.data();
    row.count = feature.count;
    if (feature.has_slots) {
      const int64_t group = job_.group_rows > 0 ? row_ / job_.group_rows : 0;
      const int64_t in_group = job_.group_rows > 0 ? row_ % job_.group_rows : 0;
      row.values = column.rows + group * column.group_stride + in_group * column.slot_stride;
      return;
    }
    const int64_t length = column.row_lengths[row_];
    if (length < 0 || (feature.count >= 0 && length != feature.count)) {
      refuse(i, "must have " + (feature.count < 0 ? "at least 0" : std::to_string(feature.count)) + " values, got " +
                    std::to_string(length));
    }
    row.count = length;
    if (feature.form == Form::kTensor && feature.count < 0) take_shape(i);
    if (feature.width == 0) {
      if (length > column.num_offsets - 1 - used_strings_[i]) refuse(i, "reaches beyond the last of the offsets");
      take_strings(i);
      used_strings_[i] += length;
    } else {
      const int64_t left = (column.values_nbytes - used_[i]) / feature.width;
      if (length > left) refuse(i, "reaches beyond the last of the values");
      row.values = column.values + used_[i];
      used_[i] += length * feature.width;
    }
  }

  void take_shape(size_t i) {
    const std::vector<int64_t>& wanted = features_[i].shape;
    std::vector<int64_t>& shape = shape_[i];
    const int64_t* from = job_.columns[i].shapes + row_ * static_cast<int64_t>(wanted.size());
    shape.assign(from, from + wanted.size());
    int64_t count = 1;
    for (size_t axis = 0; axis < wanted.size(); ++axis) {
      const bool fits = shape[axis] >= 0 && (wanted[axis] < 0 || wanted[axis] == shape[axis]);
      if (!fits || __builtin_mul_overflow(count, shape[axis], &count)) refuse(i, "must have the shape declared");
    }
    if (count != rows_[i].count) refuse(i, "must have as many values as its shape says, " + std::to_string(count));
    rows_[i].shape = shape.data();
  }

  // What belongs to the caller is read once, so that what was measured is what is written: strings by where they are,
  // ints already packed.
  void take_strings(size_t i) {
    const EncodeColumn& column = job_.columns[i];
    rows_[i].first_item = items_.size();
    for (int64_t k = 0; k < rows_[i].count; ++k) {
      const int64_t start = column.offsets[used_strings_[i] + k];
      const int64_t end = column.offsets[used_strings_[i] + k + 1];
      if (start < 0 || end < start || end > column.values_nbytes) {
        refuse(i, "must have offsets that rise from 0 to " + std::to_string(column.values_nbytes) + ", got " +
                      std::to_string(start) + " to " + std::to_string(end));
      }
      items_.push_back({column.values + start, column.values + end});
      if (features_[i].is_utf8 && !is_utf8(items_.back().at, items_.back().end)) refuse(i, "must be UTF-8");
    }
  }

  int64_t pack_ints(size_t i) {
    Row& row = rows_[i];
    const Type type = features_[i].type;
    row.first_int = ints_.size();
    constexpr int64_t kMaxVarint = 10;
    uint8_t* start = ints_.reserve(kMaxVarint * row.count);
    Writer writer{start};
    for (int64_t k = 0; k < row.count; ++k) {
      const uint64_t value = load_int(type, row.values, k);
      if (type == Type::kUint64 && value > INT64_MAX) refuse(i, "must fit into int64, got " + std::to_string(value));
      writer.varint(value);
    }
    ints_.commit(writer.at - start);
    return writer.at - start;
  }

  int64_t strings_nbytes(size_t i) const {
    int64_t nbytes = 0;
    for (int64_t k = 0; k < rows_[i].count; ++k) nbytes += field_nbytes(item(i, k).left());
    return nbytes;
  }

  const Reader& item(size_t i, int64_t k) const { return items_[rows_[i].first_item + static_cast<size_t>(k)]; }

  int64_t shape_nbytes(size_t i) const {
    int64_t nbytes = 0;
    for (size_t axis = 0; axis < features_[i].shape.size(); ++axis) {
      const int64_t size = rows_[i].shape[axis];
      // A size of 0 is the default, and is not written.
      nbytes += field_nbytes(size == 0 ? 0 : 1 + varint_nbytes(static_cast<uint64_t>(size)));
    }
    return nbytes;
  }

  int64_t measure_tensor(size_t i) const {
    const int64_t head = 2 + field_nbytes(shape_nbytes(i));
    if (features_[i].width == 0) return head + strings_nbytes(i);
    const int64_t content = rows_[i].count * features_[i].width;
    return head + (content > 0 ? field_nbytes(content) : 0);
  }

  void write_tensor(size_t i, Writer& writer) const {
    const Row& row = rows_[i];
    *writer.at++ = 0x08;
    *writer.at++ = static_cast<uint8_t>(features_[i].type);
    writer.head(2, shape_nbytes(i));
    for (size_t axis = 0; axis < features_[i].shape.size(); ++axis) {
      const auto size = static_cast<uint64_t>(row.shape[axis]);
      writer.head(2, size == 0 ? 0 : 1 + varint_nbytes(size));
      if (size == 0) continue;
      *writer.at++ = 0x08;
      writer.varint(size);
    }
    if (features_[i].width == 0) return write_strings(i, 8, writer);
    const int64_t content = row.count * features_[i].width;
    if (content == 0) return;
    writer.head(4, content);
    writer.bytes(row.values, content);
  }

  void write_strings(size_t i, uint32_t field, Writer& writer) const {
    for (int64_t k = 0; k < rows_[i].count; ++k) {
      writer.head(field, item(i, k).left());
      writer.bytes(item(i, k).at, item(i, k).left());
    }
  }

  void write_list(size_t i, Writer& writer) const {
    const FeaturePlan& feature = features_[i];
    const Row& row = rows_[i];
    if (feature.form == Form::kTensor) {
      writer.head(1, row.packed);
      return write_tensor(i, writer);
    }
    if (feature.kind == Kind::kBytes) return write_strings(i, 1, writer);
    if (row.count == 0) return;
    writer.head(1, row.packed);
    if (feature.kind == Kind::kInts) {
      writer.bytes(ints_.data() + row.first_int, row.packed);
    } else if (feature.type == Type::kFloat32) {
      writer.bytes(row.values, row.packed);
    } else {
      for (int64_t k = 0; k < row.count; ++k) {
        const float value = load_float(feature.type, row.values, k);
        writer.bytes(&value, 4);
      }
    }
  }

  const EncodeJob& job_;
  const std::vector<FeaturePlan>& features_;
  std::vector<Row> rows_;
  std::vector<size_t> order_;
  std::vector<int64_t> used_;                // bytes of each column's values so far
  std::vector<int64_t> used_strings_;        // likewise strings
  std::vector<std::vector<int64_t>> shape_;  // of each tensor whose shape varies
  std::vector<Reader> items_;
  Growable ints_;
  int64_t row_ = 0;
};

}  // namespace

void encode_records(const EncodeJob& job, Growable& out, Growable& offsets) {
  Encoder encoder(job);
  offsets.append(out.size());
  for (int64_t row = 0; row < job.count; ++row) {
    encoder.encode(row, out);
    offsets.append(out.size());
  }
}

}  // namespace penstock
