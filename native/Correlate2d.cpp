#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Arguments.h>
#include <ATen/native/Correlate2d.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_correlate2d.h>
#include <ATen/ops/_correlate2d_kernel_grad.h>
#include <ATen/ops/_correlate2d_kernel_grad_native.h>
#include <ATen/ops/_correlate2d_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/correlate2d_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fft_fft2.h>
#include <ATen/ops/fft_ifft2.h>
#include <ATen/ops/fft_irfft2.h>
#include <ATen/ops/fft_rfft2.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/result_type.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace at::native {

DEFINE_DISPATCH(correlate2d_stub);
DEFINE_DISPATCH(correlate2d_kernel_grad_stub);

namespace {

// The part of the whole correlation that a mode asks for.
struct Part {
  std::array<c10::SymInt, 2> offset;
  std::array<c10::SymInt, 2> size;
  bool is_within_kernel = false; // positions of the input within the kernel
};

Part part_of(std::string_view mode, const Tensor& input, const Tensor& kernel) {
  Part part;
  const bool kernel_fits = kernel.sym_size(-2) <= input.sym_size(-2) && kernel.sym_size(-1) <= input.sym_size(-1);
  TORCH_CHECK(
      mode != "valid" || kernel_fits ||
          (kernel.sym_size(-2) >= input.sym_size(-2) && kernel.sym_size(-1) >= input.sym_size(-1) &&
           input.sym_size(-2) > 0 && input.sym_size(-1) > 0),
      "correlate2d(): expected one of input and kernel to be at least as large as the other in both dimensions, and "
      "none empty, for mode='valid', but got ",
      input.sym_sizes(),
      " and ",
      kernel.sym_sizes());
  for (const int64_t dim : {0, 1}) {
    const c10::SymInt length = input.sym_size(dim - 2);
    const c10::SymInt taps = kernel.sym_size(dim - 2);
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
      part.offset[dim] = 0;
      part.size[dim] = taps - length + 1;
      part.is_within_kernel = true;
    }
  }
  return part;
}

// The indices of a dimension of `length` elements, extended by `before` and `after` elements.
Tensor periodic_indices(
    const Tensor& input,
    const c10::SymInt& length,
    const c10::SymInt& before,
    const c10::SymInt& after,
    bool is_symmetric) {
  const Tensor all = at::arange(-before, length + after, input.options().dtype(kLong));
  if (!is_symmetric) {
    return all.remainder(length);
  }
  const Tensor in_period = all.remainder(2 * length);
  return at::minimum(in_period, in_period.neg().add(2 * length - 1));
}

// The input with the border that `part` needs. Zeros are not stored, since _correlate2d assumes them.
Tensor
pad_input(const Tensor& input, const Tensor& kernel, Part& part, std::string_view boundary, const Scalar& fillvalue) {
  std::array<c10::SymInt, 2> after;
  for (const int64_t dim : {0, 1}) {
    after[dim] = part.size[dim] + kernel.sym_size(dim - 2) - 1 - part.offset[dim] - input.sym_size(dim - 2);
  }
  const auto before = std::exchange(part.offset, {0, 0});
  if (boundary == "fill") {
    return at::constant_pad_nd_symint(input, {before[1], after[1], before[0], after[0]}, fillvalue);
  }
  TORCH_CHECK(
      input.sym_size(-2) > 0 && input.sym_size(-1) > 0,
      "correlate2d(): expected input to have a row and a column at least for boundary='",
      boundary,
      "', but got ",
      input.sym_sizes());
  Tensor padded = input;
  for (const int64_t dim : {0, 1}) {
    const auto indices = periodic_indices(input, input.sym_size(dim - 2), before[dim], after[dim], boundary == "symm");
    padded = padded.index_select(dim - 2, indices);
  }
  return padded;
}

