// Rows of Python objects into columns: what a loop of `column[i] = value` does, with every check, at C speed.
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#include <nanobind/nanobind.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace nb = nanobind;

namespace penstock {
namespace {

// One field: where its rows go, and what a value of it must be.
struct Column {
  nb::object array;  // keeps `data` and `descr` alive
  char* data;
  int64_t group_rows;  // rows of a batch, where the rows are those of several
  int64_t group_stride;
  int64_t stride;
  int64_t num_rows;
  size_t row_nbytes;
  PyArray_Descr* descr;
  int num_dims;
  const npy_intp* shape;
  bool is_number;  // 0-d, of a kind that a Python number can be put into
};

template <typename T>
bool put_integer(PyObject* value, char* to) {
  int overflow = 0;
  const long long wide = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) return false;
  if constexpr (std::is_unsigned_v<T>) {
    if (wide < 0 || static_cast<unsigned long long>(wide) > std::numeric_limits<T>::max()) return false;
  } else {
    if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max()) return false;
  }
  const T narrow = static_cast<T>(wide);
  std::memcpy(to, &narrow, sizeof(T));
  return true;
}

bool put_int(PyObject* value, int type, char* to) {
  switch (type) {
    case NPY_BYTE:
      return put_integer<npy_byte>(value, to);
    case NPY_UBYTE:
      return put_integer<npy_ubyte>(value, to);
    case NPY_SHORT:
      return put_integer<npy_short>(value, to);
    case NPY_USHORT:
      return put_integer<npy_ushort>(value, to);
    case NPY_INT:
      return put_integer<npy_int>(value, to);
    case NPY_UINT:
      return put_integer<npy_uint>(value, to);
    case NPY_LONG:
      return put_integer<npy_long>(value, to);
    case NPY_ULONG:
      return put_integer<npy_ulong>(value, to);
    case NPY_LONGLONG:
      return put_integer<npy_longlong>(value, to);
    case NPY_ULONGLONG:
      return put_integer<npy_ulonglong>(value, to);
    default:
      return false;
  }
}

bool put_float(double value, int type, char* to) {
  if (type == NPY_DOUBLE) {
    std::memcpy(to, &value, sizeof(value));
    return true;
  }
  // What would become infinite is left to NumPy, which warns of it.
  if (type != NPY_FLOAT || (std::isfinite(value) && std::fabs(value) > static_cast<double>(FLT_MAX))) return false;
  const float narrow = static_cast<float>(value);
  std::memcpy(to, &narrow, sizeof(narrow));
  return true;
}

// Puts one value of the very kind that was declared; returns false, having written nothing, for any other.
bool put(const Column& column, PyObject* value, char* to) {
  if (Py_TYPE(value) == &PyArray_Type) {
    auto* array = reinterpret_cast<PyArrayObject*>(value);
    if (PyArray_DESCR(array) != column.descr || PyArray_NDIM(array) != column.num_dims ||
        !PyArray_IS_C_CONTIGUOUS(array)) {
      return false;
    }
    for (int axis = 0; axis < column.num_dims; ++axis) {
      if (PyArray_DIM(array, axis) != column.shape[axis]) return false;
    }
    // As the row may be a view of the very block it goes to.
    std::memmove(to, PyArray_DATA(array), column.row_nbytes);
    return true;
  }
  if (!column.is_number) return false;
  const int type = column.descr->type_num;
  if (PyLong_CheckExact(value)) return put_int(value, type, to);
  if (PyFloat_CheckExact(value)) return put_float(PyFloat_AS_DOUBLE(value), type, to);
  if (Py_TYPE(value) == column.descr->typeobj) {
    PyArray_ScalarAsCtype(value, to);
    return true;
  }
  return false;
}

class RowFiller {
 public:
  // keys: None for rows that are a value each, a number for tuples of so many, a tuple of keys for dicts.
  // is_grouped: the first two axes are those of the rows, not one.
  RowFiller(nb::tuple columns, nb::object keys, bool is_grouped) : keys_(std::move(keys)) {
    const int lead = is_grouped ? 2 : 1;
    auto made = std::make_shared<Columns>();
    for (nb::handle item : columns) {
      if (!PyArray_Check(item.ptr())) throw nb::type_error("columns must be arrays.");
      auto* array = reinterpret_cast<PyArrayObject*>(item.ptr());
      const int num_dims = PyArray_NDIM(array) - lead;
      if (num_dims < 0) throw nb::value_error("columns must have an axis of rows.");
      if (!PyArray_ISWRITEABLE(array)) throw nb::value_error("columns must be writable.");
      PyArray_Descr* descr = PyArray_DESCR(array);
      if (PyDataType_REFCHK(descr)) throw nb::value_error("columns must hold no objects.");
      const bool is_empty = PyArray_SIZE(array) == 0;  // NumPy's strides mean nothing then.
      size_t nbytes = static_cast<size_t>(PyDataType_ELSIZE(descr));
      for (int axis = num_dims + lead - 1; axis >= lead; --axis) {
        if (!is_empty && PyArray_DIM(array, axis) > 1 && PyArray_STRIDE(array, axis) != static_cast<npy_intp>(nbytes)) {
          throw nb::value_error("the rows of columns must be contiguous.");
        }
        nbytes *= static_cast<size_t>(PyArray_DIM(array, axis));
      }
      const bool is_number = num_dims == 0 && PyTypeNum_ISNUMBER(descr->type_num) && PyArray_ISNOTSWAPPED(array);
      const int64_t group_rows = PyArray_DIM(array, lead - 1);
      made->push_back({nb::borrow(item), PyArray_BYTES(array), group_rows, is_grouped ? PyArray_STRIDE(array, 0) : 0,
                       PyArray_STRIDE(array, lead - 1), is_grouped ? PyArray_DIM(array, 0) * group_rows : group_rows,
                       nbytes, descr, num_dims, PyArray_DIMS(array) + lead, is_number});
    }
    const bool is_dict = PyTuple_CheckExact(keys_.ptr());
    if (!is_dict && !keys_.is_none() && !PyLong_CheckExact(keys_.ptr())) {
      throw nb::type_error("keys must be None, a number or a tuple.");
    }
    const size_t expected = is_dict           ? static_cast<size_t>(PyTuple_GET_SIZE(keys_.ptr()))
                            : keys_.is_none() ? 1
                                              : PyLong_AsSize_t(keys_.ptr());
    if (expected != made->size()) throw nb::value_error("columns must be as many as a row has fields.");
    columns_ = std::move(made);
  }

