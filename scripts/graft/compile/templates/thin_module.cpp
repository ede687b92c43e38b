// The module of a thin wheel: it adds the bindings of its operators to the loaded torch._C.

#include "graft_bindings.h"

extern "C" const char* graft_binding_error(); // in trampolines.cpp

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

} // namespace

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() {
  if (const char* error = graft_binding_error()) {
    PyErr_SetString(PyExc_ImportError, error);
    return nullptr;
  }
  PyObject* torch_c = PyImport_ImportModule("torch._C");
  if (!torch_c) {
    return nullptr;
  }
  try {
    graft::bind_all(torch_c);
    graft::register_all_nodes(torch_c);
  } catch (const std::exception& error) {
    graft::set_error(error);
    Py_DECREF(torch_c);
    return nullptr;
  }
  Py_DECREF(torch_c);
  return PyModule_Create(&definition);
}
