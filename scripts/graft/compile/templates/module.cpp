// torch._C of the grafted wheel: the base's module with the bindings of the added operators.

#include "graft_bindings.h"

extern "C" PyObject* initModule(); // in libtorch_python
extern "C" const char* graft_binding_error(); // in trampolines.cpp

namespace graft {

namespace {

PyObject* autograd_init = nullptr;

// Wraps _autograd_init, in which the base creates torch._C._functions, the module of the autograd nodes.
PyObject* init_autograd_and_nodes(PyObject* torch_c, PyObject*) {
  PyObject* result = PyObject_CallNoArgs(autograd_init);
  if (!result) {
    return nullptr;
  }
  try {
    register_all_nodes(torch_c);
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
  bind_all(torch_c);
}

} // namespace

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
