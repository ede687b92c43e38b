#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Correlate2d.h>
#include <c10/util/irange.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_correlate2d.h>
#include <ATen/ops/_correlate2d_kernel_grad_native.h>
#include <ATen/ops/_correlate2d_native.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/correlate2d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_fft2.h>
#include <ATen/ops/fft_ifft2.h>
#include <ATen/ops/fft_irfft2.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace at::native {

DEFINE_DISPATCH(correlate2d_stub);
DEFINE_DISPATCH(correlate2d_kernel_grad_stub);

namespace {

// The part of the whole correlation that a mode asks for.
struct Part {
  std::array<c10::SymInt, 2> offset;
  std::array<c10::SymInt, 2> size;
};

Part part_of(std::string_view mode, const Tensor& input, const Tensor& kernel) {
  Part part;
  const bool kernel_fits = kernel.sym_size(0) <= input.sym_size(-2) && kernel.sym_size(1) <= input.sym_size(-1);
  TORCH_CHECK(
      mode != "valid" || kernel_fits ||
          (kernel.sym_size(0) >= input.sym_size(-2) && kernel.sym_size(1) >= input.sym_size(-1) &&
           input.sym_size(-2) > 0 && input.sym_size(-1) > 0),
      "correlate2d(): expected one of input and kernel to be at least as large as the other in both dimensions, and "
      "none empty, for mode='valid', but got ",
      input.sym_sizes(),
      " and ",
      kernel.sym_sizes());
  for (const int64_t dim : {0, 1}) {
    const c10::SymInt length = input.sym_size(dim - 2);
    const c10::SymInt taps = kernel.sym_size(dim);
    if (mode == "full") {
      part.offset[dim] = taps - 1;
      part.size[dim] = length + taps - 1;
    } else if (mode == "same") {
      part.offset[dim] = (taps - 1) / 2;
      part.size[dim] = length;
    } else if (kernel_fits) {
      part.offset[dim] = 0;
      part.size[dim] = length - taps + 1;
    } else {
      part.offset[dim] = taps - length;
      part.size[dim] = taps - length + 1;
    }
  }
  return part;
}

void check_part(
    const char* name,
    const Tensor& input,
    const Tensor& other,
    SymIntArrayRef offset,
    SymIntArrayRef size) {
  TORCH_CHECK(
      input.dim() >= 2 && other.dim() >= 2,
      name,
      "(): expected tensors of at least two dimensions, but got ",
      input.sym_sizes(),
      " and ",
      other.sym_sizes());
  TORCH_CHECK(
      input.scalar_type() == other.scalar_type(),
      name,
      "(): expected tensors of one dtype, but got ",
      input.scalar_type(),
      " and ",
      other.scalar_type());
  TORCH_CHECK(
      offset.size() == 2 && size.size() == 2 && offset[0] >= 0 && offset[1] >= 0 && size[0] >= 0 && size[1] >= 0,
      name,
      "(): expected offset and size to be two numbers that are not negative, but got ",
      offset,
      " and ",
      size);
}

c10::SymDimVector result_sizes(const Tensor& input, SymIntArrayRef size) {
  c10::SymDimVector sizes(input.sym_sizes().slice(0, input.dim() - 2));
  sizes.append(size.begin(), size.end());
  return sizes;
}

Tensor as_batch(const Tensor& x) {
  return x.dim() == 2 ? x.unsqueeze(0) : x.flatten(0, -3);
}

// Beyond all memory, and such that a few of them can be added.
constexpr int64_t LONGEST = int64_t(1) << 40;

// The least number from n on that has no prime factor but 2, 3 and 5: transforms of such lengths are fast.
int64_t fast_length(int64_t n) {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int64_t of_fives = 1; of_fives < best; of_fives *= 5) {
    for (int64_t length = of_fives; length < best; length *= 3) {
      int64_t doubled = length;
      while (doubled < n) {
        doubled *= 2;
      }
      best = std::min(best, doubled);
    }
  }
  return best;
}

// A correlation in numbers: that of input with kernel, or with the gradient, which takes the kernel's place.
struct Lengths {
  Lengths(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size) {
    for (const int64_t dim : {0, 1}) {
      const int64_t length = input.size(dim - 2);
      const int64_t taps = kernel.size(dim - 2);
      TORCH_CHECK(
          std::max({length, taps, offset[dim], size[dim]}) <= LONGEST,
          "correlate2d(): expected lengths of at most 2^40, but got ",
          input.sizes(),
          " and ",
          kernel.sizes(),
          " with offset ",
          offset,
          " and size ",
          size);
      before[dim] = offset[dim];
      needed[dim] = std::max<int64_t>(size[dim] + taps - 1, 0);
      // What is wrapped round must not meet the input.
      transform[dim] = fast_length(std::max({offset[dim] + length, needed[dim] - offset[dim], taps, size[dim]}));
      products *= static_cast<double>(size[dim]) * static_cast<double>(taps);
    }
  }

