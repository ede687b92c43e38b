#pragma once

// What the kernels use and PyTorch 2.6 has not got.

#include <c10/core/SymBool.h>

#ifndef TORCH_GUARD_OR_FALSE
#define TORCH_GUARD_OR_FALSE(condition) TORCH_GUARD_SIZE_OBLIVIOUS(condition)
#endif
