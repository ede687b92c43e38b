#pragma once

#include <cstdint>
#include <limits>

namespace at::native {

// As c10::add_overflows of newer releases; that of PyTorch 2.6 takes unsigned numbers only.
inline bool add_overflows(int64_t a, int64_t b, int64_t* out) {
  using limits = std::numeric_limits<int64_t>;
  if (b > 0 ? a > limits::max() - b : a < limits::min() - b) {
    return true;
  }
  *out = a + b;
  return false;
}

} // namespace at::native
