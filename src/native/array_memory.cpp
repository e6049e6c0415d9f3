// The memory of arrays that the user's functions make, and whether what they return is the caller's to keep.
//
// The C library gives large arrays back to the system as soon as they are freed, and the first touch of each new
// page then costs more than computing what goes there. While a function runs, NumPy takes its memory from here:
// a few freed pieces are kept for the next call. They start on 64 bytes, so that frameworks can use them as they are.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>
#include <pthread.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "system.h"

namespace penstock {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmall = 32 << 10;  // The C library keeps pieces below this by itself.
constexpr size_t kMostKept = 32 << 20;
constexpr size_t kMostPieces = 64;

// Pieces of memory that were freed, for the next array of about the same size.
class Kept {
 public:
  void* take(size_t size) {
    const std::lock_guard<std::mutex> guard(lock_);
    for (size_t i = pieces_.size(); i > 0; --i) {
      const Piece piece = pieces_[i - 1];
      if (piece.size < size || piece.size - size > size / 8) continue;
      pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(i - 1));
      nbytes_ -= piece.size;
      return piece.memory;
    }
    return nullptr;
  }
  // Whether it was kept; the oldest pieces make room for it.
  bool put(void* memory, size_t size) {
    if (size > kMostKept / 2) return false;
    const std::lock_guard<std::mutex> guard(lock_);
    while (nbytes_ + size > kMostKept || pieces_.size() >= kMostPieces) {
      std::free(pieces_.front().memory);
      nbytes_ -= pieces_.front().size;
      pieces_.erase(pieces_.begin());
    }
    pieces_.push_back({memory, size});
    nbytes_ += size;
    return true;
  }

  void lock() { lock_.lock(); }
  void unlock() { lock_.unlock(); }

 private:
  struct Piece {
    void* memory;
    size_t size;
  };
  std::mutex lock_;
  std::vector<Piece> pieces_;
  size_t nbytes_ = 0;
};

// Never destroyed: arrays may be freed after everything else.
Kept& kept = *new Kept;

// A fork waits until no thread is in the middle of a change, so that the child finds it whole, and unlocked.
void lock_kept() { kept.lock(); }
void unlock_kept() { kept.unlock(); }

size_t rounded(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void* allocate(void*, size_t size) {
  size = rounded(size == 0 ? 1 : size);
  if (size >= kSmall) {
    if (void* memory = kept.take(size)) return memory;
  }
  return std::aligned_alloc(kAlignment, size);
}

void* allocate_zeroed(void* context, size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / 2 / size) return nullptr;
  void* memory = allocate(context, count * size);
  if (memory != nullptr) std::memset(memory, 0, count * size);
  return memory;
}

// By its true size: what NumPy says is that of the array, which may have been resized.
void release(void*, void* memory, size_t) {
  const size_t size = memory == nullptr ? 0 : usable_nbytes(memory);
  if (size < kSmall || !kept.put(memory, size)) std::free(memory);
}

void* reallocate(void*, void* memory, size_t size) { return std::realloc(memory, rounded(size == 0 ? 1 : size)); }

PyDataMem_Handler handler = {"penstock", 1, {nullptr, allocate, allocate_zeroed, reallocate, release}};

// Lets NumPy take memory from here on this thread; returns what it used before.
nb::object use_array_memory() {
  nb::object capsule = nb::steal(PyCapsule_New(&handler, "mem_handler", nullptr));
  if (!capsule.is_valid()) throw nb::python_error();
  nb::object before = nb::steal(PyDataMem_SetHandler(capsule.ptr()));
  if (!before.is_valid()) throw nb::python_error();
  return before;
}

void restore_array_memory(nb::handle before) {
  nb::object ours = nb::steal(PyDataMem_SetHandler(before.ptr()));
  if (!ours.is_valid()) throw nb::python_error();
}

