// ${generated_comment}
//
// Python bindings of the operators that the graft adds. Upstream generates one file for the methods and one for each
// module that functions are bound in; here they share a translation unit, each in a namespace of its own, because
// reading the headers costs far more than compiling the bindings.

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
static PyObject* TypeError_to_NotImplemented_(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* result = Func(self, args, kwargs);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    result = Py_NewRef(Py_NotImplemented);
  }
  return result;
}

namespace graft_methods {

${methods_forwards}

${methods_methods}

static PyMethodDef definitions[] = {
  ${methods_method_defs}
  {nullptr}
};

} // namespace graft_methods

namespace graft_torch {

[[maybe_unused]] static PyObject* THPVariableFunctionsModule = nullptr;

${torch_forwards}

${torch_methods}

static PyMethodDef definitions[] = {
  ${torch_method_defs}
  {nullptr}
};

} // namespace graft_torch

namespace graft_nn {

[[maybe_unused]] static PyObject* THPNNVariableFunctionsModule = nullptr;

${nn_forwards}

${nn_methods}

static PyMethodDef definitions[] = {
  ${nn_method_defs}
  {nullptr}
};

} // namespace graft_nn

namespace graft_fft {

[[maybe_unused]] static PyObject* THPFFTVariableFunctionsModule = nullptr;

${fft_forwards}

${fft_methods}

static PyMethodDef definitions[] = {
  ${fft_method_defs}
  {nullptr}
};

} // namespace graft_fft

namespace graft_linalg {

[[maybe_unused]] static PyObject* THPLinalgVariableFunctionsModule = nullptr;

${linalg_forwards}

${linalg_methods}

static PyMethodDef definitions[] = {
  ${linalg_method_defs}
  {nullptr}
};

} // namespace graft_linalg

namespace graft_nested {

[[maybe_unused]] static PyObject* THPNestedVariableFunctionsModule = nullptr;

${nested_forwards}

${nested_methods}

static PyMethodDef definitions[] = {
  ${nested_method_defs}
  {nullptr}
};

} // namespace graft_nested

namespace graft_sparse {

[[maybe_unused]] static PyObject* THPSparseVariableFunctionsModule = nullptr;

${sparse_forwards}

${sparse_methods}

static PyMethodDef definitions[] = {
  ${sparse_method_defs}
  {nullptr}
};

} // namespace graft_sparse

namespace graft_special {

[[maybe_unused]] static PyObject* THPSpecialVariableFunctionsModule = nullptr;

${special_forwards}

${special_methods}

static PyMethodDef definitions[] = {
  ${special_method_defs}
  {nullptr}
};

} // namespace graft_special

} // namespace torch::autograd

namespace torch::functionalization {} // for operators that are no views

namespace graft {

namespace {

// What type_ready does with a method of a type: a descriptor in its dictionary.
void add_methods(py::handle type, PyMethodDef* definitions) {
  auto* type_object = reinterpret_cast<PyTypeObject*>(type.ptr());
  for (auto* definition = definitions; definition->ml_name; ++definition) {
    auto descriptor = py::reinterpret_steal<py::object>(PyDescr_NewMethod(type_object, definition));
    if (!descriptor || PyDict_SetItemString(type_object->tp_dict, definition->ml_name, descriptor.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  PyType_Modified(type_object);
}

// What type_ready does with a static method of a type.
void add_static_methods(py::handle type, PyMethodDef* definitions) {
  auto* type_object = reinterpret_cast<PyTypeObject*>(type.ptr());
  for (auto* definition = definitions; definition->ml_name; ++definition) {
    definition->ml_flags &= ~METH_STATIC;
    auto function = py::reinterpret_steal<py::object>(PyCFunction_NewEx(definition, type.ptr(), nullptr));
    auto method = function ? py::reinterpret_steal<py::object>(PyStaticMethod_New(function.ptr())) : function;
    if (!method || PyDict_SetItemString(type_object->tp_dict, definition->ml_name, method.ptr()) != 0) {
      throw py::error_already_set();
    }
  }
  PyType_Modified(type_object);
}

void add_functions(py::handle module, PyMethodDef* definitions) {
  if (PyModule_AddFunctions(module.ptr(), definitions) != 0) {
    throw py::error_already_set();
  }
}

[[maybe_unused]] void addReturnType(py::handle module, const char* name, PyTypeObject* type) {
  py::setattr(module, name, reinterpret_cast<PyObject*>(type));
}

PyObject* autograd_init = nullptr;

// The base makes torch._C._functions, the module of the autograd nodes, in _autograd_init; this stands in for it.
PyObject* init_autograd_and_nodes(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  auto result = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(autograd_init));
  if (!result) {
    return nullptr;
  }
  auto functions = py::module_::import("torch._C").attr("_functions");
  ${register_nodes}
  return result.release().ptr();
  END_HANDLE_TH_ERRORS
}

PyMethodDef autograd_init_definition[] = {
    {"_autograd_init", init_autograd_and_nodes, METH_NOARGS, nullptr},
    {nullptr}};

} // namespace

// Adds the bindings to `module`, which is torch._C as the base's initModule() made it.
void add_bindings(py::handle module) {
  namespace bound = torch::autograd;
  autograd_init = py::object(module.attr("_autograd_init")).release().ptr();
  add_functions(module, autograd_init_definition);
  auto return_types_module = module.attr("_return_types");
  {
    using namespace torch::autograd;
    ${py_return_types_registrations}
  }
  auto functionalization = py::module_(module.attr("_functionalization"));
  {
    using namespace torch::functionalization;
    ${view_meta_bindings}
  }
  add_methods(module.attr("TensorBase"), bound::graft_methods::definitions);

  auto variable_functions = module.attr("_VariableFunctionsClass");
  bound::graft_torch::THPVariableFunctionsModule = module.attr("_VariableFunctions").ptr();
  add_static_methods(variable_functions, bound::graft_torch::definitions);

  bound::graft_nn::THPNNVariableFunctionsModule = module.attr("_nn").ptr();
  add_functions(module.attr("_nn"), bound::graft_nn::definitions);

  bound::graft_fft::THPFFTVariableFunctionsModule = module.attr("_fft").ptr();
  add_functions(module.attr("_fft"), bound::graft_fft::definitions);

  bound::graft_linalg::THPLinalgVariableFunctionsModule = module.attr("_linalg").ptr();
  add_functions(module.attr("_linalg"), bound::graft_linalg::definitions);

  bound::graft_nested::THPNestedVariableFunctionsModule = module.attr("_nested").ptr();
  add_functions(module.attr("_nested"), bound::graft_nested::definitions);

  bound::graft_sparse::THPSparseVariableFunctionsModule = module.attr("_sparse").ptr();
  add_functions(module.attr("_sparse"), bound::graft_sparse::definitions);

  bound::graft_special::THPSpecialVariableFunctionsModule = module.attr("_special").ptr();
  add_functions(module.attr("_special"), bound::graft_special::definitions);
}

} // namespace graft

extern "C" PyObject* initModule(); // of libtorch_python
extern "C" const char* graft_binding_error(); // of trampolines.cpp

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
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    return nullptr;
  }
  return module;
}
