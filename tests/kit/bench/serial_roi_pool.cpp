// The pooling of Fast R-CNN as a serial loop over boxes, bins, channels and pixels.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

struct Range {
  int begin;
  int end;
};

Range bin(int start, float size, int i, int length) {
  const int from = start + static_cast<int>(std::floor(i * size));
  const int to = start + static_cast<int>(std::ceil((i + 1) * size));
  return {std::clamp(from, 0, length), std::clamp(to, 0, length)};
}

} // namespace

extern "C" void serial_roi_pool(
    const float* input,
    const float* boxes,
    float* output,
    int32_t* indices,
    int64_t channels,
    int64_t height,
    int64_t width,
    int64_t count,
    int64_t pooled,
    float scale) {
  for (int64_t k = 0; k < count; ++k, boxes += 5) {
    const int x = static_cast<int>(std::round(boxes[1] * scale)), y = static_cast<int>(std::round(boxes[2] * scale));
    const float bin_width = std::max<float>(std::round(boxes[3] * scale) - x + 1, 1) / pooled;
    const float bin_height = std::max<float>(std::round(boxes[4] * scale) - y + 1, 1) / pooled;
    const float* image = input + static_cast<int64_t>(boxes[0]) * channels * height * width;
    for (int i = 0; i < pooled; ++i) {
      for (int j = 0; j < pooled; ++j) {
        const Range rows = bin(y, bin_height, i, height), columns = bin(x, bin_width, j, width);
        const bool is_empty = rows.end <= rows.begin || columns.end <= columns.begin;
        for (int64_t c = 0; c < channels; ++c) {
          const float* plane = image + c * height * width;
          float best = is_empty ? 0 : std::numeric_limits<float>::lowest();
          int32_t place = -1;
          for (int row = rows.begin; row < rows.end; ++row) {
            for (int column = columns.begin; column < columns.end; ++column) {
              const int32_t at = row * width + column;
              if (plane[at] > best) {
                best = plane[at];
                place = at;
              }
            }
          }
          const int64_t to = ((k * channels + c) * pooled + i) * pooled + j;
          output[to] = best;
          indices[to] = place;
        }
      }
    }
  }
}
