#pragma once

#include <c10/macros/Macros.h>

#include <array>
#include <type_traits>
#include <utility>

namespace at::native {
inline namespace CPU_CAPABILITY {

// The array of f(0), f(1), ..., f(n - 1). An array of Vectorized that is made this way stays in registers; GCC keeps a
// default-constructed one in memory, since a loop sets it to zero.
template <typename F, int... i>
C10_ALWAYS_INLINE auto generate(const F& f, std::integer_sequence<int, i...> /*constants*/) {
  return std::array{f(std::integral_constant<int, i>())...};
}
template <int n, typename F>
C10_ALWAYS_INLINE auto generate(const F& f) {
  return generate(f, std::make_integer_sequence<int, n>());
}

} // namespace CPU_CAPABILITY
} // namespace at::native
