// Reading the protobuf wire format, as protobuf itself reads it, out of memory that ends where it says.
#pragma once

#include <cstdint>
#include <cstring>

#include "utf8.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Values are copied as they lie in the file, which is little-endian."
#endif

namespace penstock {

enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kEndGroup = 4, kFixed32 = 5 };

constexpr uint32_t make_tag(uint32_t field, Wire wire) { return field << 3 | static_cast<uint32_t>(wire); }

// A cursor over [at, end). What fails leaves `at` on the element that is wrong, which is what an error reports.
struct Reader {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;

  bool done() const { return at == end; }
  int64_t left() const { return end - at; }

  bool varint(uint64_t& value) {
    if (at < end && *at < 0x80) {
      value = *at++;
      return true;
    }
    return long_varint(value);
  }

  // Field number 0 and numbers of more than 32 bits are refused, as in protobuf.
  bool tag(uint32_t& value) {
    if (at < end && *at < 0x80) {
      value = *at;
      if (value < 8) return false;
      ++at;
      return true;
    }
    uint64_t wide = 0;
    Reader ahead = *this;
    if (!ahead.short_varint(wide) || wide > UINT32_MAX || wide < 8) return false;
    value = static_cast<uint32_t>(wide);
    at = ahead.at;
    return true;
  }

  // The body of a length-delimited field. A length that does not fit into what is left is refused.
  bool bytes(Reader& body) {
    uint64_t length = 0;
    Reader ahead = *this;
    if (!ahead.short_varint(length) || length > static_cast<uint64_t>(ahead.left())) return false;
    // protobuf's own limit.
    if (length > INT32_MAX) return false;
    body = {ahead.at, ahead.at + length};
    at = body.end;
    return true;
  }

  template <typename T>
  bool fixed(T& value) {
    if (left() < static_cast<int64_t>(sizeof(T))) return false;
    std::memcpy(&value, at, sizeof(T));
    at += sizeof(T);
    return true;
  }

  // Passes over the value of a field that nobody asked for.
  bool skip(uint32_t tag) {
    switch (static_cast<Wire>(tag & 7)) {
      case Wire::kVarint: {
        uint64_t ignored = 0;
        return varint(ignored);
      }
      case Wire::kFixed64:
        return advance(8);
      case Wire::kBytes: {
        Reader ignored;
        return bytes(ignored);
      }
      case Wire::kFixed32:
        return advance(4);
      case Wire::kGroup:
        return skip_group(tag >> 3);
      default:
        return false;
    }
  }

 private:
  bool advance(int64_t count) {
    if (left() < count) return false;
    at += count;
    return true;
  }

  // Bits beyond the 64th are dropped, as in protobuf; more than ten bytes are refused.
  bool long_varint(uint64_t& value) {
    uint64_t sum = 0;
    const uint8_t* p = at;
    for (unsigned shift = 0; shift < 70 && p < end; shift += 7) {
      const uint8_t byte = *p++;
      sum |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        at = p;
        value = sum;
        return true;
      }
    }
    return false;
  }

  // Tags and lengths have at most five bytes.
  bool short_varint(uint64_t& value) {
    uint64_t sum = 0;
    const uint8_t* p = at;
    for (unsigned shift = 0; shift < 35 && p < end; shift += 7) {
      const uint8_t byte = *p++;
      sum |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        at = p;
        value = sum;
        return true;
      }
    }
    return false;
  }

  // With a stack of its own: input must not be able to exhaust the thread's. 100 deep is protobuf's limit.
  bool skip_group(uint32_t field) {
    constexpr int kDepth = 100;
    uint32_t open[kDepth];
    int depth = 0;
    open[depth++] = field;
    while (depth > 0) {
      uint32_t inner = 0;
      if (!tag(inner)) return false;
      switch (static_cast<Wire>(inner & 7)) {
        case Wire::kGroup:
          if (depth == kDepth) return false;
          open[depth++] = inner >> 3;
          break;
        case Wire::kEndGroup:
          if (open[--depth] != inner >> 3) return false;
          break;
        default:
          if (!skip(inner)) return false;
      }
    }
    return true;
  }
};

// A field of a message, already told apart: the loop that every message needs.
//   while (!message.done()) { Field field; if (!field.read(message)) return false; ... }
struct Field {
  uint32_t tag = 0;
  Reader body;  // of a length-delimited field

  bool is(uint32_t number, Wire wire) const { return tag == make_tag(number, wire); }

  // Reads the tag, and the body if there is one; the caller reads or skips any other value.
  bool read(Reader& message) {
    const uint8_t* start = message.at;
    if (!message.tag(tag)) return false;
    if (static_cast<Wire>(tag & 7) != Wire::kBytes) return true;
    if (message.bytes(body)) return true;
    message.at = start;
    return false;
  }

  bool skip(Reader& message) const { return static_cast<Wire>(tag & 7) == Wire::kBytes || message.skip(tag); }
};

inline bool is_utf8(const uint8_t* at, const uint8_t* end) { return check_utf8(at, end - at); }

}  // namespace penstock
