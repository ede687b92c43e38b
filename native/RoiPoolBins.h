#pragma once

// Which pixels the bins of a box cover: shared by the kernels of all devices.

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace at::native {

// The range [begin, end); empty if end <= begin.
struct RoiRange {
  int64_t begin;
  int64_t end;
};

// One dimension of a box, from its first to its last coordinate, and its number of bins.
template <typename T>
class RoiSpan {
 public:
  C10_HOST_DEVICE RoiSpan(T first, T last, int64_t bins) : start_(round_to_pixel(first)) {
    const int64_t size = std::max<int64_t>(round_to_pixel(last) - start_ + 1, 1);
    bin_size_ = static_cast<T>(size) / static_cast<T>(bins);
  }

  // The bin of this number, clipped to the image.
  C10_HOST_DEVICE RoiRange bin(int64_t number, int64_t length) const {
    const auto from = static_cast<int64_t>(std::floor(static_cast<T>(number) * bin_size_));
    const auto to = static_cast<int64_t>(std::ceil(static_cast<T>(number + 1) * bin_size_));
    return {std::clamp<int64_t>(start_ + from, 0, length), std::clamp<int64_t>(start_ + to, 0, length)};
  }

 private:
  // Round half away from zero. Coordinates are clamped to 2^40, so that their sums and products fit into an int64_t.
  C10_HOST_DEVICE static int64_t round_to_pixel(T coordinate) {
    constexpr auto farthest = static_cast<T>(int64_t(1) << 40);
    return static_cast<int64_t>(std::clamp(std::round(coordinate), -farthest, farthest));
  }

  int64_t start_;
  T bin_size_;
};

} // namespace at::native
