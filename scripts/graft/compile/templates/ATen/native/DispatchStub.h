// Where sources find PyTorch's header of this name. A kernel that replaces a stub's calls PyTorch's by `stock::of(stub)`.
#pragma once

#include_next <ATen/native/DispatchStub.h>

namespace at::native {

// The members DEFAULT etc. of this stub are PyTorch's kernels for T, which trampolines.cpp copies.
template <typename T>
struct Stock;

namespace stock {

template <typename rT, typename T, typename... Args>
auto& of(DispatchStub<rT (*)(Args...), T>&) {
  static DispatchStub<rT (*)(Args...), Stock<T>> stub;
  return stub;
}

} // namespace stock
} // namespace at::native
