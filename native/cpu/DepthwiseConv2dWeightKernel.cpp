#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/core/TensorBase.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/cpu/DepthwiseConv2dImage.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <c10/util/irange.h>

#include <tuple>

namespace at::native {
namespace {

using namespace depthwise;

// The gradients of the weight and of the bias are sums over all pixels of all images. They are computed in chunks of
// rows of grad_output, whose sums are then added up: so the result does not depend on the number of threads.
struct Chunks {
  int64_t rows; // of all images
  int64_t size; // rows of a chunk
  int64_t count;

  explicit Chunks(const DepthwiseConv2dGeometry& g) : rows(g.batch * g.output[0]) {
    constexpr int64_t pixels = 1024, most = 4096;
    // A chunk reads kernel[0] - 1 rows of the image more than it has.
    size = std::max({pixels / g.output[1], 2 * g.kernel[0], rows / most + 1});
    size = std::min(size, rows);
    count = (rows + size - 1) / size;
  }
};

// Sums up a chunk for a block of channels.
template <typename scalar_t>
class Worker {
 public:
  using acc_t = at::opmath_type<scalar_t>;
  using Vec = vec::Vectorized<acc_t>;

  // For blocks of at most `most` channels.
  Worker(const DepthwiseConv2dGeometry& g, const Chunks& chunks, int64_t most)
      : g_(g),
        rows_(g, 0, false),
        columns_(g, 1, false),
        window_(columns_),
        unused_(most * kLongestRun),
        grads_(most * std::min(chunks.size, g.output[0]) * g.output[1]),
        image_(most * rows_.most_elements(chunks.size) * g.input[1]) {}

  // Adds the products of rows from top to bottom of grad_output to `sums`: [tap][lane], then those of the bias.
  void
  add(const Block<acc_t>& block,
      Image<const scalar_t> grads,
      Image<const scalar_t> image,
      int64_t top,
      int64_t bottom,
      bool of_weight,
      bool of_bias,
      acc_t* sums) {
    const auto width = g_.output[1];
    const auto [first, last] = rows_.elements(top, bottom);
    grads.data += block.first * grads.channel + top * width * grads.pixel;
    image.data += block.first / g_.multiplier * image.channel + first * g_.input[1] * image.pixel;
    const Rows rows{first, top, bottom, of_weight, of_bias};
    if (grads.channel == 1 && image.channel == 1 && block.is_whole() && g_.multiplier == 1) {
      return add_rows(block.lanes, grads.data, grads.pixel, image.data, image.pixel, rows, sums);
    }
    load_block(grads_.data(), grads, block, {0, 1, 1, 0}, (bottom - top) * width);
    if (of_weight) {
      const ChannelMap map{block.first % g_.multiplier, g_.multiplier, 1, 0};
      load_block(image_.data(), image, block, map, (last - first) * g_.input[1]);
    }
    add_rows<acc_t>(block.lanes, grads_.data(), block.lanes, image_.data(), block.lanes, rows, sums);
  }

 private:
  // The first row of the image, and the rows of grad_output that are computed.
  struct Rows {
    int64_t first;
    int64_t top, bottom;
    bool of_weight, of_bias;
  };

  template <typename T>
  void add_rows(
      int64_t lanes,
      const T* grads,
      int64_t grad_step,
      const T* image,
      int64_t step,
      const Rows& rows,
      acc_t* sums) {
    const auto width = g_.output[1];
    if (rows.of_bias) {
      const auto pixels = (rows.bottom - rows.top) * width;
      add_bias(lanes, grads, grad_step, pixels, sums + rows_.taps * columns_.taps * lanes);
    }
    // The rows of the image that the taps read, with the place of their sums.
    c10::SmallVector<int64_t, 16> taps;
    c10::SmallVector<const T*, 16> images;
    for (auto y = rows.top; rows.of_weight && y < rows.bottom; ++y) {
      taps.clear();
      images.clear();
      for (const auto tap : c10::irange(rows_.taps)) {
        const auto row = *rows_.element(y, tap);
        if (row >= 0 && row < rows_.size) {
          taps.push_back(tap);
          images.push_back(image + (row - rows.first) * g_.input[1] * step);
        }
      }
      add_row<T>(lanes, grads + (y - rows.top) * width * grad_step, grad_step, taps, images, step, sums);
    }
  }

  template <typename T>
  void add_bias(int64_t lanes, const T* grads, int64_t step, int64_t pixels, acc_t* sums) const {
    constexpr int64_t segment = 128;
    for (int64_t l = 0; l < lanes; l += Vec::size()) {
      auto total = Vec::loadu(sums + l);
      for (int64_t p = 0; p < pixels; p += segment) {
        std::array<Vec, 4> parts{Vec(acc_t(0)), Vec(acc_t(0)), Vec(acc_t(0)), Vec(acc_t(0))};
        for (const auto i : c10::irange(p, std::min(p + segment, pixels))) {
          auto& part = parts[i % parts.size()];
          part = part + loadu_once(grads + i * step + l);
        }
        total = total + ((parts[0] + parts[1]) + (parts[2] + parts[3]));
      }
      total.store(sums + l);
    }
  }

