// The entry of a library that `graft.load` opens: it adds its bindings to torch._C. loads.cpp has opened it.

#include "graft_bindings.h"

// Called with the GIL. Returns false, with Python's error set, if something failed.
extern "C" __attribute__((visibility("default"))) bool graft_bind(PyObject* torch_c) {
  try {
    graft::bind_all(torch_c);
    graft::register_all_nodes(torch_c);
    return true;
  } catch (const std::exception& error) {
    graft::set_error(error);
    return false;
  }
}
