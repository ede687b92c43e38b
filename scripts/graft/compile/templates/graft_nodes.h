// What the Python classes of autograd nodes use. light/ has another file of this name.
#pragma once

#include "graft_python.h"

#include "torch/csrc/autograd/python_cpp_function.h"
#include "torch/csrc/autograd/saved_variable.h"

#include <ATen/ATen.h>
#include <c10/core/SymNodeImpl.h>