  template <typename T>
  void add_row(
      int64_t lanes,
      const T* grads,
      int64_t grad_step,
      c10::ArrayRef<int64_t> taps,
      c10::ArrayRef<const T*> images,
      int64_t step,
      acc_t* sums) {
    const auto count = static_cast<int64_t>(taps.size());
    CorrelateArgs<T> args;
    args.grad_step = window_.stride * grad_step;
    args.spacing = window_.spacing;
    args.step = step;
    args.next = std::min(window_.spacing, window_.size) * step;
    args.sums_step = lanes;
    for (const auto& phase : window_.phases) {
      args.outputs = phase.outputs;
      for (const auto& run : phase.runs) {
        const auto& function = kCorrelateFunctions<T>[window_.step - 1][run.taps - 1];
        const int64_t at_once = rows_at_once(static_cast<int>(run.taps));
        args.base = run.base;
        std::tie(args.first, args.last) = window_.inside(run.base, window_.step * (phase.outputs - 1) + run.taps);
        for (int64_t l = 0; l < lanes; l += Vec::size()) {
          args.grads = grads + phase.first * grad_step + l;
          for (int64_t i = 0; i < count; i += at_once) {
            for (const auto row : c10::irange(at_once)) {
              const bool is_used = i + row < count;
              args.rows[row] = images[is_used ? i + row : i] + l;
              args.sums[row] =
                  is_used ? sums + (taps[i + row] * columns_.taps + run.kernel) * lanes + l : unused_.data();
            }
            function(args);
          }
        }
      }
    }
  }

  const DepthwiseConv2dGeometry& g_;
  Axis rows_;
  Axis columns_;
  Window window_;
  // Receives the sums that no row of the kernel needs, where its rows do not fill the last call.
  Scratch<acc_t> unused_;
  Scratch<acc_t> grads_;
  Scratch<acc_t> image_;
};

template <typename scalar_t>
void backward_weight(
    const DepthwiseConv2dGeometry& g,
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input) {
  using acc_t = at::opmath_type<scalar_t>;
  using LaneBlock = Block<acc_t>;
  const bool is_nhwc = !grad_output.is_contiguous() || !input.is_contiguous();
  const Chunks chunks(g);
  const auto channels = g.output_channels();
  const auto most = LaneBlock::channels_of(channels, is_nhwc ? LaneBlock::most_lanes : LaneBlock::most_lanes / 4);
  const auto blocks = at::divup(channels, most);
  const auto taps = g.kernel[0] * g.kernel[1], sums_size = (taps + 1) * most;
  const auto in_pixels = g.input[0] * g.input[1], out_pixels = g.output[0] * g.output[1];
  Scratch<acc_t> sums(chunks.count * blocks * sums_size);
  const auto* grads = grad_output.const_data_ptr<scalar_t>();
  const auto* images = input.const_data_ptr<scalar_t>();
  // Images larger than a cache are read row by row, all blocks of channels at a time.
  constexpr int64_t cache = 1 << 24;
  const auto elements = g.batch * (in_pixels * g.channels + out_pixels * channels);
  const bool is_far = is_nhwc && g.multiplier == 1 && channels >= LaneBlock::size &&
      elements * static_cast<int64_t>(sizeof(scalar_t)) > cache;
  const auto parts = is_far ? 1 : blocks;
  const auto cost = chunks.size * g.output[1] * taps * blocks / parts;
  at::parallel_for(0, chunks.count * parts, 1 + (1 << 13) / cost, [&](int64_t begin, int64_t end) {
    Worker<scalar_t> worker(g, chunks, most);
    for (const auto task : c10::irange(begin, end)) {
      const auto chunk = task / parts, last = std::min((chunk + 1) * chunks.size, chunks.rows);
      auto* to = sums.data() + chunk * blocks * sums_size;
      for (auto b = task % parts; b < blocks; b += parts) {
        std::fill_n(to + b * sums_size, sums_size, acc_t(0));
      }
      for (auto row = chunk * chunks.size; row < last;) {
        const auto i = row / g.output[0], top = row % g.output[0];
        const auto bottom = is_far ? top + 1 : std::min(g.output[0], top + last - row);
        const auto from_grads = image_of(grads, i, channels, out_pixels, is_nhwc);
        const auto from_image = image_of(images, i, g.channels, in_pixels, is_nhwc);
        for (auto b = task % parts; b < blocks; b += parts) {
          const LaneBlock block(b * most, most, channels);
          auto* sums_of = to + b * sums_size;
          worker.add(block, from_grads, from_image, top, bottom, grad_weight.defined(), grad_bias.defined(), sums_of);
        }
        row += bottom - top;
      }
    }
  });
  auto* weights = grad_weight.defined() ? grad_weight.mutable_data_ptr<scalar_t>() : nullptr;
  auto* biases = grad_bias.defined() ? grad_bias.mutable_data_ptr<scalar_t>() : nullptr;
  at::parallel_for(0, blocks, 1 + (1 << 15) / (chunks.count * sums_size), [&](int64_t begin, int64_t end) {
    for (const auto b : c10::irange(begin, end)) {
      const LaneBlock block(b * most, most, channels);
      auto* total = sums.data() + b * sums_size;
      for (const auto chunk : c10::irange(int64_t{1}, chunks.count)) {
        const auto* part = total + chunk * blocks * sums_size;
        for (const auto i : c10::irange((taps + 1) * block.lanes)) {
          total[i] += part[i];
        }
      }
      for (const auto l : c10::irange(block.shared, block.count)) {
        for (int64_t tap = 0; weights && tap < taps; ++tap) {
          weights[(block.first + l) * taps + tap] = static_cast<scalar_t>(total[tap * block.lanes + l]);
        }
        if (biases) {
          biases[block.first + l] = static_cast<scalar_t>(total[taps * block.lanes + l]);
        }
      }
    }
  });
}

void backward_weight_kernel(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const DepthwiseConv2dGeometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_backward_weight_cpu", [&] {
    backward_weight<scalar_t>(g, grad_weight, grad_bias, grad_output, input);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_weight_stub, &backward_weight_kernel)

} // namespace at::native
