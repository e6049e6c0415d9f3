// Where the arrays of a list are, so that rows of it can be copied without the interpreter lock. An entry is what NumPy
// says of the array once, when the table is made; the table refers to all arrays for as long as it lives.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buffer.h"

namespace penstock {
namespace {

struct Entry {
  const uint8_t* data;
  int64_t nbytes;
};

struct CopyOutcome {
  const char* problem = nullptr;  // the name of the array that holds the bad value
  int64_t index = 0;
  int64_t value = 0;
  int64_t expected = 0;
};

class ArrayTable {
 public:
  explicit ArrayTable(nb::list arrays) : arrays_(nb::steal(PyList_AsTuple(arrays.ptr()))) {
    if (!arrays_.is_valid()) throw nb::python_error();
    const Py_ssize_t count = PyTuple_GET_SIZE(arrays_.ptr());
    entries_.reserve(static_cast<size_t>(count));
    kept_.reserve(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* one = PyTuple_GET_ITEM(arrays_.ptr(), i);
      if (!PyArray_Check(one)) {
        throw nb::type_error(
            ("arrays[" + std::to_string(i) + "] must be a NumPy array, got " + Py_TYPE(one)->tp_name + ".").c_str());
      }
      auto* array = reinterpret_cast<PyArrayObject*>(one);
      if (!PyArray_IS_C_CONTIGUOUS(array)) {
        raise_value_error("arrays[" + std::to_string(i) + "] must be contiguous.");
      }
      // One more reference than the tuple's: NumPy resizes an array in place only if nobody else refers to it.
      kept_.push_back(nb::borrow(one));
      entries_.push_back(
          {static_cast<const uint8_t*>(PyArray_DATA(array)), static_cast<int64_t>(PyArray_NBYTES(array))});
    }
  }

  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  int64_t nbytes() const { return size() * static_cast<int64_t>(sizeof(Entry) + 2 * sizeof(PyObject*)); }

  nb::object arrays() const { return arrays_; }

  void gather(nb::handle rows_object, nb::handle lengths_object, nb::handle out_object,
              nb::handle out_starts_object) const {
    const Buffer rows(rows_object, "rows", Element::kInt64, 1, Access::kRead);
    const Buffer lengths(lengths_object, "lengths", Element::kInt64, 1, Access::kRead);
    const Buffer out(out_object, "out", Element::kUint8, 1, Access::kWrite);
    const Buffer out_starts(out_starts_object, "out_starts", Element::kInt64, 1, Access::kRead);
    const int64_t count = rows.size(0);
    lengths.require_size(0, count, "rows");
    out_starts.require_size(0, count, "rows");
    CopyOutcome outcome;
    {
      nb::gil_scoped_release release;
      outcome =
          copy(rows.data<const int64_t>(), lengths.data<const int64_t>(), out, out_starts.data<const int64_t>(), count);
    }
    if (outcome.problem == nullptr) return;
    const std::string where = std::string(outcome.problem) + "[" + std::to_string(outcome.index) + "]";
    const std::string got = ", got " + std::to_string(outcome.value) + ".";
    switch (*outcome.problem) {
      case 'r':
        raise_index_error(where + " must be in [0, " + std::to_string(size()) + ")" + got);
      case 'l':
        raise_value_error(where + " must be the bytes of its array, " + std::to_string(outcome.expected) + got);
      default:
        raise_index_error(where + " must leave room for " + std::to_string(outcome.expected) + " bytes in the " +
                          std::to_string(out.size(0)) + " of out" + got);
    }
  }

 private:
  // Memory lies anywhere: entries are asked for first, and the arrays they lead to some rows later.
  static constexpr int64_t kEntryAhead = 16;
  static constexpr int64_t kDataAhead = 8;
  static constexpr int64_t kLine = 64;
  static constexpr int64_t kMostLines = 8;

  CopyOutcome copy(const int64_t* rows, const int64_t* lengths, const Buffer& out, const int64_t* out_starts,
                   int64_t count) const {
    auto* to = out.data<uint8_t>();
    const int64_t out_nbytes = out.size(0);
    for (int64_t i = 0; i < count; ++i) {
      // Copied first, here and below: the arrays belong to Python, and another thread may write to them.
      const int64_t far = i + kEntryAhead < count ? rows[i + kEntryAhead] : -1;
      if (holds(far)) __builtin_prefetch(&entries_[static_cast<size_t>(far)], 0, 3);
      const int64_t near = i + kDataAhead < count ? rows[i + kDataAhead] : -1;
      if (holds(near)) {
        const Entry& next = entries_[static_cast<size_t>(near)];
        const int64_t reach = std::min(next.nbytes, kMostLines * kLine);
        for (int64_t at = 0; at < reach; at += kLine) __builtin_prefetch(next.data + at, 0, 3);
      }
      const int64_t row = rows[i], length = lengths[i], start = out_starts[i];
      if (!holds(row)) return {"rows", i, row, 0};
      const Entry& entry = entries_[static_cast<size_t>(row)];
      if (length != entry.nbytes) return {"lengths", i, length, entry.nbytes};
      // By subtraction: a sum could overflow.
      if (start < 0 || start > out_nbytes - length) return {"out_starts", i, start, length};
      if (length > 0) std::memmove(to + start, entry.data, static_cast<size_t>(length));
    }
    return {};
  }

  bool holds(int64_t row) const { return row >= 0 && row < size(); }

  nb::object arrays_;
  std::vector<nb::object> kept_;
  std::vector<Entry> entries_;
};

}  // namespace

void bind_array_table(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<ArrayTable>(m, "ArrayTable", "Where the arrays of a list are.")
      .def(nb::init<nb::list>(), nb::arg("arrays"))
      .def("__len__", &ArrayTable::size)
      .def_prop_ro("arrays", &ArrayTable::arrays, "The arrays, in a tuple.")
      .def_prop_ro("nbytes", &ArrayTable::nbytes, "The bytes of the table, without those of the arrays.")
      .def("gather", &ArrayTable::gather, nb::arg("rows"), nb::arg("lengths"), nb::arg("out"), nb::arg("out_starts"),
           "Copy the lengths[j] bytes of array rows[j] to out[out_starts[j]:], for each j.");
}

}  // namespace penstock
