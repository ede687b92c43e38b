#pragma once
#include <ATen/native/cpu/Loops.h>
#include <cuda_emulation.h>

namespace at::native {

template <typename F>
void gpu_kernel(TensorIteratorBase& iter, const F& f) {
  cpu_kernel(iter, f);
}

template <typename F>
void gpu_kernel_with_scalars(TensorIteratorBase& iter, const F& f) {
  cpu_kernel(iter, f);
}

} // namespace at::native
