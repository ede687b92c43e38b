// ${generated_comment}
//
// Python bindings of some of the added operators. Upstream generates one file for the methods and one for each module
// that functions are bound in; here they share a translation unit, each in a namespace of its own, because reading the
// headers costs more than compiling the bindings.

#include <Python.h>

#include "torch/csrc/Device.h"
#include "torch/csrc/DynamicTypes.h"
#include "torch/csrc/Exceptions.h"
#include "torch/csrc/Size.h"
#include "torch/csrc/autograd/generated/VariableType.h"
#include "torch/csrc/autograd/generated/python_return_types.h"
#include "torch/csrc/autograd/generated/variable_factories.h"
#include "torch/csrc/autograd/python_variable.h"
#include "torch/csrc/autograd/utils/error_messages.h"
#include "torch/csrc/autograd/utils/python_arg_parsing.h"
#include "torch/csrc/autograd/utils/wrap_outputs.h"
#include "torch/csrc/jit/frontend/tracer.h"
#include "torch/csrc/utils/device_lazy_init.h"
#include "torch/csrc/utils/object_ptr.h"
#include "torch/csrc/utils/out_types.h"
#include "torch/csrc/utils/pybind.h"
#include "torch/csrc/utils/pycfunction_helpers.h"
#include "torch/csrc/utils/python_arg_parser.h"
#include "torch/csrc/utils/python_numbers.h"
#include "torch/csrc/utils/python_strings.h"
#include "torch/csrc/utils/structseq.h"
#include "torch/csrc/utils/tensor_layouts.h"
#include "torch/csrc/utils/tensor_list.h"
#include "torch/csrc/utils/tensor_memoryformats.h"
#include "torch/csrc/utils/tensor_new.h"
#include "torch/csrc/utils/tensor_numpy.h"
#include "torch/csrc/utils/tensor_types.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/TorchDispatchUtils.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Stream.h>
${ops_headers}
${view_meta_headers}

#include "graft_bindings.h"

${python_functions}

using at::ArrayRef;
using at::Backend;
using at::Device;
using at::DeviceGuard;
using at::device_of;
using at::Generator;
using at::IntArrayRef;
using at::Layout;
using at::MemoryFormat;
using at::OptionalDeviceGuard;
using at::Scalar;
using at::ScalarType;
using at::Tensor;
using at::TensorList;
using at::TensorOptions;
using c10::Stream;
using torch::utils::check_out_type_matches;
using namespace torch::autograd::utils;

namespace torch::autograd::generated {

${py_return_types}

} // namespace torch::autograd::generated

namespace torch::autograd {

// As in upstream's python_variable_methods.cpp: a binary operator answers NotImplemented where its function raises
// TypeError, so that Python goes on to the other operand.
template <PyObject* (*Func)(PyObject*, PyObject*, PyObject*)>
[[maybe_unused]] static PyObject* TypeError_to_NotImplemented_(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* result = Func(self, args, kwargs);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    result = Py_NewRef(Py_NotImplemented);
  }
  return result;
}

${namespaces}

} // namespace torch::autograd

namespace torch::functionalization {} // for operators that are no views

namespace {

[[maybe_unused]] void addReturnType(py::handle module, const char* name, PyTypeObject* type) {
  py::setattr(module, name, reinterpret_cast<PyObject*>(type));
}

void bind(PyObject* torch_c) {
  [[maybe_unused]] const py::handle module(torch_c);
  ${bind_namespaces}
  {
    using namespace torch::autograd;
    [[maybe_unused]] auto return_types_module = module.attr("_return_types");
    ${py_return_types_registrations}
  }
#ifndef GRAFT_LOADED // a class can be bound once in a process
  {
    using namespace torch::functionalization;
    ${view_meta_bindings}
  }
#endif
}

void register_nodes([[maybe_unused]] PyObject* functions) {
  ${register_nodes}
}

const graft::Bindings bindings(&bind, &register_nodes);

} // namespace
