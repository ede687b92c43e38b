#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/RoiPool.h>
#include <ATen/native/RoiPoolBins.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace at::native {
namespace {

template <typename T>
int64_t image_of(const T* box, int64_t number, int64_t images) {
  const T image = box[0];
  TORCH_CHECK(
      image >= 0 && image < static_cast<T>(images) && image == std::floor(image),
      "roi_pool(): expected the first column of boxes to be the index of one of input's ",
      images,
      " images, but it is ",
      image,
      " in row ",
      number);
  return static_cast<int64_t>(image);
}

// A rectangle of an image.
struct Area {
  RoiRange rows{0, 0};
  RoiRange columns{0, 0};

  int64_t height() const {
    return std::max<int64_t>(rows.end - rows.begin, 0);
  }

  int64_t width() const {
    return std::max<int64_t>(columns.end - columns.begin, 0);
  }

  int64_t pixels() const {
    return height() * width();
  }
};

Area hull(const Area& a, const Area& b) {
  if (a.pixels() == 0 || b.pixels() == 0) {
    return a.pixels() == 0 ? b : a;
  }
  const auto both = [](const RoiRange& a, const RoiRange& b) -> RoiRange {
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  };
  return {both(a.rows, b.rows), both(a.columns, b.columns)};
}

struct Box {
  int64_t number;
  int64_t image;
  int64_t pixels;
  // The transposed pixels: its own, or those of all boxes of the image, which then share a tile number.
  Area tile;
  int64_t tile_number;
};

// All boxes, checked, in the order of their images.
template <typename T>
std::vector<Box>
sort_boxes(const TensorBase& boxes, const TensorBase& input, T spatial_scale, const TensorBase& output) {
  const T* box = boxes.const_data_ptr<T>();
  const auto range = [&](int64_t dim, T first, T last) -> RoiRange {
    const RoiSpan<T> span(first * spatial_scale, last * spatial_scale, output.size(dim));
    return {span.bin(0, input.size(dim)).begin, span.bin(output.size(dim) - 1, input.size(dim)).end};
  };
  std::vector<Box> sorted;
  for (const auto k : c10::irange(boxes.size(0))) {
    const int64_t image = image_of(box, k, input.size(0));
    for (const auto i : c10::irange(1, 5)) {
      TORCH_CHECK(
          std::isfinite(box[i]), "roi_pool(): expected boxes to be finite, but there is ", box[i], " in row ", k);
    }
    const Area area{range(2, box[2], box[4]), range(3, box[1], box[3])};
    sorted.push_back({k, image, area.pixels(), area, k});
    box += 5;
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Box& a, const Box& b) { return a.image < b.image; });
  for (auto first = sorted.begin(); first != sorted.end();) {
    const int64_t image = first->image, number = first->number;
    const auto last = std::find_if(first, sorted.end(), [&](const Box& other) { return other.image != image; });
    Area all;
    int64_t pixels = 0;
    for (auto each = first; each != last; ++each) {
      all = hull(all, each->tile);
      pixels += each->pixels;
    }
    // The boxes share a tile, unless it has more pixels than all of their own tiles.
    const bool is_shared = pixels >= all.pixels();
    for (; first != last; ++first) {
      first->tile = is_shared ? all : first->tile;
      first->tile_number = is_shared ? number : first->number;
    }
  }
  return sorted;
}

// The pixels of each bin of one dimension, clipped to the image.
template <typename T>
void split(T first, T last, int64_t length, std::vector<RoiRange>& bins) {
  const RoiSpan<T> span(first, last, bins.size());
  for (const auto i : c10::irange(bins.size())) {
    bins[i] = span.bin(i, length);
  }
}

// Pools as many channels of a box as a vector has lanes, or one. The pixels are transposed into a tile with these
// channels side by side first, so that each vector is one pixel, whatever the input's strides.
template <typename scalar_t, bool is_one>
class BoxPool {
 public:
  using T = at::opmath_type<scalar_t>;
  using Index = vec::int_same_size_t<T>;
  using Vec = vec::Vectorized<T>;
  using IndexVec = vec::Vectorized<Index>;
  static constexpr int64_t lanes = is_one ? 1 : Vec::size();

