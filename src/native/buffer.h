// A view of a Python object's memory, checked. The buffer protocol rather than DLPack: NumPy arrays that are
// read-only export the one and not the other.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace penstock {

namespace nb = nanobind;

[[noreturn]] inline void raise_value_error(const std::string& message) { throw nb::value_error(message.c_str()); }

[[noreturn]] inline void raise_index_error(const std::string& message) { throw nb::index_error(message.c_str()); }

enum class Access { kRead, kWrite };
enum class Element { kUint8, kUint32, kInt64, kUint64, kFloat64 };

// Holds the memory of one argument for as long as a kernel runs. Take it and drop it with the interpreter lock;
// read and write through it without.
class Buffer {
 public:
  // Fails with TypeError if `object` has no buffer, and with ValueError, naming the argument, if the buffer has
  // another type or number of dimensions, is read-only though it must be written to, or has a last axis with gaps.
  Buffer(nb::handle object, const char* name, Element element, int ndim, Access access) : name_(name) {
    if (!PyObject_CheckBuffer(object.ptr())) {
      throw nb::type_error(
          (std::string(name) + " must be an array, got " + Py_TYPE(object.ptr())->tp_name + ".").c_str());
    }
    // Asked for as read-only and checked below: NumPy's own message would not name the argument.
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
    try {
      check(element, ndim, access);
    } catch (...) {
      PyBuffer_Release(&view_);
      throw;
    }
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const char* name() const { return name_; }
  int64_t size(int axis) const { return view_.shape[axis]; }
  int64_t stride(int axis) const { return view_.strides[axis]; }
  template <typename T>
  T* data() const {
    return static_cast<T*>(view_.buf);
  }

  // The addresses [first, last) that hold all of the elements; empty if there are none.
  std::pair<uintptr_t, uintptr_t> extent() const {
    auto first = reinterpret_cast<uintptr_t>(view_.buf);
    auto last = first + static_cast<uintptr_t>(view_.itemsize);
    for (int axis = 0; axis < view_.ndim; ++axis) {
      if (view_.shape[axis] == 0) return {first, first};
      const int64_t reach = (view_.shape[axis] - 1) * view_.strides[axis];
      (reach < 0 ? first : last) += static_cast<uintptr_t>(reach);
    }
    return {first, last};
  }

  void require_size(int axis, int64_t expected, const char* of) const {
    if (size(axis) != expected) {
      raise_value_error(std::string(name_) + " must have the length of " + of + ", " + std::to_string(expected) +
                        ", got " + std::to_string(size(axis)) + ".");
    }
  }

 private:
  void check(Element element, int ndim, Access access) const {
    if (!has_type(element)) {
      raise_value_error(std::string(name_) + " must hold " + type_name(element) + ", got format '" +
                        (view_.format ? view_.format : "B") + "' of " + std::to_string(view_.itemsize) +
                        " bytes an item.");
    }
    if (view_.ndim != ndim) {
      raise_value_error(std::string(name_) + " must have " + std::to_string(ndim) + " dimensions, got " +
                        std::to_string(view_.ndim) + ".");
    }
    if (access == Access::kWrite && view_.readonly) {
      raise_value_error(std::string(name_) + " must be writable, got read-only memory.");
    }
    const int last = ndim - 1;
    if (view_.shape[last] > 1 && view_.strides[last] != view_.itemsize) {
      raise_value_error(std::string(name_) + " must be contiguous along its last axis, got a stride of " +
                        std::to_string(view_.strides[last]) + " bytes for items of " + std::to_string(view_.itemsize) +
                        ".");
    }
    const uintptr_t alignment = element == Element::kUint8 ? 1 : element == Element::kUint32 ? 4 : 8;
    if (reinterpret_cast<uintptr_t>(view_.buf) % alignment != 0) {
      raise_value_error(std::string(name_) + " must be aligned to " + std::to_string(alignment) + " bytes.");
    }
  }

  bool has_type(Element element) const {
    const char* format = view_.format ? view_.format : "B";
    if (*format == '@' || *format == '=') ++format;
    if (*format == '\0' || format[1] != '\0') return false;
    switch (element) {
      case Element::kUint8:
        return *format == 'B' && view_.itemsize == 1;
      case Element::kUint32:
        return (*format == 'I' || *format == 'L') && view_.itemsize == 4;
      case Element::kInt64:
        return (*format == 'l' || *format == 'q') && view_.itemsize == 8;
      case Element::kUint64:
        return (*format == 'L' || *format == 'Q') && view_.itemsize == 8;
      case Element::kFloat64:
        return *format == 'd' && view_.itemsize == 8;
    }
    return false;
  }

  static const char* type_name(Element element) {
    switch (element) {
      case Element::kUint8:
        return "uint8";
      case Element::kUint32:
        return "uint32";
      case Element::kInt64:
        return "int64";
      case Element::kUint64:
        return "uint64";
      case Element::kFloat64:
        return "float64";
    }
    return "";
  }

  const char* name_;
  Py_buffer view_{};
};

// Whether two buffers may share memory. Interleaved views of one array count as shared: no kernel needs them.
inline bool may_share_memory(const Buffer& a, const Buffer& b) {
  const auto [a_first, a_last] = a.extent();
  const auto [b_first, b_last] = b.extent();
  return a_first < b_last && b_first < a_last;
}

}  // namespace penstock