  // Measured, in products of the direct way: what the transforms cost for each pixel and halving of the length, and
  // what calling them costs.
  bool is_faster_by_fft(int64_t images) const {
    constexpr double pixel_cost = 5.5;
    constexpr double call_cost = 4e5;
    const double pixels = static_cast<double>(transform[0]) * static_cast<double>(transform[1]);
    const double halvings = std::ilogb(pixels) + 1;
    return images * products > call_cost + images * pixel_cost * pixels * halvings;
  }

  // The input with zeros in front, up to a length; what is beyond it is cut off.
  Tensor pad(const Tensor& input, const std::array<int64_t, 2>& length) const {
    const auto after = [&](int64_t dim) { return length[dim] - before[dim] - input.size(dim - 2); };
    if (before[0] == 0 && before[1] == 0 && after(0) == 0 && after(1) == 0) {
      return input.contiguous();
    }
    return at::constant_pad_nd(input, {before[1], after(1), before[0], after(0)}).contiguous();
  }

  std::array<int64_t, 2> before;
  std::array<int64_t, 2> needed;
  std::array<int64_t, 2> transform;
  // Of one image.
  double products = 1;
};

Tensor to_spectrum(const Tensor& x, IntArrayRef length) {
  return x.is_complex() ? at::fft_fft2(x, length) : at::fft_rfft2(x, length);
}

Tensor from_spectrum(const Tensor& spectrum, IntArrayRef length, IntArrayRef size, bool is_complex) {
  const Tensor all = is_complex ? at::fft_ifft2(spectrum, length) : at::fft_irfft2(spectrum, length);
  return all.narrow(-2, 0, size[0]).narrow(-1, 0, size[1]).contiguous();
}

Tensor correlate_by_fft(const Tensor& input, const Tensor& kernel, const Lengths& lengths, IntArrayRef size) {
  const Tensor padded = lengths.pad(input, lengths.transform);
  const Tensor spectrum = to_spectrum(padded, lengths.transform).mul_(to_spectrum(kernel, lengths.transform).conj());
  return from_spectrum(spectrum, lengths.transform, size, input.is_complex());
}

Tensor kernel_grad_by_fft(const Tensor& grad, const Tensor& input, const Lengths& lengths, IntArrayRef size) {
  const Tensor padded = lengths.pad(input, lengths.transform);
  const Tensor spectrum = to_spectrum(padded, lengths.transform).mul_(to_spectrum(grad, lengths.transform).conj());
  return from_spectrum(spectrum.sum(0), lengths.transform, size, input.is_complex());
}

// An infinity or NaN is spread over the whole result by the transform, which then is of no use.
bool is_finite(const Tensor& x) {
  const Tensor sum = x.is_complex() ? at::view_as_real(x).sum() : x.sum();
  return std::isfinite(sum.item<double>());
}

Tensor conjugated(const Tensor& x) {
  return x.conj().resolve_conj().contiguous();
}

bool is_empty(const Tensor& input, const Tensor& kernel, IntArrayRef size) {
  return input.numel() == 0 || kernel.numel() == 0 || size[0] == 0 || size[1] == 0;
}

// Whether the kernel is the larger one. To move the image over it takes fewer products, none of them with zeros around
// the image, and gives the result the other way round. Several images are then taken one by one, which a small kernel
// is not worth.
bool can_be_exchanged(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size) {
  constexpr double many_products = 1 << 22;
  const auto pixels = input.size(-2) * input.size(-1);
  const auto products = static_cast<double>(size[0] * size[1]) * static_cast<double>(kernel.numel());
  const bool is_worth_it = input.numel() == pixels || products > many_products;
  return is_worth_it && kernel.numel() > pixels && offset[0] < size[0] && offset[1] < size[1];
}

ScalarType computed_in(const Tensor& x) {
  return isReducedFloatingType(x.scalar_type()) ? kFloat : x.scalar_type();
}

} // namespace

Tensor
correlate2d(const Tensor& input, const Tensor& kernel, const std::optional<Tensor>& bias, std::string_view mode) {
  TORCH_CHECK(input.dim() >= 2, "correlate2d(): expected input to be [..., H, W], but got ", input.sym_sizes());
  TORCH_CHECK(
      kernel.dim() == 2 && kernel.sym_size(0) > 0 && kernel.sym_size(1) > 0,
      "correlate2d(): expected kernel to be 2-D and not empty, but got ",
      kernel.sym_sizes());
  TORCH_CHECK(
      mode == "full" || mode == "same" || mode == "valid",
      "correlate2d(): expected mode to be 'full', 'same' or 'valid', but got '",
      mode,
      "'");
  const auto dtype = at::result_type(input, kernel);
  TORCH_CHECK(dtype != kBool, "correlate2d(): expected input or kernel to be a number type, but both are bool");
  const Part part = part_of(mode, input, kernel);
  const Tensor result = at::_correlate2d_symint(input.to(dtype), kernel.to(dtype), part.offset, part.size);
  if (!bias || !bias->defined()) {
    return result;
  }
  TORCH_CHECK(
      bias->dim() <= 1 && bias->sym_numel() == 1,
      "correlate2d(): expected bias to be one number, of shape [] or [1], but got ",
      bias->sym_sizes());
  TORCH_CHECK(
      !isFloat8Type(bias->scalar_type()),
      "correlate2d(): expected bias to be of a dtype with arithmetic, but got ",
      bias->scalar_type());
  return result.add(*bias);
}

