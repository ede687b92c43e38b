// pytorch#185770, #187293, #160876: gelu(inf), gelu(-inf) and silu(-inf) were nan: 0 * inf, and inf / inf. Below the
// limits, results are -0 in each dtype, as at the limit; above that of gelu, the argument.

#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/Activation.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Gelu.h>
#include <ATen/native/cpu/Loops.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

using namespace vec;

constexpr double kLimitOfGelu = 100, kLimitOfSilu = 1000;

// Where PyTorch's kernel begins to use threads.
constexpr int64_t kParallel = 16384;

template <typename scalar_t, typename Scalar, typename Vector>
void gelu(TensorIteratorBase& iter, const Scalar& scalar, const Vector& vector) {
  const int64_t grain_size = iter.numel() > kParallel ? iter.numel() / at::get_num_threads() : at::internal::GRAIN_SIZE;
  const Vectorized<scalar_t> low(static_cast<scalar_t>(-kLimitOfGelu)), high(static_cast<scalar_t>(kLimitOfGelu));
  cpu_kernel_vec(
      iter,
      [=](scalar_t x) -> scalar_t {
        const scalar_t limited = std::min<scalar_t>(std::max<scalar_t>(x, -kLimitOfGelu), kLimitOfGelu);
        return x > kLimitOfGelu ? x : static_cast<scalar_t>(scalar(limited));
      },
      [=](Vectorized<scalar_t> x) { return Vectorized<scalar_t>::blendv(vector(clamp(x, low, high)), x, x > high); },
      grain_size);
}

void gelu_kernel(TensorIteratorBase& iter, GeluType approximate) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "gelu_cpu", [&] {
    if (approximate == GeluType::Tanh) {
      gelu<scalar_t>(
          iter,
          [](scalar_t x) { return scalar_gelu_approximated_with_tanh(x); },
          [](Vectorized<scalar_t> x) { return vectorized_gelu_approximated_with_tanh(x); });
    } else {
      gelu<scalar_t>(
          iter, [](scalar_t x) { return scalar_gelu(x); }, [](Vectorized<scalar_t> x) { return vectorized_gelu(x); });
    }
  });
}

template <typename T>
T silu(T x) {
  return x / (T(1) + std::exp(-x));
}

template <typename T>
Vectorized<T> silu(Vectorized<T> x) {
  return x / (Vectorized<T>(T(1)) + x.neg().exp());
}

template <typename T>
Vectorized<T> limited_silu(Vectorized<T> x) {
  if constexpr (c10::is_reduced_floating_point_v<T>) {
    const auto [first, second] = convert_to_float<T>(x);
    return convert_from_float<T>(limited_silu(first), limited_silu(second));
  } else {
    return silu(maximum(x, Vectorized<T>(T(-kLimitOfSilu))));
  }
}

void silu_kernel(TensorIteratorBase& iter) {
  if (at::isComplexType(iter.dtype())) {
    return AT_DISPATCH_COMPLEX_TYPES(iter.dtype(), "silu_cpu", [&] {
      cpu_kernel_vec(iter, [](scalar_t x) { return silu(x); }, [](Vectorized<scalar_t> x) { return silu(x); });
    });
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "silu_cpu", [&] {
    using opmath_t = at::opmath_type<scalar_t>;
    cpu_kernel_vec(
        iter,
        [](scalar_t x) -> scalar_t { return silu(std::max<opmath_t>(x, -kLimitOfSilu)); },
        [](Vectorized<scalar_t> x) { return limited_silu(x); });
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(GeluKernel, &gelu_kernel)
ALSO_REGISTER_AVX512_DISPATCH(silu_stub, &silu_kernel)

} // namespace at::native
