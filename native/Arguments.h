#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/DimVector.h>

// Checks of arguments that several operators share.

namespace at::native {

// `expected` begins an error's message: "affine(): expected weight".

// Check that a tensor is of a type of AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, ...). c10::isFloatingType also
// includes float8 types.
inline void check_floating(const char* expected, const Tensor& tensor) {
  const auto t = tensor.scalar_type();
  TORCH_CHECK(
      t == kDouble || t == kFloat || t == kHalf || t == kBFloat16,
      expected,
      " to be double, float, half or bfloat16, but got ",
      t);
}

// Check that a tensor has the dtype and the device of another, `like`.
inline void check_like(const char* expected, const Tensor& tensor, const char* name, const Tensor& like) {
  const auto dtype = like.scalar_type(), found = tensor.scalar_type();
  TORCH_CHECK(found == dtype, expected, " to have ", name, "'s dtype ", dtype, ", but got ", found);
  const auto device = like.device(), where = tensor.device();
  TORCH_CHECK(where == device, expected, " to be on ", name, "'s device ", device, ", but it is on ", where);
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
