#include "tensor_proto.h"

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// The fields of TensorProto.
constexpr uint32_t kDtype = 1;
constexpr uint32_t kShape = 2;
constexpr uint32_t kContent = 4;
constexpr uint32_t kFloatVal = 5;
constexpr uint32_t kDoubleVal = 6;
constexpr uint32_t kIntVal = 7;
constexpr uint32_t kStringVal = 8;
constexpr uint32_t kScomplexVal = 9;
constexpr uint32_t kInt64Val = 10;
constexpr uint32_t kBoolVal = 11;
constexpr uint32_t kDcomplexVal = 12;
constexpr uint32_t kHalfVal = 13;
constexpr uint32_t kUint32Val = 16;
constexpr uint32_t kUint64Val = 17;
constexpr uint32_t kFloat8Val = 18;

bool is_float8(Type type) { return type >= Type::kFloat8E5m2 && type <= Type::kFloat8E5m2fnuz; }

// Which field holds the values of a type when tensor_content does not.
uint32_t value_field(Type type) {
  switch (type) {
    case Type::kFloat32:
      return kFloatVal;
    case Type::kFloat64:
      return kDoubleVal;
    case Type::kInt32:
    case Type::kUint8:
    case Type::kInt16:
    case Type::kInt8:
    case Type::kUint16:
      return kIntVal;
    case Type::kString:
      return kStringVal;
    case Type::kComplex64:
      return kScomplexVal;
    case Type::kInt64:
      return kInt64Val;
    case Type::kBool:
      return kBoolVal;
    case Type::kComplex128:
      return kDcomplexVal;
    case Type::kBfloat16:
    case Type::kFloat16:
      return kHalfVal;
    case Type::kUint32:
      return kUint32Val;
    case Type::kUint64:
      return kUint64Val;
    default:
      return kFloat8Val;
  }
}

// How a packed field is cut into values. kBytes: it is not packed, whatever it holds.
Wire packed_as(uint32_t field) {
  switch (field) {
    case kFloatVal:
    case kScomplexVal:
      return Wire::kFixed32;
    case kDoubleVal:
    case kDcomplexVal:
      return Wire::kFixed64;
    case kIntVal:
    case kInt64Val:
    case kBoolVal:
    case kHalfVal:
    case kUint32Val:
    case kUint64Val:
      return Wire::kVarint;
    default:
      return Wire::kBytes;
  }
}

bool is_sound_packed(Reader& body, Wire wire) {
  if (wire == Wire::kFixed32) return body.left() % 4 == 0;
  if (wire == Wire::kFixed64) return body.left() % 8 == 0;
  uint64_t ignored = 0;
  while (wire == Wire::kVarint && !body.done()) {
    if (!body.varint(ignored)) return false;
  }
  return true;
}

bool fail(Problem& problem, Fault fault, const uint8_t* at, int64_t found = 0) {
  problem = {fault, at, found};
  return false;
}
bool fail_at(Problem& problem, const Reader& reader) { return fail(problem, Fault::kBadTensor, reader.at); }

bool read_dimension(Reader dimension, int64_t& size, Problem& problem) {
  size = 0;
  while (!dimension.done()) {
    Field field;
    if (!field.read(dimension)) return fail_at(problem, dimension);
    if (field.is(1, Wire::kVarint)) {
      uint64_t value = 0;
      if (!dimension.varint(value)) return fail_at(problem, dimension);
      size = static_cast<int64_t>(value);
    } else if (field.is(2, Wire::kBytes) && !is_utf8(field.body.at, field.body.end)) {
      return fail_at(problem, field.body);
    } else if (!field.skip(dimension)) {
      return fail_at(problem, dimension);
    }
  }
  return true;
}

// A shape that comes in several parts is all of them, one after the other, as in any protobuf.
bool read_shape(Reader shape, Tensor& tensor, Problem& problem) {
  while (!shape.done()) {
    const uint8_t* start = shape.at;
    Field field;
    if (!field.read(shape)) return fail_at(problem, shape);
    if (!field.is(2, Wire::kBytes)) {
      if (!field.skip(shape)) return fail_at(problem, shape);
      continue;
    }
    int64_t size = 0;
    if (!read_dimension(field.body, size, problem)) return false;
    if (size < 0 || tensor.rank == kMaxRank) return fail(problem, Fault::kBadTensor, start, size);
    tensor.shape[tensor.rank++] = size;
  }
  return true;
}

