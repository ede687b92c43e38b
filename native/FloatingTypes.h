#pragma once

#include <c10/core/ScalarType.h>

namespace at::native {

// The types of AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, ...). c10::isFloatingType also includes float8 types.
inline bool isArithmeticFloatingType(ScalarType t) {
  return t == kDouble || t == kFloat || t == kHalf || t == kBFloat16;
}

} // namespace at::native
