#pragma once

#include <c10/util/env.h>

namespace at::native {

// Whether this folder's kernels are used: TORCH_FASTER=0 leaves all to PyTorch's.
inline bool is_faster_on() {
  static const bool is_on = c10::utils::check_env("TORCH_FASTER").value_or(true);
  return is_on;
}

} // namespace at::native
