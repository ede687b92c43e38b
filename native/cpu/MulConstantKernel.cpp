#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/MulConstant.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

namespace at::native {
namespace {

template <typename scalar_t>
void mul_constant_loop(TensorIteratorBase& iter, const Scalar& constant) {
  using opmath_t = at::opmath_type<scalar_t>;
  // Integers wrap around, which C++ defines for unsigned ones only.
  using product_t = std::conditional_t<std::is_integral_v<scalar_t>, uint64_t, opmath_t>;
  using Vec = vec::Vectorized<scalar_t>;
  const auto factor = mul_constant_factor<opmath_t>(constant);
  const auto one = [factor](scalar_t x) -> scalar_t {
    const product_t product = static_cast<product_t>(x) * static_cast<product_t>(factor);
    return product;
  };
  if constexpr (std::is_same_v<scalar_t, bool> || std::is_same_v<scalar_t, c10::complex<Half>>) {
    cpu_kernel(iter, one);
  } else if constexpr (is_reduced_floating_point_v<scalar_t>) {
    // Half types compute in float and round once.
    const vec::Vectorized<float> factors(factor);
    cpu_kernel_vec(iter, one, [factors](Vec x) -> Vec {
      const auto [x0, x1] = vec::convert_to_float<scalar_t>(x);
      return vec::convert_from_float<scalar_t>(x0 * factors, x1 * factors);
    });
  } else if (std::is_integral_v<scalar_t> && iter.is_contiguous()) {
    // Vectors of integers are multiplied in steps that prepare the constant: once, since no store can change a copy.
    iter.for_each([factor](char** data, const int64_t*, int64_t n) {
      const Vec factors(factor);
      auto* to = reinterpret_cast<scalar_t*>(data[0]);
      vec::map<scalar_t>([factors](Vec x) { return x * factors; }, to, reinterpret_cast<scalar_t*>(data[1]), n);
    });
  } else {
    const Vec factors(factor);
    cpu_kernel_vec(iter, one, [factors](Vec x) -> Vec { return x * factors; });
  }
}

void mul_constant_kernel(TensorIteratorBase& iter, const Scalar& constant) {
  AT_DISPATCH_V2(
      iter.common_dtype(),
      "mul_constant_cpu",
      AT_WRAP([&] { mul_constant_loop<scalar_t>(iter, constant); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      kBool,
      kHalf,
      kBFloat16,
      kComplexHalf,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

} // namespace

// Not for AVX512, like torch.mul: 512-bit loops take 1.1 times as long where data come from memory.
REGISTER_DISPATCH(mul_constant_stub, &mul_constant_kernel)

} // namespace at::native