// Each image with its kernel, after broadcasting the leading dimensions of both.
Tensor correlate_broadcast(const Tensor& input, const Tensor& kernel, const Part& part, std::optional<bool> fft) {
  const auto image = input.sym_sizes().slice(input.dim() - 2), taps = kernel.sym_sizes().slice(kernel.dim() - 2);
  const auto of_kernel = kernel.sym_sizes().slice(0, kernel.dim() - 2);
  const auto leading = infer_size_symdimvector(input.sym_sizes().slice(0, input.dim() - 2), of_kernel);
  // The kernels' leading dimensions are the last of them.
  const auto others = SymIntArrayRef(leading).slice(0, leading.size() - of_kernel.size());
  const auto batch = SymIntArrayRef(leading).slice(others.size());
  const auto images = c10::multiply_integers(others), kernels = c10::multiply_integers(batch);
  const auto joined = [](SymIntArrayRef first, SymIntArrayRef last) {
    c10::SymDimVector sizes(first);
    sizes.append(last.begin(), last.end());
    return sizes;
  };
  if (of_kernel.empty()) {
    return at::_correlate2d_symint(
               input.reshape_symint(joined({1, images}, image)), kernel.unsqueeze(0), part.offset, part.size, fft)
        .reshape_symint(joined(leading, part.size));
  }
  const Tensor result = at::_correlate2d_symint(
      input.expand_symint(joined(leading, image)).reshape_symint(joined({images, kernels}, image)).transpose(0, 1),
      kernel.expand_symint(joined(batch, taps)).reshape_symint(joined({kernels}, taps)),
      part.offset,
      part.size,
      fft);
  return result.transpose(0, 1).reshape_symint(joined(leading, part.size));
}

// One value, which promotes like a Python number, or one for each kernel, which promotes the same way.
Tensor add_bias(const Tensor& result, const Tensor& bias, const Tensor& kernel) {
  const bool is_number = bias.dim() <= 1 && bias.sym_numel() == 1;
  TORCH_CHECK(
      is_number || bias.sym_sizes() == kernel.sym_sizes().slice(0, kernel.dim() - 2),
      "correlate2d(): expected bias to be one number, of shape [] or [1], or of the shape of kernel's leading "
      "dimensions, but got ",
      bias.sym_sizes(),
      " for a kernel of ",
      kernel.sym_sizes());
  if (is_number) {
    return result.add(bias.reshape({}));
  }
  const auto dtype = at::result_type(result, at::empty({}, bias.options()));
  return result.add(bias.to(dtype).unsqueeze(-1).unsqueeze(-1));
}

// Checks that a tensor is of a dtype that toOpMathType knows and kernels compute in: not of float8, float4, bits,
// quantized or unsigned integers of more than a byte.
void check_dtype(const char* name, const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      isComplexType(dtype) || dtype == kDouble || dtype == kFloat || dtype == kHalf || dtype == kBFloat16 ||
          (isIntegralType(dtype, /*includeBool=*/true) && !isBarebonesUnsignedType(dtype)),
      "correlate2d(): expected ",
      name,
      " to be of a dtype with arithmetic; it is not implemented for '",
      dtype,
      "'");
}

// Checks the arguments of the operators that correlate2d calls, in case others call them: input [K, N, H, W], and a
// kernel [K, h, w] or a gradient [K, N, h, w].
void check_part(const Tensor& input, const Tensor& other, int64_t dims, SymIntArrayRef offset, SymIntArrayRef size) {
  const auto is_pair = [](SymIntArrayRef x) { return x.size() == 2 && x[0] >= 0 && x[1] >= 0; };
  TORCH_CHECK(
      input.dim() == 4 && other.dim() == dims &&
          other.sym_sizes().slice(0, dims - 2) == input.sym_sizes().slice(0, dims - 2) && is_pair(offset) &&
          is_pair(size),
      "correlate2d(): expected input to be [K, N, H, W], kernel [K, kH, kW] or grad_output [K, N, h, w], and offset "
      "and size two numbers that are not negative, but got ",
      input.sym_sizes(),
      ", ",
      other.sym_sizes(),
      ", ",
      offset,
      " and ",
      size);
  check_dtype("input", input);
  check_like("correlate2d(): expected kernel", other, "input", input);
}

