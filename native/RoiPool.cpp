#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/OpMathType.h>
#include <ATen/native/Arguments.h>
#include <ATen/native/RoiPool.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/_roi_pool_gather_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/roi_pool_backward_native.h>
#include <ATen/ops/roi_pool_native.h>
#include <ATen/ops/roi_pool_with_indices.h>
#include <ATen/ops/roi_pool_with_indices_native.h>
#include <ATen/ops/zeros.h>
#endif

#include <algorithm>
#include <cmath>
#include <limits>

namespace at::native {

DEFINE_DISPATCH(roi_pool_stub);
DEFINE_DISPATCH(roi_pool_backward_stub);

namespace {

void check_boxes(const Tensor& input, const Tensor& boxes) {
  TORCH_CHECK(
      boxes.dim() == 2 && boxes.sym_size(1) == 5,
      "roi_pool(): expected boxes to be 2-D with 5 columns, (image, x1, y1, x2, y2), but got ",
      boxes.sym_sizes());
  TORCH_CHECK(
      at::isFloatingType(boxes.scalar_type()),
      "roi_pool(): expected boxes to be of a floating-point dtype, but got ",
      boxes.scalar_type());
  TORCH_CHECK(
      boxes.device() == input.device(),
      "roi_pool(): expected boxes to be on input's device ",
      input.device(),
      ", but they are on ",
      boxes.device());
}

void check_backward_inputs(
    const Tensor& grad_output,
    const Tensor& boxes,
    const Tensor& indices,
    SymIntArrayRef input_size) {
  TORCH_CHECK(
      input_size.size() == 4, "roi_pool_backward(): expected input_size to be [N, C, H, W], but got ", input_size);
  TORCH_CHECK(
      grad_output.dim() == 4 && grad_output.sym_size(1) == input_size[1] &&
          grad_output.sym_sizes() == indices.sym_sizes(),
      "roi_pool_backward(): expected grad_output and indices to be [K, ",
      input_size[1],
      ", pooled_height, pooled_width], but got ",
      grad_output.sym_sizes(),
      " and ",
      indices.sym_sizes());
  check_floating("roi_pool_backward(): expected grad_output", grad_output);
  check_boxes(grad_output, boxes);
  TORCH_CHECK(
      boxes.sym_size(0) == grad_output.sym_size(0),
      "roi_pool_backward(): expected a box for each of grad_output's ",
      grad_output.sym_size(0),
      ", but got ",
      boxes.sym_size(0));
  TORCH_CHECK(
      indices.scalar_type() == kInt,
      "roi_pool_backward(): expected indices to be of dtype Int, but got ",
      indices.scalar_type());
}

} // namespace

Tensor
roi_pool(const Tensor& input, const Tensor& boxes, double spatial_scale, int64_t pooled_height, int64_t pooled_width) {
  return std::get<0>(at::roi_pool_with_indices(input, boxes, spatial_scale, pooled_height, pooled_width));
}

std::tuple<Tensor, Tensor> roi_pool_with_indices_meta(
    const Tensor& input,
    const Tensor& boxes,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width) {
  TORCH_CHECK(input.dim() == 4, "roi_pool(): expected input to be [N, C, H, W], but got ", input.sym_sizes());
  TORCH_CHECK(
      input.sym_size(2) > 0 && input.sym_size(3) > 0,
      "roi_pool(): expected input to have a row and a column at least, but got ",
      input.sym_sizes());
  check_floating("roi_pool(): expected input", input);
  check_boxes(input, boxes);
  TORCH_CHECK(
      spatial_scale > 0 && std::isfinite(spatial_scale),
      "roi_pool(): expected spatial_scale to be positive and finite, but got ",
      spatial_scale);
  TORCH_CHECK(
      pooled_height > 0 && pooled_width > 0,
      "roi_pool(): expected pooled_height and pooled_width to be positive, but got ",
      pooled_height,
      " and ",
      pooled_width);
  const c10::SymInt sizes[] = {boxes.sym_size(0), input.sym_size(1), pooled_height, pooled_width};
  return {
      at::empty_symint(sizes, input.options().memory_format(format_of_images(input))),
      at::empty_symint(sizes, input.options().dtype(kInt))};
}

std::tuple<Tensor, Tensor> roi_pool_with_indices(
    const Tensor& input,
    const Tensor& boxes,
    double spatial_scale,
    int64_t pooled_height,
    int64_t pooled_width) {
  auto results = roi_pool_with_indices_meta(input, boxes, spatial_scale, pooled_height, pooled_width);
  // Not for symbolic sizes, which would be limited by it.
  TORCH_CHECK(
      input.size(2) * input.size(3) <= std::numeric_limits<int32_t>::max(),
      "roi_pool(): expected a plane of input to have less than 2^31 elements, but got ",
      input.sizes());
  const auto& [output, indices] = results;
  const Tensor planes = output.is_contiguous() ? output : at::empty(output.sizes(), input.options());
  const auto opmath = toOpMathType(input.scalar_type());
  // A scale that is infinite in the type of coordinates would turn 0 into NaN.
  const double largest = opmath == kDouble ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  roi_pool_stub(
      input.device().type(), planes, indices, input, boxes.to(opmath).contiguous(), std::min(spatial_scale, largest));
  if (!output.is_same(planes)) {
    output.copy_(planes);
  }
  return results;
}

Tensor roi_pool_backward_meta_symint(
    const Tensor& grad_output,
    const Tensor& boxes,
    const Tensor& indices,
    SymIntArrayRef input_size) {
  check_backward_inputs(grad_output, boxes, indices, input_size);
  return at::empty_symint(input_size, grad_output.options());
}

Tensor
roi_pool_backward(const Tensor& grad_output, const Tensor& boxes, const Tensor& indices, IntArrayRef input_size) {
  check_backward_inputs(grad_output, boxes, indices, c10::fromIntArrayRefSlow(input_size));
  const auto opmath = toOpMathType(grad_output.scalar_type());
  const Tensor grad_input = at::zeros(input_size, grad_output.options().dtype(opmath));
  roi_pool_backward_stub(
      grad_output.device().type(),
      grad_input,
      grad_output.to(opmath).contiguous(),
      boxes.to(opmath).contiguous(),
      indices.contiguous());
  return grad_input.to(grad_output.scalar_type());
}

Tensor _roi_pool_gather(const Tensor& input, const Tensor& boxes, const Tensor& indices) {
  check_boxes(input, boxes);
  const Tensor image = boxes.select(1, 0).to(kLong).view_symint({-1, 1, 1, 1});
  const Tensor channel = at::arange(input.sym_size(1), boxes.options().dtype(kLong)).view_symint({-1, 1, 1});
  const Tensor found = input.flatten(2).index({image, channel, indices.clamp_min(0).to(kLong)});
  return found.masked_fill(indices.lt(0), 0);
}

} // namespace at::native
