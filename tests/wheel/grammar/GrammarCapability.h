#pragma once

#include <ATen/native/DispatchStub.h>

namespace at::native {

using gr_capability_fn = int64_t (*)();

DECLARE_DISPATCH(gr_capability_fn, gr_capability_stub)

} // namespace at::native