// Images that all kernels share, and which are therefore expanded, as [1, N, H, W].
Tensor shared_by_kernels(const Tensor& images) {
  return images.stride(0) == 0 ? images.narrow(0, 0, 1) : images;
}

// The smallest number >= n whose prime factors are 2, 3 and 5: transforms of such lengths are fast.
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

// The sizes and the costs of a correlation of the input with the kernel, or with the gradient in its place.
struct Lengths {
  Lengths(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size) {
    for (const int64_t dim : {0, 1}) {
      const int64_t length = input.size(dim - 2);
      const int64_t taps = kernel.size(dim - 2);
      const int64_t most = std::max({length, taps, offset[dim], size[dim]});
      // Larger than any memory, and small enough that a few can be added.
      TORCH_CHECK(most <= int64_t(1) << 40, "correlate2d(): expected lengths of at most 2^40, but got ", most);
      before[dim] = offset[dim];
      needed[dim] = std::max<int64_t>(size[dim] + taps - 1, 0);
      // The wrapped-around part must not overlap the input.
      transform[dim] = fast_length(std::max({offset[dim] + length, needed[dim] - offset[dim], taps, size[dim]}));
      products *= static_cast<double>(size[dim]) * static_cast<double>(taps);
    }
  }

  // Measured, in products of the direct method: the cost of the transforms for each pixel and halving of the length,
  // and of calling them. It does not depend on the batch, so that an image's result does not, either.
  bool is_faster_by_fft(ScalarType dtype) const {
    if (!isFloatingType(dtype) && !isComplexType(dtype)) {
      return false;
    }
    constexpr double pixel_cost = 11;
    constexpr double call_cost = 4e5;
    const double pixels = static_cast<double>(transform[0]) * static_cast<double>(transform[1]);
    const double halvings = std::ilogb(pixels) + 1;
    return products > call_cost + pixel_cost * pixels * halvings;
  }

  // Whether an image is computed directly to find which elements an infinity reaches. More products take longer than a
  // second, so a gradient that overflowed would stop a training.
  bool is_found_directly() const {
    return products <= static_cast<double>(int64_t(1) << 32);
  }

  // The input with zeros in front, up to a length; the rest is truncated.
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
  // The products of the direct method for one image.
  double products = 1;
};

// Correlates images [K or 1, N, H, W] with others [K, 1 or N, h, w]; sums up the results of each K if asked to. The
// transform is computed in double for any dtype: its error depends on the image's norm, that of direct products only on
// the few that contribute to an element.
Tensor
correlate_by_fft(const Tensor& images, const Tensor& others, const Lengths& lengths, IntArrayRef size, bool is_summed) {
  const IntArrayRef length = lengths.transform;
  const auto transform = [&](const Tensor& x) {
    return x.is_complex() ? at::fft_fft2(x.to(kComplexDouble), length) : at::fft_rfft2(x.to(kDouble), length);
  };
  Tensor spectrum = transform(lengths.pad(images, lengths.transform)) * transform(others).conj_physical();
  spectrum = is_summed ? spectrum.sum(1) : spectrum;
  const Tensor all = images.is_complex() ? at::fft_ifft2(spectrum, length) : at::fft_irfft2(spectrum, length);
  return all.narrow(-2, 0, size[0]).narrow(-1, 0, size[1]).to(images.scalar_type()).contiguous();
}

// Which images of x [..., H, W] hold an infinity or NaN: 0 times these is not 0. all() would take ten times as long.
Tensor has_special(const Tensor& x) {
  return x.mul(0).sum({-2, -1}).ne(0);
}

// Whether chosen images are computed directly. Only on CPUs it is read whether there are any: on another device, that
// would wait for the device, and CUDA graphs could not capture it.
bool may_have_any(const Tensor& chosen, const Lengths& lengths) {
  return lengths.is_found_directly() && (!chosen.is_cpu() || chosen.any().item<bool>());
}

Tensor conjugated(const Tensor& x) {
  return x.conj_physical().contiguous();
}

bool is_empty(const Tensor& input, const Tensor& kernel, IntArrayRef size) {
  return input.numel() == 0 || kernel.numel() == 0 || size[0] == 0 || size[1] == 0;
}

