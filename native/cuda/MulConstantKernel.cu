#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/MulConstant.h>

#include <ATen/Dispatch_v2.h>
#include <ATen/OpMathType.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cuda/Loops.cuh>

#include <type_traits>

namespace at::native {
namespace {

void mul_constant_kernel(TensorIteratorBase& iter, const Scalar& constant) {
  AT_DISPATCH_V2(
      iter.common_dtype(),
      "mul_constant_cuda",
      AT_WRAP([&] {
        using opmath_t = at::opmath_type<scalar_t>;
        const auto factor = mul_constant_factor<opmath_t>(constant);
        // Integers wrap around, which C++ defines for unsigned ones only.
        using product_t = std::conditional_t<std::is_integral_v<scalar_t>, uint64_t, opmath_t>;
        gpu_kernel(iter, [factor] GPU_LAMBDA(scalar_t x) -> scalar_t {
          return static_cast<product_t>(x) * static_cast<product_t>(factor);
        });
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      kBool,
      kHalf,
      kBFloat16,
      kComplexHalf,
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
}

} // namespace

REGISTER_CUDA_DISPATCH(mul_constant_stub, &mul_constant_kernel)

} // namespace at::native