Tensor _correlate2d_meta_symint(const Tensor& input, const Tensor& kernel, SymIntArrayRef offset, SymIntArrayRef size) {
  check_part("_correlate2d", input, kernel, offset, size);
  TORCH_CHECK(kernel.dim() == 2, "_correlate2d(): expected kernel to be 2-D, but got ", kernel.sym_sizes());
  return at::empty_symint(result_sizes(input, size), input.options());
}

Tensor _correlate2d(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size) {
  const Tensor result =
      _correlate2d_meta_symint(input, kernel, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size));
  if (is_empty(input, kernel, size)) {
    return result.zero_();
  }
  const auto dtype = computed_in(input);
  const Lengths lengths(input, kernel, offset, size);
  return correlate_by_fft(input.to(dtype), kernel.to(dtype), lengths, size).to(input.scalar_type());
}

Tensor _correlate2d_cpu(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size) {
  Tensor result =
      _correlate2d_meta_symint(input, kernel, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size));
  if (is_empty(input, kernel, size)) {
    return result.zero_();
  }
  if (can_be_exchanged(input, kernel, offset, size)) {
    const int64_t turned[] = {size[0] - 1 - offset[0], size[1] - 1 - offset[1]};
    const Tensor taps = conjugated(kernel), images = as_batch(input), results = as_batch(result);
    for (const auto i : c10::irange(images.size(0))) {
      const Tensor image = images.select(0, i).conj();
      results.select(0, i).copy_(_correlate2d_cpu(taps, image, turned, size).flip({0, 1}));
    }
    return result;
  }
  const auto dtype = computed_in(input);
  const Lengths lengths(input, kernel, offset, size);
  const Tensor images = as_batch(input).to(dtype);
  const Tensor taps = kernel.to(dtype);
  if (isFloatingType(dtype) || isComplexType(dtype)) {
    if (lengths.is_faster_by_fft(images.size(0))) {
      const Tensor found = correlate_by_fft(images, taps, lengths, size);
      if (is_finite(found)) {
        return found.view(result.sizes()).to(input.scalar_type());
      }
    }
  }
  const Tensor output = at::empty({images.size(0), size[0], size[1]}, images.options());
  correlate2d_stub(kCPU, output, lengths.pad(images, lengths.needed), conjugated(taps));
  return output.view(result.sizes()).to(input.scalar_type());
}

Tensor _correlate2d_kernel_grad_meta_symint(
    const Tensor& grad_output,
    const Tensor& input,
    SymIntArrayRef offset,
    SymIntArrayRef size) {
  check_part("_correlate2d_kernel_grad", input, grad_output, offset, size);
  TORCH_CHECK(
      grad_output.sym_sizes().slice(0, grad_output.dim() - 2) == input.sym_sizes().slice(0, input.dim() - 2),
      "_correlate2d_kernel_grad(): expected grad_output and input to have the same batch, but got ",
      grad_output.sym_sizes(),
      " and ",
      input.sym_sizes());
  return at::empty_symint(size, input.options());
}

Tensor _correlate2d_kernel_grad(const Tensor& grad_output, const Tensor& input, IntArrayRef offset, IntArrayRef size) {
  const Tensor result = _correlate2d_kernel_grad_meta_symint(
      grad_output, input, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size));
  if (is_empty(input, grad_output, size)) {
    return result.zero_();
  }
  const auto dtype = computed_in(input);
  const Lengths lengths(input, grad_output, offset, size);
  return kernel_grad_by_fft(as_batch(grad_output).to(dtype), as_batch(input).to(dtype), lengths, size)
      .to(input.scalar_type());
}

Tensor
_correlate2d_kernel_grad_cpu(const Tensor& grad_output, const Tensor& input, IntArrayRef offset, IntArrayRef size) {
  const Tensor result = _correlate2d_kernel_grad_meta_symint(
      grad_output, input, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size));
  if (is_empty(input, grad_output, size)) {
    return result.zero_();
  }
  const auto dtype = computed_in(input);
  const Lengths lengths(input, grad_output, offset, size);
  const Tensor images = as_batch(input).to(dtype);
  const Tensor grads = as_batch(grad_output).to(dtype);
  if (lengths.is_faster_by_fft(images.size(0))) {
    const Tensor found = kernel_grad_by_fft(grads, images, lengths, size);
    if (is_finite(found)) {
      return found.to(input.scalar_type());
    }
  }
  const Tensor output = at::empty(size, images.options());
  correlate2d_kernel_grad_stub(kCPU, output, lengths.pad(images, lengths.needed), conjugated(grads));
  return output.to(input.scalar_type());
}

} // namespace at::native
