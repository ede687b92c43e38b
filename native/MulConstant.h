#pragma once

#include <ATen/native/DispatchStub.h>

namespace c10 {
class Scalar;
}

namespace at {
struct TensorIteratorBase;
}

namespace at::native {

using mul_constant_fn = void (*)(TensorIteratorBase&, const c10::Scalar&);

DECLARE_DISPATCH(mul_constant_fn, mul_constant_stub)

} // namespace at::native
