// For operators that are being edited: registrations pass functions as pointers. The dispatcher's boxed function is then
// one for all kernels of the same type, not one for each kernel, and less is compiled. A call goes through one pointer
// more for each kernel.
#pragma once

#include <torch/library.h>

#ifndef GRAFT_LOADED // there a slot has the pointer
#undef TORCH_FN
#define TORCH_FN(function) (&function)
#endif
