#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/DimVector.h>

// What several operators ask of their arguments.

namespace at::native {

// The types of AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, ...). c10::isFloatingType also includes float8 types.
inline bool isArithmeticFloatingType(ScalarType t) {
  return t == kDouble || t == kFloat || t == kHalf || t == kBFloat16;
}

// Check that a tensor has the dtype and the device of another, `like`.
inline void
check_like(const char* op, const char* name, const Tensor& tensor, const char* like_name, const Tensor& like) {
  TORCH_CHECK(
      tensor.scalar_type() == like.scalar_type(),
      op,
      "(): expected ",
      name,
      " to have ",
      like_name,
      "'s dtype ",
      like.scalar_type(),
      ", but got ",
      tensor.scalar_type());
  TORCH_CHECK(
      tensor.device() == like.device(),
      op,
      "(): expected ",
      name,
      " to be on ",
      like_name,
      "'s device ",
      like.device(),
      ", but it is on ",
      tensor.device());
}

// Tensor::suggest_memory_format for images [N, C, H, W], but without a guard on N, which a compiler may not know, as
// that of x[mask]. One image alone is contiguous.
inline MemoryFormat format_of_images(const Tensor& images) {
  if (images.dim() != 4) {
    return MemoryFormat::Contiguous;
  }
  c10::SymDimVector sizes(images.sym_sizes());
  sizes[0] = 1;
  return c10::is_channels_last_strides_2d_s4<c10::SymInt>(sizes, images.sym_strides()) ? MemoryFormat::ChannelsLast
                                                                                       : MemoryFormat::Contiguous;
}

} // namespace at::native
