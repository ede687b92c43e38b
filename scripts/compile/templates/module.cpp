// torch._C of the grafted wheel: the base's module, and the bindings of the added operators. It includes none of
// PyTorch's headers, so that it compiles in no time and does not depend on the operators.

#include "graft_bindings.h"

#include <stdexcept>

extern "C" PyObject* initModule(); // of libtorch_python
extern "C" const char* graft_binding_error(); // of trampolines.cpp

namespace graft {

namespace {

const Bindings* all_bindings = nullptr;
PyObject* autograd_init = nullptr;

// Python has its error set already.
struct PythonError : std::runtime_error {
  PythonError() : std::runtime_error("Python raised an exception") {}
};

PyObject* checked(PyObject* object) {
  if (!object) {
    throw PythonError();
  }
  return object;
}

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

// The base makes torch._C._functions, the module of the autograd nodes, in _autograd_init; this stands in for it.
PyObject* init_autograd_and_nodes(PyObject* torch_c, PyObject*) {
  PyObject* result = PyObject_CallNoArgs(autograd_init);
  if (!result) {
    return nullptr;
  }
  try {
    PyObject* functions = attribute(torch_c, "_functions");
    for (const auto* unit = all_bindings; unit; unit = unit->next) {
      unit->register_nodes(functions);
    }
  } catch (const std::exception& error) {
    Py_DECREF(result);
    set_error(error);
    return nullptr;
  }
  return result;
}

PyMethodDef autograd_init_definition[] = {
    {"_autograd_init", init_autograd_and_nodes, METH_NOARGS, nullptr},
    {nullptr}};

void add_bindings(PyObject* torch_c) {
  autograd_init = Py_NewRef(attribute(torch_c, "_autograd_init"));
  check(PyModule_AddFunctions(torch_c, autograd_init_definition) == 0);
  for (const auto* unit = all_bindings; unit; unit = unit->next) {
    unit->bind(torch_c);
  }
}

} // namespace

Bindings::Bindings(void (*bind)(PyObject*), void (*register_nodes)(PyObject*))
    : bind(bind), register_nodes(register_nodes), next(all_bindings) {
  all_bindings = this;
}

PyObject* attribute(PyObject* torch_c, const char* name) {
  PyObject* object = checked(PyObject_GetAttrString(torch_c, name));
  Py_DECREF(object); // torch_c keeps it
  return object;
}

// What type_ready does with a method of a type: a descriptor in its dictionary.
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

// What type_ready does with a static method of a type.
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

} // namespace graft

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() {
  if (const char* error = graft_binding_error()) {
    PyErr_SetString(PyExc_ImportError, error);
    return nullptr;
  }
  PyObject* module = initModule();
  if (!module) {
    return nullptr;
  }
  try {
    graft::add_bindings(module);
  } catch (const std::exception& error) {
    graft::set_error(error);
    return nullptr;
  }
  return module;
}
