// The entry of a library that `graft.load` opens: it adds its bindings to torch._C. loads.cpp has opened it.

#include "graft_bindings.h"

#include <utility>
#include <vector>

namespace {

// The classes of the autograd nodes, by name. They are static variables, which may be initialized once.
auto& nodes = *new std::vector<std::pair<PyObject*, PyObject*>>;

void collect_nodes(PyObject* before, PyObject* after) {
  PyObject *name, *node;
  for (Py_ssize_t place = 0; PyDict_Next(after, &place, &name, &node);) {
    if (PyDict_GetItem(before, name) != node) {
      nodes.emplace_back(Py_NewRef(name), Py_NewRef(node));
    }
  }
}

// A library may be bound again after others.
void register_nodes(PyObject* torch_c) {
  static bool is_registered = false;
  PyObject* names = PyModule_GetDict(graft::attribute(torch_c, "_functions"));
  if (!is_registered) {
    PyObject* before = PyDict_Copy(names);
    graft::check(before != nullptr);
    graft::register_all_nodes(torch_c);
    collect_nodes(before, names);
    Py_DECREF(before);
    is_registered = true;
  }
  for (const auto& [name, node] : nodes) {
    graft::check(PyDict_SetItem(names, name, node) == 0);
  }
}

} // namespace

// Called with the GIL. Returns false, with Python's error set, if something failed.
extern "C" __attribute__((visibility("default"))) bool graft_bind(PyObject* torch_c) {
  try {
    graft::bind_all(torch_c);
    register_nodes(torch_c);
    return true;
  } catch (const std::exception& error) {
    graft::set_error(error);
    return false;
  }
}
