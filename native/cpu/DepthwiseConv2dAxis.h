#pragma once

#include <ATen/native/DepthwiseConv2d.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

// Which elements of an image the outputs along one axis read, in a form that the loops of DepthwiseConv2dTile.h take:
// they know neither padding nor dilation.

namespace at::native::depthwise {
inline namespace CPU_CAPABILITY {

// A tile computes this many outputs of an axis: their sums and the weights of a run fit the 16 registers of AVX2, and
// the widths of most networks (7, 14, 28, 56, 112) are multiples of it.
constexpr int64_t kTile = 7;
constexpr int64_t kLongestRun = 7;
// Outputs of a run are one or two elements apart. Beyond that a tile would use less than half of what it reads.
constexpr int64_t kLargestStride = 2;

// One axis of the convolution, or of the gradient of its input, which is a convolution of grad_output.
struct Axis {
  int64_t size;
  int64_t outputs;
  int64_t taps;
  int64_t stride;
  int64_t padding;
  int64_t dilation;
  bool is_backward;

  Axis(const DepthwiseConv2dGeometry& g, size_t i, bool is_backward)
      : size(is_backward ? g.output[i] : g.input[i]),
        outputs(is_backward ? g.input[i] : g.output[i]),
        taps(g.kernel[i]),
        stride(g.stride[i]),
        padding(g.padding[i]),
        dilation(g.dilation[i]),
        is_backward(is_backward) {}

  // The element that an output multiplies by a tap of the kernel; it may be outside of the image.
  std::optional<int64_t> element(int64_t output, int64_t tap) const {
    if (!is_backward) {
      return output * stride - padding + tap * dilation;
    }
    const auto distance = output + padding - tap * dilation;
    return distance % stride == 0 ? std::optional(distance / stride) : std::nullopt;
  }

  // The elements of the image between the first and the last that the outputs from begin to end read.
  std::pair<int64_t, int64_t> elements(int64_t begin, int64_t end) const {
    int64_t first = 0, last = 0;
    const auto extent = (taps - 1) * dilation;
    if (is_backward) {
      first = begin + padding >= extent ? (begin + padding - extent) / stride : 0;
      last = (end - 1 + padding) / stride + 1;
    } else {
      first = begin * stride - padding;
      last = (end - 1) * stride - padding + extent + 1;
    }
    first = std::clamp<int64_t>(first, 0, size);
    return {first, std::clamp(last, first, size)};
  }

  // The largest number of elements that this number of adjacent outputs reads.
  int64_t most_elements(int64_t count) const {
    const auto extent = (count - 1) * (is_backward ? 1 : stride) + (taps - 1) * dilation;
    return std::min(is_backward ? extent / stride + 2 : extent + 1, size);
  }
};

// A convolution whose output channels each read one or more input channels: the operator, or the gradient of its input.
struct Convolution {
  const DepthwiseConv2dGeometry& g;
  bool is_backward;
  Axis rows{g, 0, is_backward};
  Axis columns{g, 1, is_backward};

  int64_t sources() const {
    return is_backward ? g.multiplier : 1;
  }
  int64_t in_channels() const {
    return is_backward ? g.output_channels() : g.channels;
  }
  int64_t out_channels() const {
    return is_backward ? g.channels : g.output_channels();
  }
  int64_t taps() const {
    return rows.taps * columns.taps;
  }
};

// Taps whose elements are evenly spaced. Output j of the phase reads base + j * step * spacing for the first of them.
struct Run {
  int64_t taps;
  int64_t base;
  int64_t kernel; // the first tap's place in the kernel, and from one tap to the next
  int64_t kernel_step;
};

// The outputs first, first + Window::stride, ... which have the same taps.
struct Phase {
  int64_t first;
  int64_t outputs;
  std::vector<Run> runs;
};

// The gradient of the input has a phase for each remainder by the stride: each reads every stride-th tap. A dilated
// convolution has one for each remainder by the dilation: what each reads is as dense as without dilation.
struct Window {
  int64_t size;
  int64_t stride = 1;  // between the outputs of a phase
  int64_t step = 1;    // between the elements of these outputs, in units of spacing
  int64_t spacing = 1; // between the elements of a run
  std::vector<Phase> phases;

  explicit Window(const Axis& axis) : size(axis.size) {
    const bool is_dilated = axis.stride == 1 && axis.dilation > 1 && axis.dilation <= axis.outputs / kTile;
    const bool is_strided = axis.is_backward && axis.stride > 1;
    stride = is_strided ? std::min(axis.stride, axis.outputs) : is_dilated ? axis.dilation : 1;
    spacing = is_strided ? axis.dilation / std::gcd(axis.dilation, axis.stride) : axis.dilation;
    // For a single output any stride works; its own may be huge.
    const auto between = axis.outputs == 1 ? spacing : is_strided ? 1 : stride * axis.stride;
    step = between / spacing;
    const bool has_runs = axis.taps > 1 && between % spacing == 0 && step <= kLargestStride;
    if (!has_runs) {
      spacing = between;
      step = 1;
    }
    for (const auto first : c10::irange(stride)) {
      phases.push_back({first, (axis.outputs - first - 1) / stride + 1, runs_of(axis, first, has_runs)});
    }
  }

  // The range [first, last) of the `count` elements base, base + spacing, ... that is inside of the image.
  std::pair<int64_t, int64_t> inside(int64_t base, int64_t count) const {
    const auto first = base >= 0 ? 0 : (-base - 1) / spacing + 1;
    const auto last = base >= size ? 0 : (size - 1 - base) / spacing + 1;
    return {std::min(first, count), std::clamp(last, std::min(first, count), count)};
  }

 private:
  static std::vector<Run> runs_of(const Axis& axis, int64_t output, bool has_runs) {
    std::vector<Run> taps;
    for (const auto k : c10::irange(axis.taps)) {
      if (const auto element = axis.element(output, k)) {
        taps.push_back({1, *element, k, 0});
      }
    }
    if (axis.is_backward) {
      std::reverse(taps.begin(), taps.end());
    }
    if (!has_runs || taps.size() < 2) {
      return taps;
    }
    // Equal parts: 9 taps are 5 and 4.
    const auto count = static_cast<int64_t>(taps.size());
    std::vector<Run> runs;
    for (int64_t first = 0, parts = (count - 1) / kLongestRun + 1; parts > 0; --parts) {
      const auto n = (count - first + parts - 1) / parts;
      runs.push_back({n, taps[first].base, taps[first].kernel, taps[1].kernel - taps[0].kernel});
      first += n;
    }
    return runs;
  }
};

} // namespace CPU_CAPABILITY
} // namespace at::native::depthwise
