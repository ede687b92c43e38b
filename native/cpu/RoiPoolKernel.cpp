#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/RoiPool.h>
#include <ATen/native/RoiPoolBins.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/Transpose.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace at::native {
namespace {

#if defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kVectorBytes = sizeof(vec::Vectorized<float>);
#else
// Vectorized is wider than the registers there are, which makes the compiler take its vectors apart.
constexpr int64_t kVectorBytes = 16;
#endif

using Range = RoiRange;

// A rectangle of an image.
struct Area {
  Range rows{0, 0};
  Range columns{0, 0};

  int64_t pixels() const {
    return std::max<int64_t>(rows.end - rows.begin, 0) * std::max<int64_t>(columns.end - columns.begin, 0);
  }
};

Area hull(const Area& a, const Area& b) {
  if (a.pixels() == 0 || b.pixels() == 0) {
    return a.pixels() == 0 ? b : a;
  }
  const auto both = [](const Range& a, const Range& b) -> Range {
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
  };
  return {both(a.rows, b.rows), both(a.columns, b.columns)};
}

// A box as rows and columns of the image, one range for each bin.
struct Box {
  int64_t image;
  Area area;
  const Range* rows;
  const Range* columns;
};

// The bins of one dimension, clipped to the image.
template <typename T>
void split(T first, T last, int64_t length, Range* bins, int64_t count) {
  const RoiSpan<T> span(first, last, count);
  for (const auto i : c10::irange(count)) {
    bins[i] = span.bin(i, length);
  }
}

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

// All boxes, checked, in groups whose pixels are laid out together. Images without boxes take no memory, and there may
// be many of them. Without channels there are no bins, however many are asked for.
class Boxes {
 public:
  template <typename T>
  Boxes(const TensorBase& boxes, const TensorBase& input, T scale, const TensorBase& output) {
    const int64_t pooled_height = output.numel() == 0 ? 0 : output.size(2);
    const int64_t pooled_width = output.numel() == 0 ? 0 : output.size(3);
    rows_.resize(boxes.size(0) * pooled_height);
    columns_.resize(boxes.size(0) * pooled_width);
    const T* box = boxes.const_data_ptr<T>();
    for (const auto k : c10::irange(boxes.size(0))) {
      const int64_t image = image_of(box, k, input.size(0));
      for (const auto i : c10::irange(1, 5)) {
        TORCH_CHECK(
            std::isfinite(box[i]), "roi_pool(): expected boxes to be finite, but there is ", box[i], " in row ", k);
      }
      Range* rows = rows_.data() + k * pooled_height;
      Range* columns = columns_.data() + k * pooled_width;
      split(box[2] * scale, box[4] * scale, input.size(2), rows, pooled_height);
      split(box[1] * scale, box[3] * scale, input.size(3), columns, pooled_width);
      boxes_.push_back({image, {}, rows, columns});
      if (output.numel() > 0) {
        boxes_.back().area = {
            {rows[0].begin, rows[pooled_height - 1].end}, {columns[0].begin, columns[pooled_width - 1].end}};
      }
      order_.push_back(k);
      box += 5;
    }
    std::stable_sort(
        order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return boxes_[a].image < boxes_[b].image; });
    const auto is_same_image = [&](int64_t a, int64_t b) { return boxes_[a].image == boxes_[b].image; };
    for (auto first = order_.begin(); first != order_.end();) {
      const auto last = std::find_if_not(first, order_.end(), [&](int64_t k) { return is_same_image(*first, k); });
      Area all;
      int64_t pixels = 0;
      for (auto k = first; k != last; ++k) {
        all = hull(all, boxes_[*k].area);
        pixels += boxes_[*k].area.pixels();
      }
      pixels_ += pixels;
      // The boxes of an image together, unless the pixels between them are more than those that several share.
      for (; first != last; first = pixels < all.pixels() ? first + 1 : last) {
        begins_.push_back(first - order_.begin());
      }
    }
    begins_.push_back(boxes.size(0));
  }

  // Of all boxes; those that several share count for each.
  int64_t pixels() const {
    return pixels_;
  }

