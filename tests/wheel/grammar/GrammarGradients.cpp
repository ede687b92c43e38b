// Operators for what derivatives.yaml can say.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>

namespace at::native {

Tensor gr_logistic(const Tensor& self) {
  return self.sigmoid();
}

Tensor& gr_logistic_(Tensor& self) {
  return self.sigmoid_();
}

double gr_keep_all_factor(
    double a,
    std::optional<double> b,
    IntArrayRef dims,
    std::string_view mode,
    int64_t n,
    const Scalar& s,
    const std::optional<Scalar>& t,
    OptionalIntArrayRef more,
    OptionalIntArrayRef size,
    std::optional<ArrayRef<double>> factors,
    bool flag,
    std::optional<std::string_view> word,
    std::optional<ScalarType> dtype) {
  double sum = a + b.value_or(0) + static_cast<double>(mode.size()) + static_cast<double>(n) + s.toDouble();
  for (const int64_t dim : dims) {
    sum += static_cast<double>(dim);
  }
  for (const int64_t value : more.value_or(IntArrayRef{})) {
    sum += static_cast<double>(value);
  }
  for (const int64_t value : size.value_or(IntArrayRef{})) {
    sum += static_cast<double>(value);
  }
  for (const double factor : factors.value_or(ArrayRef<double>{})) {
    sum += factor;
  }
  sum += t.has_value() ? t->toDouble() : 0;
  sum += flag ? 1 : 0;
  sum += word.has_value() ? static_cast<double>(word->size()) : 0;
  return sum + (dtype.has_value() ? static_cast<double>(*dtype) : 0);
}

Tensor gr_keep_all(
    const Tensor& self,
    double a,
    std::optional<double> b,
    IntArrayRef dims,
    std::string_view mode,
    int64_t n,
    const Scalar& s,
    const std::optional<Scalar>& t,
    OptionalIntArrayRef more,
    OptionalIntArrayRef size,
    std::optional<ArrayRef<double>> factors,
    bool flag,
    std::optional<std::string_view> word,
    std::optional<ScalarType> dtype) {
  return self * gr_keep_all_factor(a, b, dims, mode, n, s, t, more, size, factors, flag, word, dtype);
}

Tensor gr_outer(const Tensor& self, const Tensor& other) {
  return at::outer(self, other);
}

std::tuple<Tensor, Tensor> gr_outer_backward(
    const Tensor& grad,
    const std::optional<Tensor>& self,
    const std::optional<Tensor>& other,
    std::array<bool, 2> mask) {
  return {mask[0] ? grad.mv(*other) : Tensor(), mask[1] ? grad.t().mv(*self) : Tensor()};
}

std::tuple<Tensor, Tensor> gr_take(const Tensor& self, const Tensor& index, const Tensor& other) {
  return {self.index_select(0, index), index.clone()};
}

Tensor gr_cat(TensorList tensors, int64_t dim) {
  return at::cat(tensors, dim);
}

Tensor gr_weighted(TensorList tensors, const Tensor& weight) {
  return at::gr_sum_list(tensors) * weight;
}

Tensor gr_no_gradient(const Tensor& self, const Tensor& other) {
  return self + other;
}

Tensor gr_unlisted(const Tensor& self) {
  return self * 2;
}

// Mean, mean square distance from it, and the index of the largest value.
std::tuple<Tensor, Tensor, Tensor> gr_moments(const Tensor& self, int64_t dim) {
  return {self.mean(dim), self.var(dim, /*unbiased=*/false), self.argmax(dim)};
}

Tensor gr_moments_backward(
    const std::optional<Tensor>& grad_mean,
    const std::optional<Tensor>& grad_spread,
    const Tensor& self,
    const Tensor& mean,
    int64_t dim) {
  Tensor grad = at::zeros_like(self);
  if (grad_mean.has_value() && grad_mean->defined()) {
    grad = grad + grad_mean->unsqueeze(dim) / self.sym_size(dim);
  }
  if (grad_spread.has_value() && grad_spread->defined()) {
    grad = grad + grad_spread->unsqueeze(dim) * 2 * (self - mean.unsqueeze(dim)) / self.sym_size(dim);
  }
  return grad;
}

// log(cosh(beta x)) / beta: its derivative is tanh(beta x).
Tensor gr_smooth(const Tensor& self, const Scalar& beta) {
  return (self * beta).cosh().log() / beta;
}

Tensor gr_smooth_backward(const Tensor& grad_output, const Tensor& self, const Scalar& beta) {
  return grad_output * (self * beta).tanh();
}

std::vector<Tensor> foreach_gr_square(TensorList self) {
  std::vector<Tensor> squares;
  for (const Tensor& tensor : self) {
    squares.push_back(tensor * tensor);
  }
  return squares;
}

void foreach_gr_square_(TensorList self) {
  for (const Tensor& tensor : self) {
    tensor.mul_(tensor);
  }
}

} // namespace at::native