// Whether the results of a function can be handed on as they are: arrays of the declared kind that nobody else
// refers to.
class ResultCheck {
 public:
  // shapes: for each field a tuple, with -1 for any size. keys: None for a bare value, the number of fields of a
  // tuple, or the keys of a dict.
  ResultCheck(nb::tuple dtypes, nb::tuple shapes, nb::object keys) : keys_(std::move(keys)) {
    if (nb::len(dtypes) != nb::len(shapes)) raise_value_error("dtypes and shapes must be as many.");
    for (size_t i = 0; i < nb::len(dtypes); ++i) {
      if (!PyArray_DescrCheck(dtypes[i].ptr())) throw nb::type_error("dtypes must be dtypes of NumPy.");
      Field field{nb::borrow(dtypes[i]), {}};
      for (nb::handle size : nb::borrow<nb::tuple>(shapes[i])) field.shape.push_back(nb::cast<npy_intp>(size));
      fields_.push_back(std::move(field));
    }
    const bool is_dict = PyTuple_CheckExact(keys_.ptr());
    if (!is_dict && !keys_.is_none() && !PyLong_CheckExact(keys_.ptr())) {
      throw nb::type_error("keys must be None, a number or a tuple.");
    }
    const size_t expected = is_dict           ? static_cast<size_t>(PyTuple_GET_SIZE(keys_.ptr()))
                            : keys_.is_none() ? 1
                                              : PyLong_AsSize_t(keys_.ptr());
    if (expected != fields_.size()) raise_value_error("there must be as many fields as keys.");
  }

  // A bare value comes in a tuple, and has a name besides: its references can be told whatever the call itself adds.
  bool call(nb::handle result) const {
    PyObject* row = result.ptr();
    const auto count = static_cast<Py_ssize_t>(fields_.size());
    const Py_ssize_t holders = keys_.is_none() ? 2 : 1;
    if (PyTuple_CheckExact(keys_.ptr())) {
      if (!PyDict_CheckExact(row) || PyDict_GET_SIZE(row) != count) return false;
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* value = PyDict_GetItemWithError(row, PyTuple_GET_ITEM(keys_.ptr(), i));
        if (value == nullptr && PyErr_Occurred()) throw nb::python_error();
        if (value == nullptr || !is_own(static_cast<size_t>(i), value, 1)) return false;
      }
      return true;
    }
    if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != count) return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!is_own(static_cast<size_t>(i), PyTuple_GET_ITEM(row, i), holders)) return false;
    }
    return true;
  }

 private:
  struct Field {
    nb::object descr;
    std::vector<npy_intp> shape;
  };

  bool is_own(size_t number, PyObject* value, Py_ssize_t holders) const {
    if (Py_TYPE(value) != &PyArray_Type) return false;
    const Field& field = fields_[number];
    auto* array = reinterpret_cast<PyArrayObject*>(value);
    if (reinterpret_cast<PyObject*>(PyArray_DESCR(array)) != field.descr.ptr()) return false;
    if (static_cast<size_t>(PyArray_NDIM(array)) != field.shape.size() || field.shape.empty()) return false;
    for (size_t axis = 0; axis < field.shape.size(); ++axis) {
      if (field.shape[axis] >= 0 && PyArray_DIM(array, static_cast<int>(axis)) != field.shape[axis]) return false;
    }
    return PyArray_BASE(array) == nullptr && Py_REFCNT(value) <= holders;
  }

  std::vector<Field> fields_;
  nb::object keys_;
};

int import_numpy() {
  import_array1(-1);
  return 0;
}

}  // namespace

void bind_array_memory(nb::module_& m) {
  if (import_numpy() != 0) throw nb::python_error();
  pthread_atfork(lock_kept, unlock_kept, unlock_kept);
  m.def("use_array_memory", &use_array_memory);
  m.def("restore_array_memory", &restore_array_memory, nb::arg("before"));
  nb::class_<ResultCheck>(m, "ResultCheck", "Tells whether a function's result can be handed on as it is.")
      .def(nb::init<nb::tuple, nb::tuple, nb::object>(), nb::arg("dtypes"), nb::arg("shapes"), nb::arg("keys").none())
      .def("__call__", &ResultCheck::call, nb::arg("result").none());
}

}  // namespace penstock
