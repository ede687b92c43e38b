// Functions of formulas that PyTorch has wrong, or lacks. Each comment names the report.

#include <torch/csrc/autograd/FunctionsManual.h>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <cmath>

namespace torch::autograd::generated::details {

namespace {

/// Sum a power series of s; its coefficients begin with that of the highest power.
Tensor series(const Tensor& s, at::ArrayRef<double> coefficients) {
  Tensor sum = s * coefficients[0] + coefficients[1];
  for (const double coefficient : coefficients.slice(2)) {
    sum = sum * s + coefficient;
  }
  return sum;
}

/// Return the arguments with 0 for those that are not near, and with 1 for those that are: what is computed of neither
/// is nan, also in derivatives.
std::tuple<Tensor, Tensor> parted(const Tensor& x, const Tensor& is_near) {
  return {x.masked_fill(is_near.logical_not(), 0), x.masked_fill(is_near, 1)};
}

/// Return the triangle of a Cholesky factor that operators read, as a lower one.
Tensor lower(const Tensor& factor, bool upper) {
  return upper ? factor.triu().mH() : factor.tril();
}

/// Return 1 / (1 + z), or z / (1 + z): the larger part of 1, or the smaller one.
Tensor share(const Tensor& is_larger, const Tensor& z) {
  return at::where(is_larger, 1, z) / (1 + z);
}

} // namespace

// pytorch#187803, #196703: (z cos z - sin z) / z^2 is 0 / 0 at 0, which PyTorch hides behind a `where`, so the second
// derivative is nan there for -pi^2 / 3. Near 0 it has no digits left either. The Taylor series is right, to any order.
Tensor sinc_backward(const Tensor& grad, const Tensor& self) {
  const Tensor z = self * M_PI;
  const Tensor is_near = z.abs() < 1;
  const auto [near, far] = parted(z, is_near);
  const Tensor of_near = near *
      series(near * near,
             {1. / 22230464256000,
              -1. / 93405312000,
              1. / 518918400,
              -1. / 3991680,
              1. / 45360,
              -1. / 840,
              1. / 30,
              -1. / 3});
  const Tensor of_far = (far * far.cos() - far.sin()) / (far * far);
  return grad * at::where(is_near, of_near, of_far).conj() * M_PI;
}

// pytorch#196682: X = (L L^H)^-1, so dX = -X (dL L^H + L dL^H) X. PyTorch's has the factors of a product in another
// order, and counts the triangle of the tangent that the operator does not read.
Tensor cholesky_inverse_jvp(const Tensor& F, const Tensor& dF, const Tensor& X, bool upper) {
  const Tensor half = X.matmul(lower(dF, upper)).matmul(lower(F, upper).mH().matmul(X));
  return -(half + half.mH());
}

// pytorch#196694: L L^H X = B, so L L^H dX = dB - (dL L^H + L dL^H) X. The same mistakes.
Tensor cholesky_solve_jvp(const Tensor& X, const Tensor& U, const Tensor& dU, const Tensor& dB, const bool upper) {
  const Tensor L = lower(U, upper), dL = lower(dU, upper);
  return at::cholesky_solve(dB - dL.matmul(L.mH().matmul(X)) - L.matmul(dL.mH().matmul(X)), L);
}

// pytorch#196699: the tangent was computed with the saved mean and invstd, which are constants to a second derivative,
// though both depend on the input. In training they are computed from the input here. group_norm_jvp calls PyTorch's,
// with an eps of 0 and a mean and invstd that have tangents of their own, and has to keep it.
Tensor batch_norm_jvp(
    const Tensor& input_p,
    const Tensor& input_t,
    const Tensor& weight_p,
    const Tensor& weight_t,
    const Tensor& bias_p,
    const Tensor& bias_t,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    const Tensor& saved_mean,
    const Tensor& saved_invstd,
    bool train,
    double eps) {
  std::vector<int64_t> dims; // all but that of channels
  std::vector<int64_t> shape(input_p.dim(), 1);
  for (int64_t i = 0; i < input_p.dim(); i++) {
    if (i != 1) {
      dims.push_back(i);
    }
  }
  shape[1] = -1;
  // Half types are rounded once, at the end: the square of what is centered may overflow in them.
  const auto type = at::toOpMathType(input_p.scalar_type());
  const Tensor input = input_p.to(type), tangent = input_t.to(type);
  const auto of_channels = [&](const Tensor& channels) { return channels.view(shape).to(type); };

  Tensor normal, normal_t;
  if (train) {
    const Tensor centered = input - input.mean(dims, /*keepdim=*/true);
    const Tensor invstd = (centered.square().mean(dims, /*keepdim=*/true) + eps).rsqrt();
    normal = centered * invstd;
    const Tensor centered_t = tangent - tangent.mean(dims, /*keepdim=*/true);
    normal_t = (centered_t - normal * (normal * centered_t).mean(dims, /*keepdim=*/true)) * invstd;
  } else {
    TORCH_INTERNAL_ASSERT(running_mean.has_value() && running_var.has_value());
    TORCH_CHECK(
        !running_mean->_fw_grad(/*level=*/0).defined() && !running_var->_fw_grad(/*level=*/0).defined(),
        "batch_norm is not differentiable wrt running_mean and running_var, they cannot have forward grad defined");
    const Tensor invstd = (of_channels(*running_var) + eps).rsqrt();
    normal = (input - of_channels(*running_mean)) * invstd;
    normal_t = tangent * invstd;
  }
  if (weight_p.defined()) {
    normal_t = normal_t * of_channels(weight_p);
    if (weight_t.defined()) {
      normal_t = normal_t + normal * of_channels(weight_t);
    }
  }
  normal_t = bias_t.defined() ? normal_t + of_channels(bias_t) : normal_t;
  return normal_t.to(input_p.scalar_type());
}

// pytorch#196704, #196787: 1 / (1 + exp(-d)) is right where exp overflows, and its derivative is inf / inf, so nan.
// With z = exp(-|d|) nothing overflows, and both tails keep their digits: the derivative is z / (1 + z)^2. sigmoid(d)
// has the derivative s (1 - s), which has no digit left where s is rounded to 1.
Tensor logaddexp_weight(const Tensor& d) {
  const Tensor is_positive = at::real(d) >= 0;
  return share(is_positive, at::where(is_positive, -d, d).exp());
}

Tensor logaddexp2_weight(const Tensor& d) {
  const Tensor is_positive = d >= 0;
  return share(is_positive, at::where(is_positive, -d, d).exp2());
}

// pytorch#189872: J1' = J0 - J1 / x, where J1 / x is 1 / 2 at 0, and its series near 0.
Tensor bessel_j1_derivative(const Tensor& x) {
  const Tensor is_near = x.abs() < 0.2;
  const auto [near, far] = parted(x, is_near);
  const Tensor of_near = series(near * near, {1. / 1474560, -1. / 18432, 1. / 384, -1. / 16, 0.5});
  return at::special_bessel_j0(x) - at::where(is_near, of_near, at::special_bessel_j1(far) / far);
}

Tensor modified_bessel_i1_derivative(const Tensor& x) {
  const Tensor is_near = x.abs() < 0.2;
  const auto [near, far] = parted(x, is_near);
  const Tensor of_near = series(near * near, {1. / 1474560, 1. / 18432, 1. / 384, 1. / 16, 0.5});
  return at::special_modified_bessel_i0(x) - at::where(is_near, of_near, at::special_modified_bessel_i1(far) / far);
}

} // namespace torch::autograd::generated::details
