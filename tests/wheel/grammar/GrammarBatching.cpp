#include <ATen/functorch/BatchRulesHelper.h>

// Batching rules of a folder's own, written as PyTorch's are (aten/src/ATen/functorch/BatchRules*.cpp).

namespace at::functorch {

namespace {

// Sums over a dimension: a batch in front moves the others.
std::tuple<Tensor, std::optional<int64_t>>
gr_row_sum_rule(const Tensor& self, std::optional<int64_t> self_bdim, int64_t dim, bool keepdim) {
  const auto in_front = moveBatchDimToFront(self, self_bdim);
  return {at::gr_row_sum(in_front, getPhysicalDim(self, self_bdim.has_value(), dim), keepdim), 0};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  VMAP_SUPPORT(gr_row_sum, gr_row_sum_rule);
  VMAP_SUPPORT(gr_cube, BASIC_UNARY_BATCH_RULE(ATEN_FN(gr_cube)));
  // Tagged pointwise: this takes the place of the rule that is derived from the tag.
  POINTWISE_BOXED(gr_mix);
}

} // namespace at::functorch