  // Puts rows start, start + 1, ... up to stop; returns the first row that is not as declared, or None.
  nb::object fill(nb::handle rows, int64_t start, int64_t stop) {
    count = start;
    if (!PyIter_Check(rows.ptr())) throw nb::type_error("rows must be an iterator.");
    if (!columns_) throw nb::value_error("the columns were released.");
    for (const Column& column : *columns_) {
      if (start < 0 || stop > column.num_rows) throw nb::index_error("there is no room for so many rows.");
    }
    while (count < stop) {
      nb::object row = nb::steal(PyIter_Next(rows.ptr()));
      if (!row.is_valid()) {
        if (PyErr_Occurred()) throw nb::python_error();
        break;
      }
      const auto columns = columns_;  // Another thread may have released them meanwhile, and may do so below.
      if (!columns) break;
      if (!put_row(*columns, row.ptr(), count)) return nb::make_tuple(row);
      ++count;
    }
    return nb::none();
  }

  // Puts one row; returns whether it is as declared.
  bool put_one(int64_t number, nb::handle row) {
    const auto columns = columns_;
    if (!columns) throw nb::value_error("the columns were released.");
    for (const Column& column : *columns) {
      if (number < 0 || number >= column.num_rows) throw nb::index_error("there is no such row.");
    }
    return put_row(*columns, row.ptr(), number);
  }

  // Lets go of the columns: no row is put from now on.
  void release() {
    const auto columns = std::move(columns_);
    columns_.reset();
  }

  int64_t count = 0;

 private:
  using Columns = std::vector<Column>;

  bool put_row(const Columns& columns, PyObject* row, int64_t number) const {
    if (keys_.is_none()) return put_field(columns[0], row, number);
    if (PyTuple_CheckExact(keys_.ptr())) return put_dict(columns, row, number);
    if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != static_cast<Py_ssize_t>(columns.size())) return false;
    for (size_t field = 0; field < columns.size(); ++field) {
      if (!put_field(columns[field], PyTuple_GET_ITEM(row, static_cast<Py_ssize_t>(field)), number)) return false;
    }
    return true;
  }

  bool put_dict(const Columns& columns, PyObject* row, int64_t number) const {
    if (!PyDict_CheckExact(row) || PyDict_GET_SIZE(row) != static_cast<Py_ssize_t>(columns.size())) return false;
    for (size_t field = 0; field < columns.size(); ++field) {
      PyObject* key = PyTuple_GET_ITEM(keys_.ptr(), static_cast<Py_ssize_t>(field));
      PyObject* value = PyDict_GetItemWithError(row, key);
      if (value == nullptr && PyErr_Occurred()) throw nb::python_error();
      if (value == nullptr || !put_field(columns[field], value, number)) return false;
    }
    return true;
  }

  static bool put_field(const Column& column, PyObject* value, int64_t number) {
    const int64_t group = number / column.group_rows;  // There is room, so there are rows.
    char* to = column.data + group * column.group_stride + (number - group * column.group_rows) * column.stride;
    return put(column, value, to);
  }

  std::shared_ptr<const Columns> columns_;
  nb::object keys_;
};

int import_numpy() {
  import_array1(-1);
  return 0;
}

}  // namespace

void bind_fill(nb::module_& m) {
  if (import_numpy() != 0) throw nb::python_error();
  nb::class_<RowFiller>(m, "RowFiller", "Puts rows of Python objects into columns, a block at a time.")
      .def(nb::init<nb::tuple, nb::object, bool>(), nb::arg("columns"), nb::arg("keys").none(),
           nb::arg("is_grouped") = false)
      .def("put", &RowFiller::put_one, nb::arg("number"), nb::arg("row").none(),
           "Put one row; return whether it is as declared. If not, some of its fields may have been put.")
      .def("fill", &RowFiller::fill, nb::arg("rows"), nb::arg("start"), nb::arg("stop"),
           "Put rows `start` to `stop`; return the first that is not as declared, in a tuple, or None.")
      .def("release", &RowFiller::release,
           "Let go of the columns: `fill` puts no further row, also if it waits for one on another thread.")
      .def_ro("count", &RowFiller::count, "The row after the last one that was put.");
}

}  // namespace penstock