  BoxPool(
      const TensorBase& output,
      const TensorBase& indices,
      const TensorBase& input,
      const TensorBase& boxes,
      T spatial_scale)
      : output_(output),
        indices_(indices),
        input_(input),
        width_(input.size(3)),
        boxes_(boxes.const_data_ptr<T>()),
        spatial_scale_(spatial_scale),
        rows_(output.size(2)),
        columns_(output.size(3)),
        values_(rows_.size() * columns_.size() * lanes),
        places_(values_.size()) {}

  void pool(const Box& box, int64_t channel) {
    const int64_t count = std::min(lanes, input_.size(1) - channel);
    if (tile_number_ != box.tile_number || tile_channel_ != channel) {
      load_tile(box, channel, count);
    }
    const T* corners = boxes_ + box.number * 5 + 1;
    split(corners[1] * spatial_scale_, corners[3] * spatial_scale_, input_.size(2), rows_);
    split(corners[0] * spatial_scale_, corners[2] * spatial_scale_, input_.size(3), columns_);
    int64_t bin = 0;
    for (const auto& rows : rows_) {
      for (const auto& columns : columns_) {
        if constexpr (is_one) {
          pool_number(rows, columns, bin);
        } else {
          pool_vector(rows, columns, bin);
        }
        bin += lanes;
      }
    }
    const int64_t first =
        (box.number * input_.size(1) + channel) * static_cast<int64_t>(rows_.size() * columns_.size());
    store(values_.data(), output_.mutable_data_ptr<scalar_t>() + first, count);
    store(places_.data(), indices_.mutable_data_ptr<int32_t>() + first, count);
  }

 private:
  void load_tile(const Box& box, int64_t channel, int64_t count) {
    area_ = box.tile;
    tile_number_ = box.tile_number;
    tile_channel_ = channel;
    tile_.resize(area_.pixels() * lanes);
    const auto strides = input_.strides();
    const scalar_t* from = input_.const_data_ptr<scalar_t>() + box.image * strides[0] + channel * strides[1] +
        area_.rows.begin * strides[2] + area_.columns.begin * strides[3];
    T* to = tile_.data();
    for (int64_t y = 0; y < area_.height(); ++y, from += strides[2], to += area_.width() * lanes) {
      for (const auto x : c10::irange(area_.width())) {
        for (const auto c : c10::irange(count)) {
          to[x * lanes + c] = static_cast<T>(from[x * strides[3] + c * strides[1]]);
        }
      }
    }
  }

  void pool_number(const RoiRange& rows, const RoiRange& columns, int64_t bin) {
    T best = 0;
    int64_t place = -1;
    if (rows.begin < rows.end && columns.begin < columns.end) {
      best = *pixel(rows.begin, columns.begin);
      place = rows.begin * width_ + columns.begin;
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        const T* next = pixel(y, columns.begin);
        for (int64_t x = columns.begin; x < columns.end; ++x, ++next) {
          if (!(*next <= best) && best == best) {
            best = *next;
            place = y * width_ + x;
          }
        }
      }
    }
    values_[bin] = best;
    places_[bin] = static_cast<Index>(place);
  }

  void pool_vector(const RoiRange& rows, const RoiRange& columns, int64_t bin) {
    Vec best(T(0));
    IndexVec place(Index(-1));
    if (rows.begin < rows.end && columns.begin < columns.end) {
      best = Vec::loadu(pixel(rows.begin, columns.begin));
      place = IndexVec(static_cast<Index>(rows.begin * width_ + columns.begin));
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        const T* next = pixel(y, columns.begin);
        for (int64_t x = columns.begin; x < columns.end; ++x, next += lanes) {
          const Vec value = Vec::loadu(next);
          // The first NaN stays, or else the first of the largest.
          const Vec stays = (value <= best) | (best != best);
          best = Vec::blendv(value, best, stays);
          place = IndexVec::blendv(IndexVec(static_cast<Index>(y * width_ + x)), place, vec::cast<Index>(stays));
        }
      }
    }
    best.store(values_.data() + bin);
    place.store(places_.data() + bin);
  }

  const T* pixel(int64_t y, int64_t x) const {
    return tile_.data() + ((y - area_.rows.begin) * area_.width() + x - area_.columns.begin) * lanes;
  }

  // From bins of channels to channels of bins.
  template <typename from_t, typename to_t>
  void store(const from_t* from, to_t* to, int64_t count) {
    const int64_t bins = rows_.size() * columns_.size();
    for (const auto c : c10::irange(count)) {
      for (const auto bin : c10::irange(bins)) {
        to[c * bins + bin] = static_cast<to_t>(from[bin * lanes + c]);
      }
    }
  }

  const TensorBase& output_;
  const TensorBase& indices_;
  const TensorBase& input_;
  int64_t width_;
  const T* boxes_;
  T spatial_scale_;
  // The transposed pixels.
  std::vector<T> tile_;
  Area area_;
  int64_t tile_number_ = -1;
  int64_t tile_channel_ = -1;
  // The pixels of a box's bins, and their maxima.
  std::vector<RoiRange> rows_;
  std::vector<RoiRange> columns_;
  std::vector<T> values_;
  std::vector<Index> places_;
};

