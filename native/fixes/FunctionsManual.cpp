// Helpers of formulas, in place of PyTorch's of the same name and parameters.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/FunctionsManual.h>

namespace torch::autograd::generated::details {

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
  const auto as_input = [&](const Tensor& channels) { return channels.view(shape).to(input_p.scalar_type()); };

  Tensor normal, normal_t;
  if (train) {
    const Tensor centered = input_p - input_p.mean(dims, /*keepdim=*/true);
    const Tensor invstd = (centered.square().mean(dims, /*keepdim=*/true) + eps).rsqrt();
    normal = centered * invstd;
    const Tensor centered_t = input_t - input_t.mean(dims, /*keepdim=*/true);
    normal_t = (centered_t - normal * (normal * centered_t).mean(dims, /*keepdim=*/true)) * invstd;
  } else {
    TORCH_INTERNAL_ASSERT(running_mean.has_value() && running_var.has_value());
    TORCH_CHECK(
        !running_mean->_fw_grad(/*level=*/0).defined() && !running_var->_fw_grad(/*level=*/0).defined(),
        "batch_norm is not differentiable wrt running_mean and running_var, they cannot have forward grad defined");
    const Tensor invstd = as_input((*running_var + eps).rsqrt());
    normal = (input_p - as_input(*running_mean)) * invstd;
    normal_t = input_t * invstd;
  }
  if (weight_p.defined()) {
    normal_t = normal_t * as_input(weight_p);
    if (weight_t.defined()) {
      normal_t = normal_t + normal * as_input(weight_t);
    }
  }
  return bias_t.defined() ? normal_t + as_input(bias_t) : normal_t;
}

} // namespace torch::autograd::generated::details