  // Halves the groups until there are so many, or one for each box.
  void split_groups(int64_t least) {
    while (groups() < std::min<int64_t>(least, order_.size())) {
      std::vector<int64_t> begins;
      for (const auto i : c10::irange(groups())) {
        begins.push_back(begins_[i]);
        if (group(i).size() > 1) {
          begins.push_back(begins_[i] + group(i).size() / 2);
        }
      }
      begins.push_back(begins_.back());
      begins_ = std::move(begins);
    }
  }

  const Box& operator[](int64_t k) const {
    return boxes_[k];
  }

  int64_t groups() const {
    return static_cast<int64_t>(begins_.size()) - 1;
  }

  // The numbers of its boxes, in order.
  IntArrayRef group(int64_t i) const {
    return IntArrayRef(order_).slice(begins_[i], begins_[i + 1] - begins_[i]);
  }

 private:
  std::vector<Range> rows_;
  std::vector<Range> columns_;
  std::vector<Box> boxes_;
  std::vector<int64_t> order_;
  std::vector<int64_t> begins_;
  int64_t pixels_ = 0;
};

// Pools some channels of one image, as many as a vector has lanes. The part of the image that its boxes cover is laid
// out with these channels side by side first, so that each vector is one pixel, whatever the input's strides.
template <typename scalar_t>
class ChannelBlock {
 public:
  using T = at::opmath_type<scalar_t>;
  using Index = vec::int_same_size_t<T>;
  static constexpr int64_t lanes = kVectorBytes / sizeof(T);
  // The compiler's own vectors: a comparison of Vectorized gives a vector, which AVX512 has to make of a mask and
  // turn into one again before it can choose by it, and each pixel waits for the one before.
  typedef T Vec __attribute__((vector_size(lanes * sizeof(T))));
  typedef Index IndexVec __attribute__((vector_size(lanes * sizeof(T))));

  ChannelBlock(const TensorBase& output, const TensorBase& indices, const TensorBase& input)
      : output_(output.mutable_data_ptr<scalar_t>()),
        indices_(indices.mutable_data_ptr<int32_t>()),
        channels_(input.size(1)),
        pooled_height_(output.size(2)),
        pooled_width_(output.size(3)),
        input_(input.const_data_ptr<scalar_t>()),
        strides_(input.strides()),
        width_(input.size(3)),
        values_(pooled_height_ * pooled_width_ * lanes),
        places_(values_.size()) {}

  void pool(const Boxes& boxes, int64_t group, int64_t channel) {
    const int64_t count = std::min(lanes, channels_ - channel);
    load_pixels(boxes, group, channel, count);
    for (const int64_t k : boxes.group(group)) {
      pool_box(boxes[k]);
      store_box((k * channels_ + channel) * pooled_height_ * pooled_width_, count);
    }
  }

 private:
  void load_pixels(const Boxes& boxes, int64_t group, int64_t channel, int64_t count) {
    area_ = {};
    for (const int64_t k : boxes.group(group)) {
      area_ = hull(area_, boxes[k].area);
    }
    pixels_.resize(area_.pixels() * lanes);
    const auto image = boxes[boxes.group(group).front()].image;
    const auto& [rows, columns] = area_;
    const scalar_t* from = input_ + image * strides_[0] + channel * strides_[1] + columns.begin * strides_[3];
    T* to = pixels_.data();
    for (int64_t y = rows.begin; y < rows.end; ++y, to += (columns.end - columns.begin) * lanes) {
      load_row(from + y * strides_[2], to, columns.end - columns.begin, count);
    }
  }

  void load_row(const scalar_t* from, T* to, int64_t width, int64_t count) {
    if constexpr (std::is_same_v<scalar_t, T>) {
      if (strides_[3] == 1) {
        transpose(from, strides_[1], to, lanes, count, width);
        return;
      }
    }
    for (const auto x : c10::irange(width)) {
      for (const auto c : c10::irange(count)) {
        to[x * lanes + c] = static_cast<T>(from[x * strides_[3] + c * strides_[1]]);
      }
    }
  }

