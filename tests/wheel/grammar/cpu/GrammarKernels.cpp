#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/GrammarStructured.h>

#include <ATen/Dispatch.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>
#include <c10/core/Scalar.h>

namespace at::native {
namespace {

void gr_mix_kernel(TensorIteratorBase& iter, const Scalar& alpha_scalar) {
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(kBFloat16, kHalf, iter.common_dtype(), "gr_mix_cpu", [&] {
    const auto alpha = alpha_scalar.to<scalar_t>();
    using Vec = vec::Vectorized<scalar_t>;
    const Vec alphas(alpha);
    cpu_kernel_vec(
        iter,
        [=](scalar_t x, scalar_t y) -> scalar_t { return x + alpha * y; },
        [=](Vec x, Vec y) -> Vec { return x + alphas * y; });
  });
}

} // namespace

REGISTER_DISPATCH(gr_mix_stub, &gr_mix_kernel)

} // namespace at::native
