#include <ATen/functorch/BatchRulesHelper.h>

namespace at::functorch {

namespace {

// In row-major order the samples of a batch whose dimension comes first follow each other.
std::tuple<Tensor, std::optional<int64_t>> gdh_batch_rule(const Tensor& self, std::optional<int64_t> self_bdim) {
  const auto in_front = moveBatchDimToFront(self, self_bdim);
  return {reshape_dim_outof_symint(0, in_front.sym_size(0), at::gdh(in_front)), 0};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  VMAP_SUPPORT(gdh, gdh_batch_rule);
}

} // namespace at::functorch
