// Adds the bindings of all units to the classes and modules of torch._C. It includes none of PyTorch's headers, so it
// compiles quickly and does not depend on the operators.

#include "graft_bindings.h"

#include <stdexcept>

namespace graft {

namespace {

const Bindings* all_bindings = nullptr;

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

Bindings::Bindings(void (*bind)(PyObject*), void (*register_nodes)(PyObject*))
    : bind(bind), register_nodes(register_nodes), next(all_bindings) {
  all_bindings = this;
}

PyObject* attribute(PyObject* torch_c, const char* name) {
  PyObject* object = checked(PyObject_GetAttrString(torch_c, name));
  Py_DECREF(object); // torch_c keeps it
  return object;
}

// Like type_ready for a method of a type: adds a descriptor to its dictionary.
void add_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions) {
  auto* owner = reinterpret_cast<PyTypeObject*>(attribute(torch_c, type));
  for (auto* definition = definitions; definition->ml_name; ++definition) {
    PyObject* descriptor = checked(PyDescr_NewMethod(owner, definition));
    const bool is_set = PyDict_SetItemString(owner->tp_dict, definition->ml_name, descriptor) == 0;
    Py_DECREF(descriptor);
    check(is_set);
  }
  PyType_Modified(owner);
}

// Like type_ready for a static method of a type.
void add_static_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions) {
  auto* owner = reinterpret_cast<PyTypeObject*>(attribute(torch_c, type));
  for (auto* definition = definitions; definition->ml_name; ++definition) {
    definition->ml_flags &= ~METH_STATIC;
    PyObject* function = checked(PyCFunction_NewEx(definition, reinterpret_cast<PyObject*>(owner), nullptr));
    PyObject* method = PyStaticMethod_New(function);
    Py_DECREF(function);
    const bool is_set = PyDict_SetItemString(owner->tp_dict, definition->ml_name, checked(method)) == 0;
    Py_DECREF(method);
    check(is_set);
  }
  PyType_Modified(owner);
}

void add_functions(PyObject* torch_c, const char* module, PyMethodDef* definitions) {
  check(PyModule_AddFunctions(attribute(torch_c, module), definitions) == 0);
}

void bind_all(PyObject* torch_c) {
  for (const auto* unit = all_bindings; unit; unit = unit->next) {
    unit->bind(torch_c);
  }
}

void register_all_nodes(PyObject* torch_c) {
  PyObject* functions = attribute(torch_c, "_functions");
  for (const auto* unit = all_bindings; unit; unit = unit->next) {
    unit->register_nodes(functions);
  }
}

} // namespace graft
