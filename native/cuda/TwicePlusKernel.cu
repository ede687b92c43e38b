#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/TwicePlus.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cuda/Loops.cuh>

#include <type_traits>

namespace at::native {
namespace {

void twice_plus_kernel(TensorIteratorBase& iter) {
  AT_DISPATCH_V2(
      iter.common_dtype(),
      "twice_plus_cuda",
      AT_WRAP([&] {
        // Integers wrap around, which C++ defines for unsigned ones only.
        using sum_t = std::conditional_t<std::is_integral_v<scalar_t>, uint64_t, at::opmath_type<scalar_t>>;
        // A tensor of one number may be on the CPU.
        gpu_kernel_with_scalars(iter, [] GPU_LAMBDA(scalar_t x, scalar_t y) -> scalar_t {
          return static_cast<sum_t>(x) + static_cast<sum_t>(x) + static_cast<sum_t>(y);
        });
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      kHalf,
      kBFloat16,
      kComplexHalf,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

} // namespace

REGISTER_CUDA_DISPATCH(twice_plus_stub, &twice_plus_kernel)

} // namespace at::native
