// Adds bindings to the classes and modules of torch._C. It includes none of PyTorch's headers, so it compiles quickly and
// does not depend on the operators.

#include "graft_bindings.h"

#include <stdexcept>

namespace graft {

namespace {

// Python's error is already set.
struct PythonError : std::runtime_error {
  PythonError() : std::runtime_error("Python raised an exception") {}
};

PyObject* checked(PyObject* object) {
  if (!object) {
    throw PythonError();
  }
  return object;
}

} // namespace

void check(bool succeeded) {
  if (!succeeded) {
    throw PythonError();
  }
}

void set_error(const std::exception& error) {
  if (!PyErr_Occurred()) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
}

PyObject* attribute(PyObject* torch_c, const char* name) {
  PyObject* object = checked(PyObject_GetAttrString(torch_c, name));
  Py_DECREF(object); // torch_c keeps it
  return object;
}

namespace {

// Binds `definition` to what `make` returns, unless what is there can take it.
template <class Make>
void add(PyObject* owner, PyObject* names, PyMethodDef& definition, const Make& make) {
#ifdef GRAFT_LOADED
  if (rewrite(owner, definition)) {
    return;
  }
  // Never deleted. The library's own stays as it is: it may be bound again.
  PyObject* made = checked(make(new PyMethodDef(definition)));
#else
  PyObject* made = checked(make(&definition));
#endif
  const bool is_set = PyDict_SetItemString(names, definition.ml_name, made) == 0;
  Py_DECREF(made);
  check(is_set);
}

PyObject* names_of(PyObject* type) {
  return reinterpret_cast<PyTypeObject*>(type)->tp_dict;
}

} // namespace

// Like type_ready for a method of a type: adds a descriptor to its dictionary.
void add_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions) {
  PyObject* owner = attribute(torch_c, type);
  for (auto* each = definitions; each->ml_name; ++each) {
    add(owner, names_of(owner), *each, [&](PyMethodDef* kept) {
      return PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(owner), kept);
    });
  }
  PyType_Modified(reinterpret_cast<PyTypeObject*>(owner));
}

// Like type_ready for a static method of a type.
void add_static_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions) {
  PyObject* owner = attribute(torch_c, type);
  for (auto* each = definitions; each->ml_name; ++each) {
    each->ml_flags &= ~METH_STATIC;
    add(owner, names_of(owner), *each, [&](PyMethodDef* kept) {
      PyObject* function = checked(PyCFunction_NewEx(kept, owner, nullptr));
      PyObject* method = PyStaticMethod_New(function);
      Py_DECREF(function);
      return method;
    });
  }
  PyType_Modified(reinterpret_cast<PyTypeObject*>(owner));
}

void add_functions(PyObject* torch_c, const char* module, PyMethodDef* definitions) {
  PyObject* owner = attribute(torch_c, module);
  PyObject* name = checked(PyModule_GetNameObject(owner));
  for (auto* each = definitions; each->ml_name; ++each) {
    add(owner, PyModule_GetDict(owner), *each, [&](PyMethodDef* kept) { return PyCFunction_NewEx(kept, owner, name); });
  }
  Py_DECREF(name);
}

} // namespace graft
