#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/TwicePlus.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

namespace at::native {
namespace {

// 2x is exact in every floating type (short of overflow), so x + x and 2 * x are the same number; the sum needs no
// constant in a register.
template <typename scalar_t>
void twice_plus_loop(TensorIteratorBase& iter) {
  using opmath_t = at::opmath_type<scalar_t>;
  // Integers wrap around, which C++ defines for unsigned ones only.
  using sum_t = std::conditional_t<std::is_integral_v<scalar_t>, uint64_t, opmath_t>;
  using Vec = vec::Vectorized<scalar_t>;
  const auto one = [](scalar_t x, scalar_t y) -> scalar_t {
    return static_cast<sum_t>(x) + static_cast<sum_t>(x) + static_cast<sum_t>(y);
  };
  if constexpr (std::is_same_v<scalar_t, c10::complex<Half>>) {
    // Vectorized would round 2x, which may overflow where the sum does not.
    cpu_kernel(iter, one);
  } else if constexpr (is_reduced_floating_point_v<scalar_t>) {
    // Half types compute in float and round once.
    cpu_kernel_vec(iter, one, [](Vec x, Vec y) -> Vec {
      const auto [x0, x1] = vec::convert_to_float<scalar_t>(x);
      const auto [y0, y1] = vec::convert_to_float<scalar_t>(y);
      return vec::convert_from_float<scalar_t>(x0 + x0 + y0, x1 + x1 + y1);
    });
  } else {
    cpu_kernel_vec(iter, one, [](Vec x, Vec y) -> Vec { return x + x + y; });
  }
}

void twice_plus_kernel(TensorIteratorBase& iter) {
  AT_DISPATCH_V2(
      iter.common_dtype(),
      "twice_plus_cpu",
      AT_WRAP([&] { twice_plus_loop<scalar_t>(iter); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      kHalf,
      kBFloat16,
      kComplexHalf,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

} // namespace

// Not for AVX512, like torch.add: 512-bit loops take 1.1 times as long where data come from memory.
REGISTER_DISPATCH(twice_plus_stub, &twice_plus_kernel)

} // namespace at::native
