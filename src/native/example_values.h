// From the values of a list, as they are stored, to the dtype of a column.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor_proto.h"

namespace penstock {

// To the nearest, ties to even; what is too large becomes infinite.
inline uint16_t float_to_half(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000;
  uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));  // NaN
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);
  if (magnitude < 0x38800000) {  // below 2**-14: no leading one, so that the spacing is 2**-24
    float value;
    std::memcpy(&value, &magnitude, 4);
    // Adding 0.5 puts that spacing at the end of the mantissa, where the processor rounds.
    value += 0.5f;
    std::memcpy(&magnitude, &value, 4);
    return static_cast<uint16_t>(sign | (magnitude - 0x3F000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000 + 0xFFF + odd) >> 13);
}

inline uint16_t float_to_bfloat16(uint32_t bits) {
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return static_cast<uint16_t>(bits >> 16 | 0x40);  // NaN stays one
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

constexpr uint32_t kInfinity = 0x7F800000;  // As a float, without its sign.

// Writes `count` floats from 4 bytes each to a column of a type that is_float_type has. Returns how many it could: it
// stops at one that the type can't hold.
inline int64_t copy_floats(Type type, const uint8_t* from, int64_t count, uint8_t* to) {
  if (type == Type::kFloat32) {
    // memcpy must not be given a null pointer, not even for nothing.
    if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return count;
  }
  for (int64_t i = 0; i < count; ++i, from += 4) {
    uint32_t bits;
    std::memcpy(&bits, from, 4);
    if (type == Type::kFloat64) {
      float value;
      std::memcpy(&value, from, 4);
      const double wide = static_cast<double>(value);
      std::memcpy(to + 8 * i, &wide, 8);
    } else {
      const bool is_half = type == Type::kFloat16;
      const uint16_t half = is_half ? float_to_half(bits) : float_to_bfloat16(bits);
      if ((half & 0x7FFF) == (is_half ? 0x7C00 : 0x7F80) && (bits & 0x7FFFFFFF) < kInfinity) return i;
      std::memcpy(to + 2 * i, &half, 2);
    }
  }
  return count;
}

inline bool is_float_type(Type type) {
  return type == Type::kFloat32 || type == Type::kFloat64 || type == Type::kFloat16 || type == Type::kBfloat16;
}

struct BoolInt {};

template <typename T>
bool put_int(uint8_t* to, int64_t index, int64_t value) {
  if constexpr (std::is_same_v<T, BoolInt>) {
    if (value != 0 && value != 1) return false;
    to[index] = static_cast<uint8_t>(value);
  } else {
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value < 0) return false;
    } else {
      if (value < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
          value > static_cast<int64_t>(std::numeric_limits<T>::max())) {
        return false;
      }
    }
    const T narrow = static_cast<T>(value);
    std::memcpy(to + index * static_cast<int64_t>(sizeof(T)), &narrow, sizeof(T));
  }
  return true;
}

// Calls `function` with a value of the C++ type that a column of ints has; returns `otherwise` for other columns.
template <typename Function, typename Result>
Result with_int_type(Type type, Function function, Result otherwise) {
  switch (type) {
    case Type::kInt64:
      return function(int64_t{});
    case Type::kInt32:
      return function(int32_t{});
    case Type::kInt16:
      return function(int16_t{});
    case Type::kInt8:
      return function(int8_t{});
    case Type::kUint64:
      return function(uint64_t{});
    case Type::kUint32:
      return function(uint32_t{});
    case Type::kUint16:
      return function(uint16_t{});
    case Type::kUint8:
      return function(uint8_t{});
    case Type::kBool:
      return function(BoolInt{});
    default:
      return otherwise;
  }
}

inline bool is_int_type(Type type) {
  return with_int_type(type, [](auto) { return true; }, false);
}

}  // namespace penstock
