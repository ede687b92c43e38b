// ${generated_comment}
//
// Python bindings of some of the added operators. Upstream generates one file for the methods and one for each module
// that functions are bound in; here they share a translation unit, each in a namespace of its own, because reading the
// headers costs more than compiling the bindings.

#include "graft_python.h"

#include "torch/csrc/autograd/generated/python_return_types.h"
${more_headers}
${ops_headers}
#ifndef GRAFT_LOADED
${view_meta_headers}
#endif

#include "graft_bindings.h"

${nodes}

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

[[maybe_unused]] void addReturnType(PyObject* module, const char* name, PyTypeObject* type) {
  graft::check(PyObject_SetAttrString(module, name, reinterpret_cast<PyObject*>(type)) == 0);
}

void bind(PyObject* torch_c) {
  ${bind_namespaces}
  {
    using namespace torch::autograd;
    [[maybe_unused]] auto* return_types_module = graft::attribute(torch_c, "_return_types");
    ${py_return_types_registrations}
  }
#ifndef GRAFT_LOADED // a class can be bound once in a process
  {
    using namespace torch::functionalization;
    [[maybe_unused]] const py::handle module(torch_c);
    ${view_meta_bindings}
  }
#endif
}

const graft::Bindings bindings(&bind, nullptr);

} // namespace
