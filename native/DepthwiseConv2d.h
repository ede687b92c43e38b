#pragma once

#include <ATen/native/DispatchStub.h>

#include <c10/core/SymIntArrayRef.h>
#include <c10/util/DimVector.h>

#include <array>
#include <cstdint>
#include <optional>

namespace at {
class Tensor;
class TensorBase;
} // namespace at

namespace at::native {

// The sizes of one depthwise convolution. Pairs are in the order height, width. Output channel c reads input channel
// c / multiplier.
struct DepthwiseConv2dGeometry {
  int64_t batch;
  int64_t channels;
  int64_t multiplier;
  std::array<int64_t, 2> input;
  std::array<int64_t, 2> output;
  std::array<int64_t, 2> kernel;
  std::array<int64_t, 2> stride;
  std::array<int64_t, 2> padding;
  std::array<int64_t, 2> dilation;

  int64_t output_channels() const {
    return channels * multiplier;
  }
};

// Check all arguments, and return the sizes of the result of the forward.
c10::SymDimVector check_depthwise_conv2d(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation);
void check_depthwise_conv2d_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation);

// In all of them the tensors of images are 4-D and dense in the same memory format, contiguous or channels_last, and
// the others are contiguous. An undefined bias adds nothing, an undefined gradient is not computed; there is at least
// one element in every tensor.
using depthwise_conv2d_fn = void (*)(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const DepthwiseConv2dGeometry&);
using depthwise_conv2d_backward_input_fn = void (*)(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const DepthwiseConv2dGeometry&);
using depthwise_conv2d_backward_weight_fn = void (*)(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const DepthwiseConv2dGeometry&);

DECLARE_DISPATCH(depthwise_conv2d_fn, depthwise_conv2d_stub)
DECLARE_DISPATCH(depthwise_conv2d_backward_input_fn, depthwise_conv2d_backward_input_stub)
DECLARE_DISPATCH(depthwise_conv2d_backward_weight_fn, depthwise_conv2d_backward_weight_stub)

} // namespace at::native
