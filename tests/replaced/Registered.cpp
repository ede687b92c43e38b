// Registered as PyTorch registers it: an autocast policy and a batching rule that PyTorch's own operators lack, and a
// batching rule in place of PyTorch's.

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

TORCH_LIBRARY_IMPL(aten, AutocastCPU, m) {
  KERNEL_CPU(histc, fp32)
}

} // namespace
} // namespace at::autocast

namespace at::native {
namespace {

// Not the counts, so that it is told from PyTorch's loop.
Tensor histc_batch_rule(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  return at::zeros({bins}, kFloat);
}

// In place of PyTorch's.
Tensor trace_batch_rule(const Tensor& self) {
  return at::zeros({1}, kDouble);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("histc", histc_batch_rule);
  m.impl("trace", trace_batch_rule);
}

} // namespace
} // namespace at::native
