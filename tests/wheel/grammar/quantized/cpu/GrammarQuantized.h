#pragma once

#include <ATen/native/DispatchStub.h>

namespace at::native {

using gr_backend_fn = int64_t (*)();

DECLARE_DISPATCH(gr_backend_fn, gr_backend_stub)

} // namespace at::native
