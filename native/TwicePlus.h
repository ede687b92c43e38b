#pragma once

#include <ATen/native/DispatchStub.h>

namespace at {
struct TensorIteratorBase;
}

namespace at::native {

using twice_plus_fn = void (*)(TensorIteratorBase&);

DECLARE_DISPATCH(twice_plus_fn, twice_plus_stub)

} // namespace at::native
