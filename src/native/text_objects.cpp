// Rows of text as Python objects: an array of bytes or str, made in one call.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/arrayobject.h>

#include <cstring>
#include <string>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "buffer.h"

namespace penstock {
namespace {

int import_numpy() {
  import_array1(-1);
  return 0;
}

// Copies bytes, each read once: another thread may write to them meanwhile. Returns whether the copy is ASCII.
bool copy_ascii(char* __restrict to, const char* __restrict from, int64_t size) {
  uint64_t seen = 0;
  int64_t at = 0;
#if defined(__SSE2__)
  __m128i many = _mm_setzero_si128();
  for (; at + 16 <= size; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at), bytes);
    many = _mm_or_si128(many, bytes);
  }
  if (_mm_movemask_epi8(many) != 0) return false;
#endif
  for (uint64_t word = 0; at + 8 <= size; at += 8) {
    std::memcpy(&word, from + at, 8);
    std::memcpy(to + at, &word, 8);
    seen |= word;
  }
  for (; at < size; ++at) {
    to[at] = from[at];
    seen |= static_cast<uint8_t>(to[at]);
  }
  return (seen & 0x8080808080808080u) == 0;
}

PyObject* make_str(const char* bytes, int64_t size) {
  if (size > 1) {  // Python has strings of one character already.
    PyObject* made = PyUnicode_New(size, 127);
    if (made == nullptr) return nullptr;
    if (copy_ascii(reinterpret_cast<char*>(PyUnicode_1BYTE_DATA(made)), bytes, size)) return made;
    Py_DECREF(made);
  }
  return PyUnicode_DecodeUTF8(bytes, size, "surrogatepass");
}

// A column of text: row i is data[offsets[i]:offsets[i + 1]].
class TextColumn {
 public:
  TextColumn(nb::handle data, nb::handle offsets, bool is_str)
      : data_(data, "data", Element::kUint8, 1, Access::kRead),
        offsets_(offsets, "offsets", Element::kInt64, 1, Access::kRead),
        is_str_(is_str) {}

  nb::object objects(int64_t start, int64_t stop) const {
    if (start < 0 || stop < start || stop >= offsets_.size(0)) {
      raise_index_error("rows " + std::to_string(start) + " to " + std::to_string(stop) + " are not among the " +
                        std::to_string(offsets_.size(0) - 1) + " of offsets.");
    }
    npy_intp count = stop - start;
    nb::object array = nb::steal(PyArray_SimpleNew(1, &count, NPY_OBJECT));
    if (!array.is_valid()) throw nb::python_error();
    auto** const values = static_cast<PyObject**>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
    const int64_t* const edges = offsets_.data<const int64_t>();
    const char* const bytes = data_.data<const char>();
    for (int64_t row = start; row < stop; ++row) {
      const int64_t first = edges[row];
      const int64_t last = edges[row + 1];
      if (first < 0 || last < first || last > data_.size(0)) {
        raise_index_error("row " + std::to_string(row) + " reaches outside data.");
      }
      PyObject* made =
          is_str_ ? make_str(bytes + first, last - first) : PyBytes_FromStringAndSize(bytes + first, last - first);
      if (made == nullptr) throw nb::python_error();
      Py_XDECREF(values[row - start]);  // NumPy may have put None there.
      values[row - start] = made;
    }
    return array;
  }

 private:
  Buffer data_;
  Buffer offsets_;
  bool is_str_;
};

nb::object text_objects(nb::handle data, nb::handle offsets, int64_t start, int64_t stop, bool is_str) {
  return TextColumn(data, offsets, is_str).objects(start, stop);
}

// Several arrays of rows, made one after the other: the column is looked at once for all of them.
class TextSlices {
 public:
  TextSlices(nb::handle data, nb::handle offsets, nb::handle starts_object, nb::handle stops_object, bool is_str)
      : column_(data, offsets, is_str) {
    const Buffer starts(starts_object, "starts", Element::kInt64, 1, Access::kRead);
    const Buffer stops(stops_object, "stops", Element::kInt64, 1, Access::kRead);
    stops.require_size(0, starts.size(0), "starts");
    starts_.assign(starts.data<const int64_t>(), starts.data<const int64_t>() + starts.size(0));
    stops_.assign(stops.data<const int64_t>(), stops.data<const int64_t>() + stops.size(0));
  }

  bool is_at_end() const { return at_ == starts_.size(); }

  nb::object next() {
    const size_t mine = at_++;  // First: the collector may run below, and another thread then.
    return column_.objects(starts_[mine], stops_[mine]);
  }

 private:
  TextColumn column_;
  std::vector<int64_t> starts_;
  std::vector<int64_t> stops_;
  size_t at_ = 0;
};

// Python calls it as it is: a method `__next__` would be looked up, and its arguments unpacked, for every batch.
PyObject* next_slice(PyObject* self) noexcept {
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_TypeError, "TextSlices was not initialised.");
    return nullptr;
  }
  auto* const slices = nb::inst_ptr<TextSlices>(self);
  if (slices->is_at_end()) return nullptr;
  try {
    return slices->next().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
  }
  return nullptr;
}

PyType_Slot slice_slots[] = {
    {Py_tp_iter, reinterpret_cast<void*>(&PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next_slice)},
    {0, nullptr},
};

}  // namespace

void bind_text_objects(nb::module_& m) {
  if (import_numpy() != 0) throw nb::python_error();
  m.def("text_objects", &text_objects, nb::arg("data"), nb::arg("offsets"), nb::arg("start"), nb::arg("stop"),
        nb::arg("is_str"), "Return rows of text as an array of objects.");
  nb::class_<TextSlices>(m, "TextSlices", nb::type_slots(slice_slots),
                         "An iterator over rows of text, several at a time.")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, bool>(), nb::arg("data"), nb::arg("offsets"),
           nb::arg("starts"), nb::arg("stops"), nb::arg("is_str"));
}

}  // namespace penstock
