// The interface between the units of generated bindings and the module that adds them to torch._C.
#pragma once

#include <Python.h>

#include <exception>

// In the library that all loads of a process share, for theirs.
#ifdef GRAFT_LOADED
#define GRAFT_SHARED __attribute__((visibility("default")))
#else
#define GRAFT_SHARED
#endif

namespace graft {

// The bindings of one unit. Each unit defines one at namespace scope, which adds itself to a list. Functions may be null.
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
GRAFT_SHARED void set_error(const std::exception& error);
GRAFT_SHARED void check(bool succeeded);

// Add the methods or functions in `definitions`, which ends with a null name. If they throw std::exception, Python's
// error is set.
GRAFT_SHARED void add_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions);
GRAFT_SHARED void add_static_methods(PyObject* torch_c, const char* type, PyMethodDef* definitions);
GRAFT_SHARED void add_functions(PyObject* torch_c, const char* module, PyMethodDef* definitions);

#ifdef GRAFT_LOADED
// Gives the function that `owner` has of this name, if there is one, the contents of `definition`. Its identity stays.
bool rewrite(PyObject* owner, PyMethodDef& definition);
#endif

// The attribute `name` of torch._C, borrowed.
GRAFT_SHARED PyObject* attribute(PyObject* torch_c, const char* name);

} // namespace graft
