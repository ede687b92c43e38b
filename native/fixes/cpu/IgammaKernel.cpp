// pytorch#132614: igamma(inf, nan) was 0 and igamma(nan, inf) 1, and igammac the reverse: both test for infinity first,
// and ignore the other argument. nan stays nan, as in SciPy.

#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/Dispatch.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Math.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

#include <limits>

namespace at::native {
namespace {

using namespace vec;

void igamma_kernel(TensorIteratorBase& iter) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "igamma_cpu", [&] {
    constexpr auto nan = std::numeric_limits<scalar_t>::quiet_NaN();
    cpu_kernel_vec(
        iter,
        [=](scalar_t a, scalar_t x) -> scalar_t { return a != a || x != x ? nan : calc_igamma(a, x); },
        [=](Vectorized<scalar_t> a, Vectorized<scalar_t> x) {
          return Vectorized<scalar_t>::blendv(a.igamma(x), Vectorized<scalar_t>(nan), (a != a) | (x != x));
        });
  });
}

void igammac_kernel(TensorIteratorBase& iter) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, iter.dtype(), "igammac_cpu", [&] {
    constexpr auto nan = std::numeric_limits<scalar_t>::quiet_NaN();
    cpu_kernel_vec(
        iter,
        [=](scalar_t a, scalar_t x) -> scalar_t { return a != a || x != x ? nan : calc_igammac(a, x); },
        [=](Vectorized<scalar_t> a, Vectorized<scalar_t> x) {
          return Vectorized<scalar_t>::blendv(a.igammac(x), Vectorized<scalar_t>(nan), (a != a) | (x != x));
        });
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(igamma_stub, &igamma_kernel)
ALSO_REGISTER_AVX512_DISPATCH(igammac_stub, &igammac_kernel)

} // namespace at::native
