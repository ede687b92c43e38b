#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/SpectralMagnitude.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_fft_c2c.h>
#include <ATen/ops/_fft_c2r.h>
#include <ATen/ops/_fft_rfft2_abs.h>
#include <ATen/ops/_fft_rfft2_abs_backward_native.h>
#include <ATen/ops/_fft_rfft2_abs_native.h>
#include <ATen/ops/_fft_rfft2_abs_turn_native.h>
#include <ATen/ops/_fft_rfft2_transpose.h>
#include <ATen/ops/_fft_rfft2_transpose_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/fft_rfft2_abs_native.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/real.h>
#include <ATen/ops/scalar_tensor.h>
#endif

#ifndef TORCH_GUARD_OR_FALSE // PyTorch 2.6
#define TORCH_GUARD_OR_FALSE(condition) TORCH_GUARD_SIZE_OBLIVIOUS(condition)
#endif

namespace at::native {

DEFINE_DISPATCH(spectrum_grad_stub);
DEFINE_DISPATCH(pair_rows_stub);
DEFINE_DISPATCH(part_rows_stub);

namespace {

// MKL's transforms reject a batch without images.
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
    // On CPUs it is contiguous; the meta kernel gives two dimensions other strides.
    return at::fft_rfft2(x).contiguous();
  }
  // The transform of one image, which has the right dtype and raises the right errors.
  const Tensor spectrum = at::fft_rfft2(x.new_zeros_symint(x.sym_sizes().slice(x.dim() - 2)));
  return spectrum.expand_symint(with_last_dim(x, spectrum.sym_size(-1))).contiguous();
}

// The transforms do not check the number of columns.
void check_columns(const Tensor& spectrum, const c10::SymInt& last_dim_size) {
  TORCH_CHECK(
      spectrum.dim() >= 2 && spectrum.is_complex(),
      "rfft2_abs(): expected spectrum to be complex with at least two dimensions, but got ",
      spectrum.scalar_type(),
      " ",
      spectrum.sym_sizes());
  TORCH_CHECK(
      last_dim_size > 0 && spectrum.sym_size(-1) == last_dim_size / 2 + 1,
      "rfft2_abs(): expected the last dimension of spectrum to be that of the transform of ",
      last_dim_size,
      " columns, but got ",
      spectrum.sym_sizes());
}

// It extends its input to a symmetric spectrum and returns the transform of that.
Tensor complex_to_real(const Tensor& x, const c10::SymInt& last_dim_size) {
  if (is_empty(x)) {
    return at::real(x).new_empty_symint(with_last_dim(x, last_dim_size));
  }
  const int64_t dims[] = {x.dim() - 2, x.dim() - 1};
  return at::_fft_c2r_symint(x, dims, /*normalization=*/0, last_dim_size);
}

// The same, one dimension after the other. MKL leaves the result of the first transposed, and reads it slowly in the
// second. A real row of odd size takes as long as two complex ones, so one complex transform computes two rows.
Tensor complex_to_real_cpu(const Tensor& x, int64_t last_dim_size) {
  if (is_empty(x)) {
    return complex_to_real(x, last_dim_size);
  }
  const Tensor columns = at::_fft_c2c(x, {x.dim() - 2}, /*normalization=*/0, /*forward=*/false);
  if (last_dim_size % 2 == 0) {
    return at::_fft_c2r(columns.contiguous(), {x.dim() - 1}, /*normalization=*/0, last_dim_size);
  }
  const auto rows = x.size(-2), images = x.numel() / (rows * x.size(-1));
  const Tensor spectrum = columns.transpose(-2, -1).contiguous().view({images, x.size(-1), rows});
  Tensor pairs = at::empty({images, (rows + 1) / 2, last_dim_size}, x.options());
  pair_rows_stub(kCPU, pairs, spectrum);
  pairs = at::_fft_c2c(pairs, {2}, /*normalization=*/0, /*forward=*/false).contiguous();
  DimVector sizes(x.sizes());
  sizes.back() = last_dim_size;
  const Tensor result = at::empty(sizes, x.options().dtype(c10::toRealValueType(x.scalar_type())));
  part_rows_stub(kCPU, result.view({images, rows, last_dim_size}), pairs);
  return result;
}

} // namespace

