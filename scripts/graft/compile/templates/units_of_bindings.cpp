// The list of all units of bindings in a library.

#include "graft_bindings.h"

namespace graft {

namespace {

const Bindings* all_bindings = nullptr;

} // namespace

Bindings::Bindings(void (*bind)(PyObject*), void (*register_nodes)(PyObject*))
    : bind(bind), register_nodes(register_nodes), next(all_bindings) {
  all_bindings = this;
}

void bind_all(PyObject* torch_c) {
  for (const auto* unit = all_bindings; unit; unit = unit->next) {
    if (unit->bind) {
      unit->bind(torch_c);
    }
  }
}

void register_all_nodes(PyObject* torch_c) {
  PyObject* functions = attribute(torch_c, "_functions");
  for (const auto* unit = all_bindings; unit; unit = unit->next) {
    if (unit->register_nodes) {
      unit->register_nodes(functions);
    }
  }
}

} // namespace graft