bool count_values(Tensor& tensor) {
  tensor.count = 1;
  const int64_t width = std::max<int64_t>(type_nbytes(tensor.type), 1);
  // In TensorFlow too, the product must fit even if a later dimension is 0.
  for (int i = 0; i < tensor.rank; ++i) {
    if (__builtin_mul_overflow(tensor.count, tensor.shape[i], &tensor.count)) return false;
  }
  int64_t nbytes = 0;
  return !__builtin_mul_overflow(tensor.count, width, &nbytes);
}

template <typename T>
void put(uint8_t* out, int64_t index, T value) {
  std::memcpy(out + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

void put_varint(Type type, uint8_t* out, int64_t index, uint64_t value) {
  if (type == Type::kBool) return put(out, index, static_cast<uint8_t>(value != 0));
  // A value too large for its type loses its upper bits, as in TensorFlow.
  switch (type_nbytes(type)) {
    case 1:
      return put(out, index, static_cast<uint8_t>(value));
    case 2:
      return put(out, index, static_cast<uint16_t>(value));
    case 4:
      return put(out, index, static_cast<uint32_t>(value));
    default:
      return put(out, index, value);
  }
}

// Copies the values of one field, which may come in any number of parts, packed or not, up to `room` bytes. A part of
// a complex number that lacks the other is left out by the caller, which counts whole values only.
class Values {
 public:
  Values(Type type, uint8_t* out, int64_t count)
      : type_(type), out_(out), width_(type_nbytes(type)), room_(count * width_) {}

  void copy(Reader body) {
    const int64_t nbytes = std::min(body.left(), room_ - filled_);
    if (nbytes > 0) std::memcpy(out_ + filled_, body.at, static_cast<size_t>(nbytes));
    filled_ += std::max<int64_t>(nbytes, 0);
  }
  void varints(Reader body) {
    uint64_t value = 0;
    while (filled_ < room_ && !body.done() && body.varint(value)) varint(value);
  }
  void varint(uint64_t value) {
    if (filled_ >= room_) return;
    put_varint(type_, out_, filled_ / width_, value);
    filled_ += width_;
  }

  void restart() { filled_ = 0; }

  // The rest of the room: the last value again and again, or zeros.
  void fill() {
    int64_t have = filled_ / width_ * width_;
    if (have >= room_) return;
    if (have == 0) {
      std::memset(out_, 0, static_cast<size_t>(room_));
      return;
    }
    const uint8_t* last = out_ + have - width_;
    for (; have < room_; have += width_) std::memcpy(out_ + have, last, static_cast<size_t>(width_));
  }

 private:
  Type type_;
  uint8_t* out_;
  int64_t width_;
  int64_t room_;
  int64_t filled_ = 0;
};

}  // namespace

int64_t type_nbytes(Type type) {
  switch (type) {
    case Type::kUint8:
    case Type::kInt8:
    case Type::kBool:
      return 1;
    case Type::kInt16:
    case Type::kUint16:
    case Type::kFloat16:
    case Type::kBfloat16:
      return 2;
    case Type::kFloat32:
    case Type::kInt32:
    case Type::kUint32:
      return 4;
    case Type::kFloat64:
    case Type::kInt64:
    case Type::kUint64:
    case Type::kComplex64:
      return 8;
    case Type::kComplex128:
      return 16;
    default:
      return is_float8(type) ? 1 : 0;
  }
}

bool type_of_stored(uint64_t stored, Type& type) {
  switch (stored) {
    case 11:  // qint8
      type = Type::kInt8;
      return true;
    case 12:  // quint8
      type = Type::kUint8;
      return true;
    case 13:  // qint32
      type = Type::kInt32;
      return true;
    case 15:  // qint16
      type = Type::kInt16;
      return true;
    case 16:  // quint16
      type = Type::kUint16;
      return true;
    default:
      if (stored > INT32_MAX) return false;
      type = static_cast<Type>(stored);
      return type == Type::kString || type_nbytes(type) > 0;
  }
}

bool read_tensor(Reader message, Tensor& tensor, Problem& problem) {
  tensor.stored_type = 0;
  tensor.rank = 0;
  tensor.content = {};
  tensor.message = message;
  const uint8_t* start = message.at;
  while (!message.done()) {
    Field field;
    if (!field.read(message)) return fail_at(problem, message);
    if (field.is(kDtype, Wire::kVarint)) {
      // An enum: its low 32 bits count.
      uint64_t value = 0;
      if (!message.varint(value)) return fail_at(problem, message);
      tensor.stored_type = value & UINT32_MAX;
    } else if (field.is(kShape, Wire::kBytes)) {
      if (!read_shape(field.body, tensor, problem)) return false;
    } else if (field.is(kContent, Wire::kBytes)) {
      tensor.content = field.body;
    } else if ((field.tag & 7) == static_cast<uint32_t>(Wire::kBytes)) {
      if (!is_sound_packed(field.body, packed_as(field.tag >> 3))) return fail_at(problem, field.body);
    } else if (!field.skip(message)) {
      return fail_at(problem, message);
    }
  }
  if (!type_of_stored(tensor.stored_type, tensor.type)) {
    return fail(problem, Fault::kTensorType, start, static_cast<int64_t>(tensor.stored_type));
  }
  if (!count_values(tensor)) return fail(problem, Fault::kBadTensor, start);
  const int64_t width = type_nbytes(tensor.type);
  const bool is_sized = tensor.type == Type::kString || tensor.content.left() == tensor.count * width;
  if (tensor.count > 0 && tensor.content.left() > 0 && !is_sized) {
    return fail(problem, Fault::kBadTensor, tensor.content.at, tensor.content.left());
  }
  return true;
}

bool copy_tensor(const Tensor& tensor, uint8_t* out, Problem& problem) {
  if (tensor.count == 0) return true;
  if (!tensor.content.done()) {
    // A bool that is neither 0 nor 1 has no meaning, in TensorFlow either.
    if (tensor.type == Type::kBool) {
      uint8_t all = 0;
      for (const uint8_t* p = tensor.content.at; p < tensor.content.end; ++p) all |= *p;
      if (all > 1) return fail_at(problem, tensor.content);
    }
    std::memcpy(out, tensor.content.at, static_cast<size_t>(tensor.count * type_nbytes(tensor.type)));
    return true;
  }
  Values values(tensor.type, out, tensor.count);
  const uint32_t wanted = value_field(tensor.type);
  const Wire single = packed_as(wanted);
  Reader message = tensor.message;
  while (!message.done()) {
    Field field;
    if (!field.read(message)) return fail_at(problem, message);
    if (field.is(wanted, Wire::kBytes)) {
      // float8_val is not a repeated field: the last one counts.
      if (single == Wire::kBytes) values.restart();
      single == Wire::kVarint ? values.varints(field.body) : values.copy(field.body);
    } else if (field.is(wanted, single) && single == Wire::kVarint) {
      uint64_t value = 0;
      if (!message.varint(value)) return fail_at(problem, message);
      values.varint(value);
    } else {
      const uint8_t* value = message.at;
      if (!field.skip(message)) return fail_at(problem, message);
      if (field.is(wanted, single)) values.copy({value, message.at});
    }
  }
  values.fill();
  return true;
}

bool TensorStrings::start(const Tensor& tensor, Problem& problem) {
  if (tensor.content.done() || tensor.count == 0) return true;
  // All lengths, then all of the bytes, and nothing else.
  data_ = tensor.content;
  uint64_t total = 0;
  for (int64_t i = 0; i < tensor.count; ++i) {
    uint64_t length = 0;
    if (!data_.varint(length) || length > UINT32_MAX) return fail_at(problem, data_);
    total += length;
  }
  if (total != static_cast<uint64_t>(data_.left())) return fail_at(problem, data_);
  return true;
}

Reader TensorStrings::next() {
  if (data_.at != nullptr) {
    uint64_t length = 0;
    // Bounded again: the bytes may belong to someone who writes to them.
    if (!lengths_.varint(length)) return {data_.at, data_.at};
    const auto left = static_cast<uint64_t>(data_.left());
    const uint8_t* start = data_.at;
    data_.at += std::min(length, left);
    return {start, data_.at};
  }
  while (!message_.done()) {
    Field field;
    if (!field.read(message_) || !field.skip(message_)) break;
    if (field.is(kStringVal, Wire::kBytes)) return last_ = field.body;
  }
  message_.at = message_.end;
  return last_;
}

}  // namespace penstock
