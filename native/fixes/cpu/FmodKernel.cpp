// pytorch#193753: Sleef's fmod is nan where a / b overflows, and vectors use it. Lanes that are nan are computed again
// with std::fmod, as tensors that are shorter than a vector always were.

#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/native/cpu/Loops.h>

#include <cmath>

namespace at::native {
namespace {

using namespace vec;

template <typename T>
Vectorized<T> fmod_of(const Vectorized<T>& a, const Vectorized<T>& b) {
  Vectorized<T> mod = a.fmod(b);
  if (C10_UNLIKELY((mod == mod).zero_mask() != 0)) {
    constexpr auto kSize = Vectorized<T>::size();
    T x[kSize], y[kSize];
    a.store(x);
    b.store(y);
    for (int i = 0; i < kSize; i++) {
      x[i] = std::fmod(x[i], y[i]);
    }
    mod = Vectorized<T>::loadu(x);
  }
  return mod;
}

// The sign is that of the divisor.
template <typename T>
Vectorized<T> remainder_of(const Vectorized<T>& a, const Vectorized<T>& b) {
  const Vectorized<T> mod = fmod_of(a, b);
  const Vectorized<T> zero(0);
  return Vectorized<T>::blendv(mod, mod + b, (mod != zero) & ((b < zero) ^ (mod < zero)));
}

template <typename T>
T remainder_of(T a, T b) {
  const T mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

// `f` of float for Half and BFloat16.
template <typename T, typename F>
Vectorized<T> in_float(const Vectorized<T>& a, const Vectorized<T>& b, const F& f) {
  if constexpr (is_reduced_floating_point_v<T>) {
    const auto [a0, a1] = convert_to_float<T>(a);
    const auto [b0, b1] = convert_to_float<T>(b);
    return convert_from_float<T>(f(a0, b0), f(a1, b1));
  } else {
    return f(a, b);
  }
}

void fmod_kernel(TensorIteratorBase& iter) {
  if (isIntegralType(iter.common_dtype(), /*includeBool=*/false)) {
    return stock::of(fmod_stub)(iter.device_type(), iter);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(kBFloat16, kHalf, iter.common_dtype(), "fmod_cpu", [&] {
    cpu_kernel_vec(
        iter,
        [](scalar_t a, scalar_t b) -> scalar_t { return std::fmod(a, b); },
        [](Vectorized<scalar_t> a, Vectorized<scalar_t> b) {
          return in_float(a, b, [](const auto& x, const auto& y) { return fmod_of(x, y); });
        });
  });
}

void remainder_kernel(TensorIteratorBase& iter) {
  if (isIntegralType(iter.common_dtype(), /*includeBool=*/false)) {
    return stock::of(remainder_stub)(iter.device_type(), iter);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(kBFloat16, kHalf, iter.common_dtype(), "remainder_cpu", [&] {
    using opmath_t = at::opmath_type<scalar_t>;
    cpu_kernel_vec(
        iter,
        [](scalar_t a, scalar_t b) -> scalar_t { return remainder_of<opmath_t>(a, b); },
        [](Vectorized<scalar_t> a, Vectorized<scalar_t> b) {
          return in_float(a, b, [](const auto& x, const auto& y) { return remainder_of(x, y); });
        });
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(fmod_stub, &fmod_kernel)
ALSO_REGISTER_AVX512_DISPATCH(remainder_stub, &remainder_kernel)

} // namespace at::native
