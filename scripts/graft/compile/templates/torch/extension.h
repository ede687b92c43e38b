// For sources that were written for torch.utils.cpp_extension. PyTorch's header of this name needs Python, which the
// library of the operators does not: it is also loaded by C++ programs.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/types.h>
