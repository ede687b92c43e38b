#pragma once

#include <ATen/native/DispatchStub.h>

namespace c10 {
class Scalar;
}

namespace at {
struct TensorIteratorBase;
}

namespace at::native {

using gr_mix_fn = void (*)(TensorIteratorBase&, const c10::Scalar&);

DECLARE_DISPATCH(gr_mix_fn, gr_mix_stub)

} // namespace at::native