  void pool_box(const Box& box) {
    int64_t bin = 0;
    for (const auto i : c10::irange(pooled_height_)) {
      for (const auto j : c10::irange(pooled_width_)) {
        pool_bin(box.rows[i], box.columns[j], bin);
        bin += lanes;
      }
    }
  }

  void pool_bin(const Range& rows, const Range& columns, int64_t bin) {
    Vec best{};
    IndexVec place = IndexVec{} - 1;
    if (rows.begin < rows.end && columns.begin < columns.end) {
      best = load(pixel(rows.begin, columns.begin));
      place = IndexVec{} + static_cast<Index>(rows.begin * width_ + columns.begin);
      for (int64_t y = rows.begin; y < rows.end; ++y) {
        const T* next = pixel(y, columns.begin);
        for (int64_t x = columns.begin; x < columns.end; ++x, next += lanes) {
          const Vec value = load(next);
          // The first NaN stays, or else the first of the largest.
          const IndexVec is_better = ~(value <= best) & (best == best);
          best = is_better ? value : best;
          place = is_better ? IndexVec{} + static_cast<Index>(y * width_ + x) : place;
        }
      }
    }
    std::memcpy(values_.data() + bin, &best, sizeof(best));
    std::memcpy(places_.data() + bin, &place, sizeof(place));
  }

  static Vec load(const T* from) {
    Vec values;
    std::memcpy(&values, from, sizeof(values));
    return values;
  }

  // From bins of channels to channels of bins.
  void store_box(int64_t offset, int64_t count) {
    store(values_.data(), output_ + offset, count);
    store(places_.data(), indices_ + offset, count);
  }

  template <typename from_t, typename to_t>
  void store(const from_t* from, to_t* to, int64_t count) {
    const int64_t bins = pooled_height_ * pooled_width_;
    if constexpr (std::is_same_v<from_t, to_t>) {
      transpose(from, lanes, to, bins, bins, count);
    } else {
      for (const auto c : c10::irange(count)) {
        for (const auto bin : c10::irange(bins)) {
          to[c * bins + bin] = static_cast<to_t>(from[bin * lanes + c]);
        }
      }
    }
  }

  const T* pixel(int64_t y, int64_t x) const {
    const auto& [rows, columns] = area_;
    return pixels_.data() + ((y - rows.begin) * (columns.end - columns.begin) + x - columns.begin) * lanes;
  }

  scalar_t* output_;
  int32_t* indices_;
  int64_t channels_;
  int64_t pooled_height_;
  int64_t pooled_width_;
  const scalar_t* input_;
  IntArrayRef strides_;
  int64_t width_;
  // What of the image is laid out, and the maxima of a box.
  Area area_;
  std::vector<T> pixels_;
  std::vector<T> values_;
  std::vector<Index> places_;
};

template <typename scalar_t>
void forward(
    const TensorBase& output,
    const TensorBase& indices,
    const TensorBase& input,
    const TensorBase& boxes,
    double spatial_scale) {
  using T = at::opmath_type<scalar_t>;
  constexpr int64_t lanes = ChannelBlock<scalar_t>::lanes;
  Boxes sorted(boxes, input, static_cast<T>(spatial_scale), output);
  const int64_t blocks = (input.size(1) + lanes - 1) / lanes;
  if (output.numel() == 0) {
    return;
  }
  const int64_t work = sorted.pixels() * blocks * lanes + output.numel();
  // About as many elements as TensorIterator gives to a task.
  constexpr int64_t least_work = 1 << 15;
  sorted.split_groups(std::min<int64_t>(at::get_num_threads(), work / least_work) / blocks);
  const int64_t tasks = sorted.groups() * blocks;
  parallel_for(0, tasks, std::max<int64_t>(1, least_work * tasks / work), [&](int64_t begin, int64_t end) {
    ChannelBlock<scalar_t> block(output, indices, input);
    for (const auto task : c10::irange(begin, end)) {
      block.pool(sorted, task / blocks, task % blocks * lanes);
    }
  });
}

// Threads have channels of their own, so each sum is made in the order of the boxes.
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
    forward<scalar_t>(output, indices, input, boxes, spatial_scale);
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
