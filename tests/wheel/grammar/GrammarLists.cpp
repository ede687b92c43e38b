// Kernels that take and return lists of tensors, which vmap has to loop over.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>

namespace at::native {

// A tensor that has no weight is its own product.
static Tensor weighted(const Tensor& tensor, const c10::List<std::optional<Tensor>>& weights, size_t i) {
  const std::optional<Tensor> weight = i < weights.size() ? weights.get(i) : std::nullopt;
  return weight && weight->defined() ? tensor * *weight : tensor.clone();
}

std::tuple<Tensor, std::vector<Tensor>>
gr_products(TensorList tensors, const c10::List<std::optional<Tensor>>& weights) {
  std::vector<Tensor> products;
  for (const auto i : c10::irange(tensors.size())) {
    products.push_back(weighted(tensors[i], weights, i));
  }
  return {at::stack(products).sum(0), products};
}

Tensor gr_total(const Tensor& self, TensorList tensors, const c10::List<std::optional<Tensor>>& weights) {
  return self.clone().gr_total_(tensors, weights);
}

Tensor& gr_total_(Tensor& self, TensorList tensors, const c10::List<std::optional<Tensor>>& weights) {
  for (const auto i : c10::irange(tensors.size())) {
    self.add_(weighted(tensors[i], weights, i));
  }
  return self;
}

std::vector<Tensor> gr_total_backward(const Tensor& grad, const c10::List<std::optional<Tensor>>& weights, int64_t n) {
  std::vector<Tensor> grads;
  for (const auto i : c10::irange(n)) {
    grads.push_back(weighted(grad, weights, i));
  }
  return grads;
}

// The positive elements of the tensors that have some.
std::vector<Tensor> gr_positive(TensorList tensors) {
  std::vector<Tensor> kept;
  for (const Tensor& tensor : tensors) {
    if (tensor.gt(0).any().item<bool>()) {
      kept.push_back(tensor.masked_select(tensor.gt(0)));
    }
  }
  return kept;
}

Tensor gr_shaken_together(TensorList tensors) {
  return at::stack(tensors) + at::rand_like(tensors[0]);
}

} // namespace at::native