template <typename scalar_t, bool is_one>
void forward(
    const TensorBase& output,
    const TensorBase& indices,
    const TensorBase& input,
    const TensorBase& boxes,
    double spatial_scale) {
  using T = at::opmath_type<scalar_t>;
  constexpr int64_t lanes = BoxPool<scalar_t, is_one>::lanes;
  const auto scale = static_cast<T>(spatial_scale);
  const auto sorted = sort_boxes(boxes, input, scale, output);
  if (output.numel() == 0) {
    return;
  }
  int64_t pixels = 0;
  for (const Box& box : sorted) {
    pixels += box.pixels;
  }
  const int64_t count = boxes.size(0);
  const int64_t work_per_box = lanes * (pixels / count + output.size(2) * output.size(3));
  const int64_t grain_size = std::max<int64_t>(1, at::internal::GRAIN_SIZE / work_per_box);
  // All boxes for some channels, then for the next, so that a thread reuses their common tile.
  parallel_for(0, (input.size(1) + lanes - 1) / lanes * count, grain_size, [&](int64_t begin, int64_t end) {
    BoxPool<scalar_t, is_one> box_pool(output, indices, input, boxes, scale);
    for (const auto task : c10::irange(begin, end)) {
      box_pool.pool(sorted[task % count], task / count * lanes);
    }
  });
}

// Each thread has its own channels, so each sum is in the order of the boxes.
template <typename T>
void backward(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& boxes,
    const TensorBase& indices) {
  const int64_t channels = grad_output.size(1);
  const int64_t bins = grad_output.size(2) * grad_output.size(3);
  const int64_t plane = grad_input.size(2) * grad_input.size(3);
  std::vector<int64_t> images;
  for (const auto k : c10::irange(boxes.size(0))) {
    images.push_back(image_of(boxes.const_data_ptr<T>() + k * 5, k, grad_input.size(0)));
  }
  const auto* grads = grad_output.const_data_ptr<T>();
  const auto* places = indices.const_data_ptr<int32_t>();
  auto* sums = grad_input.mutable_data_ptr<T>();
  parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
    for (const auto k : c10::irange(boxes.size(0))) {
      for (const auto c : c10::irange(begin, end)) {
        T* to = sums + (images[k] * channels + c) * plane;
        const int64_t offset = (k * channels + c) * bins;
        for (const auto i : c10::irange(offset, offset + bins)) {
          TORCH_CHECK_INDEX(
              places[i] < plane, "roi_pool_backward(): expected indices to be below ", plane, ", but got ", places[i]);
          if (places[i] >= 0) {
            to[places[i]] += grads[i];
          }
        }
      }
    }
  });
}

void roi_pool_kernel(
    const TensorBase& output,
    const TensorBase& indices,
    const TensorBase& input,
    const TensorBase& boxes,
    double spatial_scale) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "roi_pool_cpu", [&] {
    // From this number of channels on, a vector for each pixel is faster.
    constexpr int64_t several = 5;
    const auto function = input.size(1) < several ? &forward<scalar_t, true> : &forward<scalar_t, false>;
    function(output, indices, input, boxes, spatial_scale);
  });
}

void roi_pool_backward_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& boxes,
    const TensorBase& indices) {
  AT_DISPATCH_FLOATING_TYPES(grad_input.scalar_type(), "roi_pool_backward_cpu", [&] {
    backward<scalar_t>(grad_input, grad_output, boxes, indices);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(roi_pool_stub, &roi_pool_kernel)
ALSO_REGISTER_AVX512_DISPATCH(roi_pool_backward_stub, &roi_pool_backward_kernel)

} // namespace at::native
