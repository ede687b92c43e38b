#pragma once

#include <ATen/cpu/vec/vec.h>

#include <cstdint>

namespace at::native {
inline namespace CPU_CAPABILITY {

// The first `count` elements, and zeros behind them. Vectorized::loadu(from, count) does the same, except for half
// types with AVX2 in PyTorch 2.6: there it leaves behind them what was in memory.
template <typename scalar_t>
C10_ALWAYS_INLINE vec::Vectorized<scalar_t> load_with_zeros(const scalar_t* from, int64_t count) {
  using Vec = vec::Vectorized<scalar_t>;
  const auto loaded = Vec::loadu(from, static_cast<int>(count));
  if constexpr (vec::is_reduced_floating_point_v<scalar_t>) {
    return count < Vec::size() ? Vec::set(Vec(scalar_t(0)), loaded, count) : loaded;
  } else {
    return loaded;
  }
}

} // namespace CPU_CAPABILITY
} // namespace at::native
