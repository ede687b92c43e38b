// For operators that are being edited: they register functions as pointers. All kernels of one type then share a boxed
// function, so less is compiled. A call reads one more pointer for each kernel.
#pragma once

#include <torch/library.h>

#ifndef GRAFT_LOADED // there a slot has the pointer
#undef TORCH_FN
#define TORCH_FN(function) (&function)
#endif