void check_choice(const char* name, std::string_view value, const std::array<std::string_view, 3>& choices) {
  TORCH_CHECK(
      std::find(choices.begin(), choices.end(), value) != choices.end(),
      "correlate2d(): expected ",
      name,
      " to be '",
      choices[0],
      "', '",
      choices[1],
      "' or '",
      choices[2],
      "', but got '",
      value,
      "'");
}

// The value of a symbolic number, with a guard: constant_pad_nd does not take symbolic numbers.
Scalar guarded(const Scalar& x) {
  return !x.isSymbolic()    ? x
      : x.isFloatingPoint() ? Scalar(x.toSymFloat().guard_float(__FILE__, __LINE__))
                            : Scalar(x.toSymInt().guard_int(__FILE__, __LINE__));
}

} // namespace

Tensor correlate2d(
    const Tensor& input,
    const Tensor& kernel,
    const std::optional<Tensor>& bias,
    std::string_view mode,
    std::string_view boundary,
    const Scalar& fillvalue,
    std::string_view method) {
  TORCH_CHECK(input.dim() >= 2, "correlate2d(): expected input to be [..., H, W], but got ", input.sym_sizes());
  TORCH_CHECK(
      kernel.dim() >= 2 && kernel.sym_size(-2) > 0 && kernel.sym_size(-1) > 0,
      "correlate2d(): expected kernel to be [..., kH, kW] with a row and a column at least, but got ",
      kernel.sym_sizes());
  check_choice("mode", mode, {"full", "same", "valid"});
  check_choice("boundary", boundary, {"fill", "wrap", "symm"});
  check_choice("method", method, {"auto", "direct", "fft"});
  const bool has_bias = bias && bias->defined();
  check_dtype("input", input);
  check_dtype("kernel", kernel);
  if (has_bias) {
    check_dtype("bias", *bias);
  }
  const auto dtype = at::result_type(input, kernel);
  TORCH_CHECK(dtype != kBool, "correlate2d(): expected input or kernel to be a number type, but both are bool");
  TORCH_CHECK(
      method != "fft" || isFloatingType(dtype) || isComplexType(dtype),
      "correlate2d(): expected floating-point or complex tensors for method='fft', but got ",
      dtype);
  TORCH_CHECK(
      !fillvalue.isComplex() || isComplexType(dtype),
      "correlate2d(): expected fillvalue to be real for tensors of dtype ",
      dtype,
      ", but got ",
      fillvalue);
  Part part = part_of(mode, input, kernel);
  const auto fft = method == "auto" ? std::nullopt : std::optional(method == "fft");
  // Half types are rounded once: after the bias is added; in backward, after the gradients of all copies of an element.
  const bool has_copies = mode != "valid" && boundary != "fill";
  const auto computed = has_bias || has_copies ? toOpMathType(dtype) : dtype;
  Tensor images = input.to(computed);
  // In valid mode nothing outside the edges is read.
  if (mode != "valid") {
    const Scalar fill = guarded(fillvalue);
    images = boundary == "fill" && fill.equal(0) ? images : pad_input(images, kernel, part, boundary, fill);
  }
  const Tensor kernels = kernel.to(computed);
  // With the two exchanged, the result is reversed, and no zeros beyond the edges of the input are multiplied.
  const Tensor result = part.is_within_kernel
      ? correlate_broadcast(kernels.conj_physical(), images.conj_physical(), part, fft).flip({-2, -1})
      : correlate_broadcast(images, kernels, part, fft);
  if (!has_bias) {
    return result.to(dtype);
  }
  const Tensor sum = add_bias(result, *bias, kernel);
  return computed == dtype
      ? sum
      : sum.to(at::result_type(at::empty({0}, input.options().dtype(dtype)), at::empty({}, bias->options())));
}

Tensor _correlate2d_meta_symint(
    const Tensor& input,
    const Tensor& kernel,
    SymIntArrayRef offset,
    SymIntArrayRef size,
    std::optional<bool> fft) {
  check_part(input, kernel, 3, offset, size);
  return at::empty_symint({input.sym_size(0), input.sym_size(1), size[0], size[1]}, input.options());
}

