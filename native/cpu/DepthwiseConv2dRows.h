#pragma once

#include <ATen/Parallel.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/DepthwiseConv2dAxis.h>
#include <ATen/native/cpu/DepthwiseConv2dImage.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>
#include <ATen/native/cpu/Generate.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

// Depthwise convolutions of fewer channels than a vector has lanes. A row of an image in channels_last is one sequence
// of elements, and a plane in NCHW is an image of one channel. Vectors are parts of this sequence, wherever its pixels
// begin, and the weights repeat with each pixel. Images are read from a copy with zeros around it.

namespace at::native::depthwise {
inline namespace CPU_CAPABILITY {

// The rows of the output that are computed together: enough sums to hide the latency of an FMA.
constexpr int64_t kRows = 4;

// The first element that output 0 of an axis reads, where the copy begins, and the distance to the last.
inline int64_t first_element(const Axis& axis) {
  return std::min(*axis.element(0, 0), *axis.element(0, axis.taps - 1));
}
inline int64_t extent(const Axis& axis) {
  return (axis.taps - 1) * axis.dilation;
}

// `weights` is checked since 0 times an infinity is not 0.
template <typename scalar_t>
bool are_along_rows(const Convolution& c, bool is_channels_last, const scalar_t* weights) {
  constexpr int64_t lanes = vec::Vectorized<at::opmath_type<scalar_t>>::size();
  const auto has_small_border = [](const Axis& axis) { return axis.stride == 1 && extent(axis) <= axis.outputs; };
  return c.g.channels < lanes && c.g.multiplier == 1 && has_small_border(c.rows) && has_small_border(c.columns) &&
      c.columns.outputs * (is_channels_last ? c.g.channels : 1) >= lanes &&
      std::all_of(weights, weights + c.g.channels * c.taps(), [](scalar_t w) { return std::isfinite(double(w)); });
}

// Computes planes: images of all channels in channels_last, and of one channel in NCHW.
template <typename scalar_t>
class RowConvolution {
 public:
  using acc_t = at::opmath_type<scalar_t>;
  using Vec = vec::Vectorized<acc_t>;
  static constexpr int64_t lanes = Vec::size();

  RowConvolution(const Convolution& c, bool is_channels_last, const scalar_t* weight, const scalar_t* bias)
      : c_(c),
        channels_(is_channels_last ? c.g.channels : 1),
        planes_(c.g.channels / channels_),
        row_((c.columns.outputs + extent(c.columns)) * channels_),
        weights_(planes_ * (c.taps() + 1) * period()) {
    for (const auto a : c10::irange(c.rows.taps)) {
      for (const auto b : c10::irange(c.columns.taps)) {
        const auto row = *c.rows.element(0, a) - first_element(c.rows);
        const auto column = *c.columns.element(0, b) - first_element(c.columns);
        places_.push_back(row * row_ + column * channels_);
      }
    }
    auto* to = weights_.data();
    for (const auto plane : c10::irange(planes_)) {
      for (const auto tap : c10::irange(c.taps() + 1)) {
        for (const auto i : c10::irange(period())) {
          const auto channel = plane * channels_ + i % channels_;
          *to++ = tap < c.taps() ? acc_t(weight[channel * c.taps() + tap]) : bias ? acc_t(bias[channel]) : acc_t(0);
        }
      }
    }
  }

  void compute(scalar_t* output, const scalar_t* input) const {
    // A strip's copy fits into the L1 cache, but few rows are copied twice.
    constexpr int64_t l1 = 1 << 15;
    const auto of_row = static_cast<int64_t>(sizeof(acc_t)) * row_;
    const auto height = std::min(std::max({l1 / of_row, 4 * extent(c_.rows), kRows}), c_.rows.outputs);
    const auto strips = at::divup(c_.rows.outputs, height);
    const auto cost = height * c_.columns.outputs * channels_ * c_.taps();
    at::parallel_for(0, c_.g.batch * planes_ * strips, 1 + (1 << 17) / cost, [&](int64_t begin, int64_t end) {
      Scratch<acc_t> copy((height + extent(c_.rows)) * row_);
      for (const auto task : c10::irange(begin, end)) {
        const auto plane = task / strips, top = task % strips * height;
        const auto* from = input + plane * c_.rows.size * c_.columns.size * channels_;
        auto* to = output + plane * c_.rows.outputs * c_.columns.outputs * channels_;
        const auto bottom = std::min(top + height, c_.rows.outputs);
        pack(copy.data(), from, top, bottom);
        const auto* weights = weights_.data() + plane % planes_ * (c_.taps() + 1) * period();
        compute_strip(to, copy.data(), weights, top, bottom);
      }
    });
  }

 private:
  // Long enough that a vector can be read from any of the channels on.
  int64_t period() const {
    return channels_ + lanes - 1;
  }

  void pack(acc_t* to, const scalar_t* plane, int64_t top, int64_t bottom) const {
    const auto size = c_.columns.size * channels_, first = first_element(c_.columns) * channels_;
    const auto zeros = std::clamp<int64_t>(-first, 0, row_);
    const auto begin = std::clamp<int64_t>(first, 0, size), end = std::clamp(first + row_, begin, size);
    for (auto y = top + first_element(c_.rows), n = bottom - top + extent(c_.rows); n > 0; ++y, --n, to += row_) {
      if (y < 0 || y >= c_.rows.size) {
        std::fill_n(to, row_, acc_t(0));
        continue;
      }
      std::fill_n(to, zeros, acc_t(0));
      vec::convert(plane + y * size + begin, to + zeros, end - begin);
      std::fill(to + zeros + end - begin, to + row_, acc_t(0));
    }
  }

  void compute_strip(scalar_t* out, const acc_t* copy, const acc_t* weights, int64_t top, int64_t bottom) const {
    const auto length = c_.columns.outputs * channels_;
    for (auto y = top; y < bottom;) {
      // The last rows may be computed again.
      const bool are_several = bottom - top >= kRows;
      const auto first = are_several ? std::min(y, bottom - kRows) : y;
      const auto function = are_several ? &RowConvolution::compute_rows<kRows> : &RowConvolution::compute_rows<1>;
      (this->*function)(out + first * length, copy + (first - top) * row_, weights, length);
      y = first + (are_several ? kRows : 1);
    }
  }

  template <int rows>
  void compute_rows(scalar_t* out, const acc_t* from, const acc_t* weights, int64_t length) const {
    const auto step = period();
    const auto taps = c_.taps(), row = row_;
    const auto* places = places_.data();
    for (int64_t i = 0; i < length; i += lanes) {
      const auto first = std::min(i, length - lanes);
      const auto* w = weights + (channels_ == 1 ? 0 : first % channels_);
      auto sums = generate<rows>([&](auto) { return Vec::loadu(w + taps * step); });
      for (int64_t tap = 0; tap < taps; ++tap) {
        const auto* x = from + first + places[tap];
        const auto weight = Vec::loadu(w + tap * step);
        sums = generate<rows>([&](auto r) { return vec::fmadd(Vec::loadu(x + r * row), weight, sums[r]); });
      }
      for (int64_t r = 0; r < rows; ++r) {
        store_rounded(out + r * length + first, sums[r]);
      }
    }
  }

  const Convolution& c_;
  int64_t channels_; // of a plane
  int64_t planes_;   // of an image
  int64_t row_;      // elements in a row of the copy
  std::vector<int64_t> places_;
  // For each plane [tap][period], and behind them the bias.
  Scratch<acc_t> weights_;
};

} // namespace CPU_CAPABILITY
} // namespace at::native::depthwise
