// The interface between the units of generated bindings and the module that adds them to torch._C.
#pragma once

#include <Python.h>

#include <exception>

namespace graft {

// The bindings of one unit. Each unit defines one at namespace scope, which adds itself to the list in bindings.cpp.
struct Bindings {
  Bindings(void (*bind)(PyObject* torch_c), void (*register_nodes)(PyObject* functions));

  // Adds the operators to the classes and modules of torch._C. May throw py::error_already_set.
  void (*bind)(PyObject* torch_c);
  // Adds the autograd nodes to torch._C._functions, which the base creates later.
  void (*register_nodes)(PyObject* functions);
  const Bindings* next;
};

// Add the bindings of all units. May throw std::exception; pass it to set_error.
void bind_all(PyObject* torch_c);
void register_all_nodes(PyObject* torch_c);

// Sets Python's error to `error`, unless it is set already.
void set_error(const std::exception& error);
void check(bool succeeded);

// Add the methods or functions in `definitions`, which ends with a null name. If they throw std::exception, Python's
// error is set.
void add_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions);
void add_static_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions);
void add_functions(PyObject* torch_c, const char* module, PyMethodDef* definitions);

// The attribute `name` of torch._C, borrowed.
PyObject* attribute(PyObject* torch_c, const char* name);

} // namespace graft
