#include <ATen/functorch/BatchRulesHelper.h>
#include <ATen/NativeFunctions.h>

// Batching rules of a folder's own, written as PyTorch's are (aten/src/ATen/functorch/BatchRules*.cpp).

namespace at::functorch {

namespace {

// Sums over a dimension: a batch in front moves the others.
std::tuple<Tensor, std::optional<int64_t>>
gr_row_sum_rule(const Tensor& self, std::optional<int64_t> self_bdim, int64_t dim, bool keepdim) {
  const auto in_front = moveBatchDimToFront(self, self_bdim);
  return {at::gr_row_sum(in_front, getPhysicalDim(self, self_bdim.has_value(), dim), keepdim), 0};
}

// Of an operator that returns nothing. What is written needs a batch if the other argument has one.
void gr_add_to_rule(
    const Tensor& self,
    std::optional<int64_t> self_bdim,
    const Tensor& x,
    std::optional<int64_t> x_bdim) {
  if (!self_bdim) {
    vmapIncompatibleInplaceError("gr_add_to");
  }
  auto all = moveBatchDimToFront(self, self_bdim);
  const auto rank = rankWithoutBatchDim(self, self_bdim);
  at::gr_add_to(all, maybePadToLogicalRank(moveBatchDimToFront(x, x_bdim), x_bdim, rank));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  VMAP_SUPPORT(gr_row_sum, gr_row_sum_rule);
  VMAP_SUPPORT(gr_add_to, gr_add_to_rule);
  VMAP_SUPPORT(gr_cube, BASIC_UNARY_BATCH_RULE(ATEN_FN(gr_cube)));
  // Tagged pointwise: this takes the place of the rule that is derived from the tag.
  POINTWISE_BOXED(gr_mix);
}

} // namespace at::functorch

// Kernels in the place of those that are derived. These add 100, so that it shows which one runs.

namespace at::native {

Tensor gr_own(const Tensor& self) {
  return self + 1;
}

Tensor gr_own_composite(const Tensor& self) {
  return self + 1;
}

Tensor gr_own_composite(const Tensor& self, int64_t step) {
  return self + step;
}

namespace {

Tensor gr_own_rule(const Tensor& self) {
  return self + 100;
}

Tensor gr_own_step_rule(const Tensor& self, int64_t step) {
  return self + (100 + step);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {
  m.impl("gr_own_pointwise", gr_own_rule);
  m.impl("gr_own_composite", gr_own_rule);
  m.impl("gr_own_explicit", gr_own_rule);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("gr_own_composite.batched", gr_own_step_rule);
}

TORCH_LIBRARY_IMPL(aten, AutocastCPU, m) {
  m.impl("gr_own_cast", gr_own_rule);
}

} // namespace at::native