Tensor fft_rfft2_abs_symint(
    const Tensor& self,
    at::OptionalSymIntArrayRef s,
    IntArrayRef dim,
    std::optional<std::string_view> norm) {
  TORCH_CHECK(
      self.dim() >= 2, "rfft2_abs(): expected input to have at least two dimensions, but got ", self.sym_sizes());
  TORCH_CHECK(dim.size() == 2, "rfft2_abs(): expected dim to be two dimensions, but got ", dim);
  TORCH_CHECK(!s || s->size() == 2, "rfft2_abs(): expected s to be two sizes, but got ", s ? *s : SymIntArrayRef());
  const std::string_view scaling = norm.value_or("backward");
  TORCH_CHECK(
      scaling == "backward" || scaling == "ortho" || scaling == "forward",
      "rfft2_abs(): expected norm to be 'backward', 'ortho' or 'forward', but got '",
      scaling,
      "'");
  const bool are_last = dim == IntArrayRef({-2, -1});
  Tensor images = are_last ? self : self.movedim(dim, {-2, -1});
  if (s) {
    // Longer inputs are truncated.
    const auto missing = [&](int64_t i) {
      TORCH_CHECK((*s)[i] == -1 || (*s)[i] > 0, "rfft2_abs(): expected s to be -1 or positive, but got ", *s);
      return (*s)[i] == -1 ? c10::SymInt(0) : (*s)[i] - images.sym_size(i - 2);
    };
    const c10::SymInt pad[] = {0, missing(1), 0, missing(0)};
    images = at::constant_pad_nd_symint(images, pad);
  }
  Tensor magnitude = std::get<0>(at::_fft_rfft2_abs(images));
  if (scaling != "backward") {
    const Tensor pixels = at::scalar_tensor(images.sym_size(-2) * images.sym_size(-1), magnitude.options());
    magnitude = magnitude / (scaling == "ortho" ? pixels.sqrt() : pixels);
  }
  return are_last ? magnitude : magnitude.movedim({-2, -1}, dim);
}

std::tuple<Tensor, Tensor> _fft_rfft2_abs(const Tensor& self) {
  TORCH_CHECK(
      self.dim() >= 2, "rfft2_abs(): expected input to have at least two dimensions, but got ", self.sym_sizes());
  TORCH_CHECK(!self.is_complex(), "rfft2_abs(): expected input to be of a real dtype, but got ", self.scalar_type());
  const Tensor spectrum = rfft2(self);
  return {spectrum.abs(), spectrum};
}

// Columns with a twin in the symmetric spectrum are halved. Then a complex-to-real transform is enough, with half the
// work of a complex transform with zeros for the twins.
Tensor _fft_rfft2_transpose_symint(const Tensor& self, c10::SymInt last_dim_size) {
  check_columns(self, last_dim_size);
  const auto dtype = c10::toRealValueType(self.scalar_type());
  const Tensor column = at::arange(self.sym_size(-1), self.options().dtype(dtype));
  // For an even size the last column has no twin either.
  const Tensor has_twin = column.gt(0).logical_and(column.lt((last_dim_size + 1) / 2));
  // Contiguous, otherwise the transform's meta kernel returns other strides.
  return complex_to_real((self * (1 - 0.5 * has_twin.to(dtype))).contiguous(), last_dim_size);
}

Tensor _fft_rfft2_abs_turn(const Tensor& change, const Tensor& spectrum) {
  TORCH_CHECK(
      change.is_complex() && spectrum.is_complex(),
      "rfft2_abs(): expected change and spectrum to be complex, but got ",
      change.scalar_type(),
      " and ",
      spectrum.scalar_type());
  // The part of the change perpendicular to the direction. For real values, like the sum of an image, it is zero;
  // computed as a difference it would be a rounding error, which a small magnitude makes large.
  const Tensor direction = spectrum.sgn();
  const Tensor across = direction * c10::complex<double>(0, 1) * at::imag(direction.conj() * change);
  const Tensor magnitude = spectrum.abs();
  // Without a direction, `across` is 0.
  return across * magnitude.masked_fill(magnitude == 0, 1).reciprocal();
}

Tensor _fft_rfft2_abs_backward_symint(const Tensor& grad_magnitude, const Tensor& spectrum, c10::SymInt last_dim_size) {
  return at::_fft_rfft2_transpose_symint(grad_magnitude * spectrum.sgn(), std::move(last_dim_size));
}

Tensor _fft_rfft2_abs_backward_cpu(const Tensor& grad_magnitude, const Tensor& spectrum, int64_t last_dim_size) {
  check_columns(spectrum, last_dim_size);
  TORCH_CHECK(
      grad_magnitude.sizes() == spectrum.sizes() &&
          grad_magnitude.scalar_type() == c10::toRealValueType(spectrum.scalar_type()),
      "rfft2_abs(): expected grad_magnitude to have the shape and the real dtype of spectrum, ",
      spectrum.sizes(),
      " of ",
      spectrum.scalar_type(),
      ", but got ",
      grad_magnitude.sizes(),
      " of ",
      grad_magnitude.scalar_type());
  const Tensor dense = spectrum.contiguous();
  const Tensor grad = at::empty_like(dense);
  spectrum_grad_stub(kCPU, grad, grad_magnitude.contiguous(), dense.resolve_conj(), last_dim_size);
  return complex_to_real_cpu(grad, last_dim_size);
}

} // namespace at::native
