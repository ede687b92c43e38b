// The names that the Python classes of autograd nodes use, for graft_arguments.h.
#pragma once

#include "graft_python.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace graft {

// As torch::autograd::THPCppFunction. Releases have different pointers to nodes.
struct CppFunction {
  PyObject_HEAD
  decltype(std::declval<torch::autograd::Node&>().getptr()) cdata;
};

} // namespace graft

// ::graft::make_node_type adds them.
#define THP_FUNCTION_DEFAULT_PROPERTIES {nullptr, nullptr, nullptr, nullptr, nullptr}

namespace torch::autograd {
using THPCppFunction = ::graft::CppFunction;
void registerCppFunction(const std::type_info& type, PyTypeObject* pytype);
constexpr auto* _initFunctionPyTypeObject = &::graft::make_node_type;
} // namespace torch::autograd
