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

// Copies `size` bytes, at least as many as a word has; the last word may overlap the one before. Returns all bits that
// are set in any byte of what was copied, and not of what was there: another thread may write to it meanwhile.
template <typename Word, typename Copy>
inline Word copy_words(char* __restrict to, const char* __restrict from, int64_t size, Word seen, Copy copy) {
  constexpr auto kWidth = static_cast<int64_t>(sizeof(Word));
  for (int64_t at = 0; at + kWidth < size; at += kWidth) seen = copy(to + at, from + at, seen);
  return copy(to + size - kWidth, from + size - kWidth, seen);
}

template <typename Word>
inline Word copy_word(char* to, const char* from, Word seen) {
  Word word;
  std::memcpy(&word, from, sizeof(Word));
  std::memcpy(to, &word, sizeof(Word));
  return seen | word;
}

// Copies bytes, and returns whether the copy is ASCII.
bool copy_ascii(char* __restrict to, const char* __restrict from, int64_t size) {
#if defined(__SSE2__)
  if (size >= 16) {
    const auto copy = [](char* there, const char* here, __m128i seen) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(here));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(there), bytes);
      return _mm_or_si128(seen, bytes);
    };
    return _mm_movemask_epi8(copy_words(to, from, size, _mm_setzero_si128(), copy)) == 0;
  }
#endif
  if (size >= 8) {
    return (copy_words<uint64_t>(to, from, size, 0, &copy_word<uint64_t>) & 0x8080808080808080u) == 0;
  }
  if (size >= 4) return (copy_words<uint32_t>(to, from, size, 0, &copy_word<uint32_t>) & 0x80808080u) == 0;
  return (copy_words<uint8_t>(to, from, size, 0, &copy_word<uint8_t>) & 0x80u) == 0;
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
