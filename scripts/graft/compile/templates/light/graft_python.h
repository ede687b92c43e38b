// The names that generated bindings use, for graft_arguments.h; ::graft, since replaced nodes are in a namespace of that
// name, too. Where they use others, the file of this name with
// PyTorch's headers is taken.
#pragma once

#include "graft_arguments.h"

#include <torch/csrc/utils/out_types.h>
#include <torch/csrc/utils/pycfunction_helpers.h>
#include <torch/csrc/utils/structseq.h>

#define HANDLE_TH_ERRORS         \
  try {                          \
    ::graft::Warnings warnings_;   \
    try {
#define END_HANDLE_TH_ERRORS       \
    } catch (...) {                \
      warnings_.set_in_exception(); \
      throw;                       \
    }                              \
  } catch (...) {                  \
    ::graft::set_python_error();     \
    return nullptr;                \
  }
#define THPVariable_Unpack ::graft::unpack
#define THPVariable_Wrap ::graft::wrap

extern PyObject* THPVariableClass;

namespace torch::tensors {
at::Device get_default_device();
}

namespace at::impl {
bool tensor_has_dispatch(const at::Tensor& tensor);
}

namespace pybind11 {
using gil_scoped_release = ::graft::NoGil;
using ::graft::cast;
using object = ::graft::Object;
using return_value_policy = ::graft::Policy;
} // namespace pybind11
namespace py = pybind11;

namespace torch {
template <int N>
using ParsedArgs = ::graft::Places<N>;
using PythonArgParser = ::graft::Parser;
using ::graft::handle_torch_function;
using ::graft::has_torch_function;
} // namespace torch

namespace torch::utils {
using ::graft::maybe_initialize_device;
}

namespace torch::autograd::utils {
using ::graft::wrap;
}
