// TensorProto, as tf.io.serialize_tensor and tf.make_tensor_proto write it.
#pragma once

#include <cstdint>

#include "tfrecord_frame.h"
#include "wire.h"

namespace penstock {

// The numbers of TensorFlow's DataType. Also what a column of floats or ints is made of.
enum class Type : int32_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kString = 7,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBfloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kFloat16 = 19,
  kUint32 = 22,
  kUint64 = 23,
  kFloat8E5m2 = 24,
  kFloat8E5m2fnuz = 28,  // 25 to 27 are other kinds of float8, and all alike here: one byte
};

// The bytes of one value; 0 for strings, and for what is not supported.
int64_t type_nbytes(Type type);

// The type that a stored DataType is read as: quantized ints are ints. Returns false if it is not supported.
bool type_of_stored(uint64_t stored, Type& type);

constexpr int kMaxRank = 254;  // TensorFlow's

// A TensorProto whose structure was found sound. It points into the message.
struct Tensor {
  uint64_t stored_type = 0;
  Type type{};
  int rank = 0;
  int64_t shape[kMaxRank];  // not initialised beyond `rank`
  int64_t count = 0;        // the product of the shape
  Reader content;           // tensor_content; empty if the values are in a field of their own
  Reader message;
};

// Where and why reading stopped.
struct Problem {
  Fault fault = Fault::kNone;
  const uint8_t* at = nullptr;
  int64_t found = 0;  // a count, a kind, a type or a value, as the fault has it
};

// Checks all of the message but the values, and that `tensor_content`, if there, has the right size.
bool read_tensor(Reader message, Tensor& tensor, Problem& problem);

// Writes tensor.count values of a numeric type to `out`. The last value stands for all that are not there, as
// TensorFlow has it; zeros if there are none at all.
bool copy_tensor(const Tensor& tensor, uint8_t* out, Problem& problem);

// The strings of a tensor of type kString, one after the other: `next` tensor.count times.
class TensorStrings {
 public:
  explicit TensorStrings(const Tensor& tensor) : message_(tensor.message), lengths_(tensor.content) {}
  // Finds the first string. Returns false if the content contradicts itself.
  bool start(const Tensor& tensor, Problem& problem);
  Reader next();

 private:
  Reader message_;
  Reader lengths_;  // of tensor_content: all lengths come first
  Reader data_;
  Reader last_;
};

}  // namespace penstock