Tensor
_correlate2d(const Tensor& input, const Tensor& kernel, IntArrayRef offset, IntArrayRef size, std::optional<bool> fft) {
  const Tensor result =
      _correlate2d_meta_symint(input, kernel, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size), fft);
  if (is_empty(input, kernel, size)) {
    return result.zero_();
  }
  const auto dtype = toOpMathType(input.scalar_type());
  const Tensor images = shared_by_kernels(input).to(dtype), kernels = kernel.to(dtype);
  const Lengths lengths(images, kernels, offset, size);
  Tensor output;
  // Computes all images, or only those that are `chosen`.
  const auto correlate = [&](const Tensor& chosen) {
    correlate2d_stub(input.device().type(), output, lengths.pad(images, lengths.needed), conjugated(kernels), chosen);
  };
  if (kernels[0].numel() > images[0][0].numel() && offset[0] < size[0] && offset[1] < size[1]) {
    // Moving the image over the larger kernel takes fewer products and gives the reversed result.
    const int64_t turned[] = {size[0] - 1 - offset[0], size[1] - 1 - offset[1]};
    const auto each = [&](const Tensor& x) {
      return x.expand({result.size(0), result.size(1), -1, -1}).flatten(0, 1).conj_physical();
    };
    output = at::_correlate2d(each(kernels.unsqueeze(1)).unsqueeze(1), each(images), turned, size, fft)
                 .flip({-2, -1})
                 .view(result.sizes());
    // But with zeros around the kernel instead of the image, which an infinity would turn into other NaN.
    const Tensor chosen = has_special(output).logical_or(has_special(kernels).unsqueeze(1));
    if (may_have_any(chosen, lengths)) {
      correlate(chosen);
    }
  } else if (fft.value_or(lengths.is_faster_by_fft(dtype))) {
    output = correlate_by_fft(images, kernels.unsqueeze(1), lengths, size, /*is_summed=*/false);
    // A transform spreads an infinity over the image.
    if (const Tensor chosen = has_special(output); may_have_any(chosen, lengths)) {
      correlate(chosen);
    }
  } else {
    output = dtype == result.scalar_type() ? result : at::empty(result.sizes(), images.options());
    correlate(/*chosen=*/{});
  }
  return output.to(input.scalar_type());
}

Tensor _correlate2d_kernel_grad_meta_symint(
    const Tensor& grad_output,
    const Tensor& input,
    SymIntArrayRef offset,
    SymIntArrayRef size,
    std::optional<bool> fft) {
  check_part(input, grad_output, 4, offset, size);
  return at::empty_symint({input.sym_size(0), size[0], size[1]}, input.options());
}

Tensor _correlate2d_kernel_grad(
    const Tensor& grad_output,
    const Tensor& input,
    IntArrayRef offset,
    IntArrayRef size,
    std::optional<bool> fft) {
  const Tensor result = _correlate2d_kernel_grad_meta_symint(
      grad_output, input, c10::fromIntArrayRefSlow(offset), c10::fromIntArrayRefSlow(size), fft);
  if (is_empty(input, grad_output, size)) {
    return result.zero_();
  }
  const auto dtype = toOpMathType(input.scalar_type());
  const Tensor images = shared_by_kernels(input).to(dtype), grads = grad_output.to(dtype);
  const Lengths lengths(images, grads, offset, size);
  Tensor output, chosen;
  const bool is_by_fft = fft.value_or(lengths.is_faster_by_fft(dtype));
  if (is_by_fft) {
    output = correlate_by_fft(images, grads, lengths, size, /*is_summed=*/true);
    chosen = has_special(output);
  } else {
    output = at::empty(result.sizes(), images.options());
  }
  if (!is_by_fft || may_have_any(chosen, lengths)) {
    correlate2d_kernel_grad_stub(
        input.device().type(), output, lengths.pad(images, lengths.needed), conjugated(grads), chosen);
  }
  return output.to(input.scalar_type());
}

} // namespace at::native
