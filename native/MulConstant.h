#pragma once

#include <ATen/native/DispatchStub.h>
#include <c10/core/Scalar.h>

namespace at {
struct TensorIteratorBase;
}

namespace at::native {

using mul_constant_fn = void (*)(TensorIteratorBase&, const c10::Scalar&);

// Unlike Scalar::to, which throws if the value does not fit: integers wrap around and floating-point numbers become
// infinite, as when PyTorch converts a number to a tensor.
template <typename T>
T mul_constant_factor(const Scalar& value) {
  if (value.isComplex()) {
    return c10::convert<T>(value.toComplexDouble());
  }
  if (value.isFloatingPoint()) {
    return c10::convert<T>(value.toDouble());
  }
  if (value.type() == kUInt64) {
    return c10::convert<T>(value.toUInt64());
  }
  return c10::convert<T>(value.toLong());
}

DECLARE_DISPATCH(mul_constant_fn, mul_constant_stub)

} // namespace at::native
