// The iterator under a stream: it hands out what the iterator over its current block gives, counts it, and calls Python
// only at the end of a block. A `__next__` in Python would cost more than to make a view of a batch.
#include <Python.h>
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>

namespace nb = nanobind;

namespace penstock {
namespace {

struct ElementIterator {
  PyObject_HEAD PyObject* elements;  // What the current block gives.
  long long num_taken;               // Elements that were handed out, and what it was set to.
};

// Calls the method of this name with one argument; false if it raised.
bool call(PyObject* self, const char* name, PyObject* argument) {
  nb::object made = nb::steal(PyObject_CallMethod(self, name, "O", argument));
  return made.is_valid();
}

// Tells `_fails` of the error that is raised, which goes on after that.
void report_error(PyObject* self) {
  nb::python_error raised;
  if (call(self, "_fails", raised.value().ptr())) raised.restore();
}

PyObject* next_element(PyObject* object) {
  auto* const self = reinterpret_cast<ElementIterator*>(object);
  for (;;) {
    if (self->elements == nullptr || !PyIter_Check(self->elements)) {
      PyErr_SetString(PyExc_TypeError, "_elements must be an iterator.");
      return nullptr;
    }
    // Its own reference: another thread may go on to the next block meanwhile.
    const nb::object elements = nb::borrow(self->elements);
    PyObject* const element = Py_TYPE(elements.ptr())->tp_iternext(elements.ptr());
    if (element != nullptr) {
      ++self->num_taken;
      return element;
    }
    if (PyErr_Occurred() != nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
        report_error(object);
        return nullptr;
      }
      PyErr_Clear();
    }
    if (!call(object, "_go_on", elements.ptr())) return nullptr;
  }
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<ElementIterator*>(object)->elements);
  Py_VISIT(Py_TYPE(object));
  return 0;
}

int clear(PyObject* object) {
  Py_CLEAR(reinterpret_cast<ElementIterator*>(object)->elements);
  return 0;
}

void dealloc(PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  clear(object);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"_elements", T_OBJECT_EX, offsetof(ElementIterator, elements), 0, "What the current block gives."},
    {"_count", T_LONGLONG, offsetof(ElementIterator, num_taken), 0, "How many elements were handed out."},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("An iterator over the elements of one block after the other.")},
    {Py_tp_iter, reinterpret_cast<void*>(&PyObject_SelfIter)},
    {Py_tp_iternext, reinterpret_cast<void*>(&next_element)},
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(&clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(&dealloc)},
    {Py_tp_members, members},
    {0, nullptr},
};

// Not a class of nanobind: its metaclass would not go together with that of abstract classes.
PyType_Spec spec = {"penstock._native.ElementIterator", sizeof(ElementIterator), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

void bind_element_iterator(nb::module_& m) { m.attr("ElementIterator") = nb::steal(PyType_FromSpec(&spec)); }

}  // namespace penstock
