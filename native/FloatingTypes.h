#pragma once

#include <c10/core/ScalarType.h>

namespace at::native {

// Those that AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, ...) dispatches to; c10::isFloatingType takes more, from
// release to release.
inline bool isArithmeticFloatingType(ScalarType t) {
  return t == kDouble || t == kFloat || t == kHalf || t == kBFloat16;
}

} // namespace at::native
