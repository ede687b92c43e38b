#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/SpectralMagnitude.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_fft_c2r.h>
#include <ATen/ops/_fft_rfft2_abs.h>
#include <ATen/ops/_fft_rfft2_abs_backward_native.h>
#include <ATen/ops/_fft_rfft2_abs_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/fft_rfft2_abs_native.h>
#include <ATen/ops/real.h>
#endif

namespace at::native {

DEFINE_DISPATCH(spectrum_grad_stub);

namespace {

// No images: the transforms of MKL refuse that.
bool is_empty(const Tensor& x) {
  return TORCH_GUARD_OR_FALSE(x.sym_numel().sym_eq(0));
}

c10::SymDimVector with_last_dim(const Tensor& x, const c10::SymInt& size) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = size;
  return sizes;
}

Tensor rfft2(const Tensor& x) {
  if (!is_empty(x)) {
    return at::fft_rfft2(x);
  }
  // Of one image, for the dtype and for the errors.
  const Tensor spectrum = at::fft_rfft2(x.new_zeros_symint(x.sym_sizes().slice(x.dim() - 2)));
  return spectrum.expand_symint(with_last_dim(x, spectrum.sym_size(-1))).contiguous();
}

// The transpose of rfft2 is a complex-to-real transform: of its input it makes a symmetric spectrum, so the columns
// that have a twin there are to be halved. Next to the zero-filled complex transform it does half the work.
Tensor transpose_rfft2(const Tensor& halved, const c10::SymInt& last_dim_size) {
  const int64_t dims[] = {halved.dim() - 2, halved.dim() - 1};
  if (is_empty(halved)) {
    return at::real(halved).new_empty_symint(with_last_dim(halved, last_dim_size));
  }
  return at::_fft_c2r_symint(halved, dims, /*normalization=*/0, last_dim_size);
}

} // namespace

Tensor fft_rfft2_abs(const Tensor& self) {
  return std::get<0>(at::_fft_rfft2_abs(self));
}

std::tuple<Tensor, Tensor> _fft_rfft2_abs(const Tensor& self) {
  TORCH_CHECK(
      self.dim() >= 2, "rfft2_abs(): expected input to have at least two dimensions, but got ", self.sym_sizes());
  TORCH_CHECK(!self.is_complex(), "rfft2_abs(): expected input to be of a real dtype, but got ", self.scalar_type());
  const Tensor spectrum = rfft2(self);
  return {spectrum.abs(), spectrum};
}

Tensor _fft_rfft2_abs_backward_symint(
    const Tensor& grad_magnitude,
    const Tensor& spectrum,
    const Tensor& magnitude,
    c10::SymInt last_dim_size) {
  const Tensor grad = grad_magnitude * spectrum.sgn();
  // For an even size the last column has no twin either.
  const c10::SymInt end = (last_dim_size + 1) / 2;
  return transpose_rfft2(grad.slice_scatter_symint(grad.slice_symint(-1, 1, end) * 0.5, -1, 1, end), last_dim_size);
}

Tensor _fft_rfft2_abs_backward_cpu(
    const Tensor& grad_magnitude,
    const Tensor& spectrum,
    const Tensor& magnitude,
    int64_t last_dim_size) {
  const Tensor dense = spectrum.contiguous();
  const Tensor grad = at::empty_like(dense);
  spectrum_grad_stub(
      kCPU, grad, grad_magnitude.contiguous(), dense.resolve_conj(), magnitude.contiguous(), last_dim_size);
  return transpose_rfft2(grad, last_dim_size);
}

} // namespace at::native
