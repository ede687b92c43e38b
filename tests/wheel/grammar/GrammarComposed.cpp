// Kernels for CompositeExplicitAutograd: under vmap those that only call operators are their own batching rules.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TensorIterator.h>

namespace at::native {

Tensor gr_chain(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return self.mul(alpha).add(other).tanh();
}

Tensor gr_normalize(const Tensor& self, int64_t dim, double eps) {
  TORCH_CHECK(self.dim() > 0, "gr_normalize(): expected a dimension to normalize over");
  const auto centered = self - self.mean({dim}, true);
  return centered / centered.square().mean({dim}, true).add_(eps).sqrt_();
}

Tensor gr_project(const Tensor& self, const Tensor& weight, const std::optional<Tensor>& bias) {
  TORCH_CHECK(
      self.size(-1) == weight.size(1), "gr_project(): expected ", weight.size(1), " columns, got ", self.size(-1));
  auto result = self.matmul(weight.t());
  return bias && bias->defined() ? result.add_(*bias) : result;
}

std::tuple<Tensor, Tensor> gr_signs(const Tensor& self) {
  return {self.clamp_min(0), self.clamp_max(0)};
}

// Knows the shape alone, so that one result is that of every sample.
Tensor gr_places(const Tensor& self) {
  return at::arange(self.numel(), self.options().dtype(kLong)).view(self.sizes());
}

Tensor gr_cast_product(const Tensor& self, const Tensor& other) {
  return self.matmul(other);
}

Tensor gr_jitter(const Tensor& self) {
  return self + at::rand(self.sizes(), self.options());
}

Tensor gr_round_through(const Tensor& self) {
  return self.round();
}

Tensor gr_by_value(const Tensor& self) {
  return self * self.max().item();
}

Tensor gr_by_pointer(const Tensor& self, const Tensor& other) {
  const auto values = self.contiguous();
  const auto result = at::empty_like(values);
  const auto* from = values.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  for (const auto i : c10::irange(values.numel())) {
    to[i] = 2 * from[i];
  }
  return result + other;
}

Tensor gr_by_iterator(const Tensor& self) {
  TORCH_CHECK(self.scalar_type() == kFloat, "gr_by_iterator(): expected float, got ", self.scalar_type());
  Tensor result;
  auto iterator = TensorIteratorConfig().add_output(result).add_const_input(self).build();
  if (iterator.data_ptr(1) == nullptr) {
    return iterator.output(); // There is no data: the tensors are fake.
  }
  iterator.for_each([](char** data, const int64_t* strides, int64_t size) {
    for (const auto i : c10::irange(size)) {
      *reinterpret_cast<float*>(data[0] + i * strides[0]) = -*reinterpret_cast<float*>(data[1] + i * strides[1]);
    }
  });
  return iterator.output();
}

Tensor gr_by_copy(const Tensor& self) {
  auto result = at::empty(self.sizes(), self.options());
  result.copy_(self).mul_(2);
  return result;
}

Tensor gr_by_shape(const Tensor& self) {
  return self.masked_select(self.ne(0));
}

Tensor gr_shaken(const Tensor& self) {
  return self + at::rand(self.sizes(), self.options());
}

Tensor gr_on_cpu(const Tensor& self) {
  return self + 1;
}

Tensor gr_not_on_cpu(const Tensor& self) {
  return self + 2;
}

} // namespace at::native
