#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/core/TensorBase.h>
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/cpu/DepthwiseConv2dImage.h>
#include <ATen/native/cpu/DepthwiseConv2dRows.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>
#include <c10/util/irange.h>

#include <cstring>

namespace at::native {
namespace {

using namespace depthwise;

// Tiles of a row that read no edge, or one that does.
struct TileGroup {
  int64_t out; // the first output's column
  int64_t tiles;
  bool is_edge;
  std::vector<TileRun> runs;
};

// The tiles of a row, the same for all rows. A phase with fewer outputs than a tile computes extra ones.
struct Tiles {
  Window window;
  int64_t step; // from one element of a tile to the next, in columns
  bool are_whole = true;
  size_t most_runs = 1;
  std::vector<TileGroup> groups;

  explicit Tiles(const Axis& columns) : window(columns), step(std::min(window.spacing, columns.size)) {
    for (const auto& phase : window.phases) {
      are_whole = are_whole && phase.outputs >= kTile;
      for (int64_t i = 0; i < phase.outputs; i += kTile) {
        add(phase, std::max<int64_t>(std::min(i, phase.outputs - kTile), 0), i > 0 && i + kTile <= phase.outputs);
      }
    }
  }

 private:
  void add(const Phase& phase, int64_t output, bool is_next) {
    most_runs = std::max(most_runs, phase.runs.size());
    TileGroup group{phase.first + output * window.stride, 1, phase.runs.empty(), {}};
    for (const auto& run : phase.runs) {
      const auto elements = tile_elements(run.taps, window.step);
      const auto base = run.base + output * window.step * window.spacing;
      const auto [first, last] = window.inside(base, elements);
      group.is_edge = group.is_edge || last - first < elements;
      if (first < last) {
        const auto column = base + first * window.spacing;
        group.runs.push_back({run.taps, column, elements_inside(first, last), run.kernel, run.kernel_step});
      }
    }
    if (group.runs.empty()) {
      group.runs.push_back({1, 0, 0, 0, 0});
    }
    if (is_next && !group.is_edge && !groups.back().is_edge) {
      ++groups.back().tiles;
    } else {
      groups.push_back(std::move(group));
    }
  }
};

// Divides the work into strips of rows of the output, and strips into blocks of channels. Images in channels_last are
// read and written in place, row by row, so about in the order of memory. All others are packed, a cache line of
// channels and some rows at a time: NCHW, few channels, narrow rows, a multiplier, and half types with more than one
// run, whose sums stay in float between the runs. The sizes were measured on Zen 5 (AVX512, 1 MB of L2, 32 MB of L3).
template <typename scalar_t>
struct Plan {
  using acc_t = at::opmath_type<scalar_t>;

  const Convolution& c;
  bool is_channels_last;
  Tiles tiles;
  bool is_direct;
  int64_t most_lanes; // of a block
  int64_t blocks;
  int64_t height; // of a strip
  int64_t strips;
  int64_t rows;        // of the output that are computed from what is packed at a time
  int64_t packed_rows; // the most that they read

  Plan(const Convolution& c, bool is_channels_last) : c(c), is_channels_last(is_channels_last), tiles(c.columns) {
    const auto channels = c.out_channels();
    is_direct = is_channels_last && c.g.multiplier == 1 && tiles.are_whole && channels >= Block<acc_t>::size &&
        (std::is_same_v<scalar_t, acc_t> || tiles.most_runs == 1);
    most_lanes = Block<acc_t>::channels_of(
        channels, is_direct ? Block<acc_t>::most_lanes : 64 / static_cast<int64_t>(sizeof(scalar_t)));
    blocks = at::divup(channels, most_lanes);
    // A strip of all channels fits into the L2 cache, and its packed part into the L1 cache. But the halo, the rows
    // that a strip shares with the next one, is packed twice, and transposing few pixels is slow.
    constexpr int64_t l1 = 1 << 15, l2 = 1 << 18, least_pixels = 64;
    const auto bytes = static_cast<int64_t>(sizeof(acc_t));
    const auto row = c.rows.size * c.columns.size / c.rows.outputs + c.columns.outputs;
    const auto halo =
        std::min((c.rows.taps - 1) * c.rows.dilation / (c.is_backward ? 1 : c.rows.stride), c.rows.outputs);
    const auto cached = l2 / (row * channels * bytes);
    height = is_direct ? 1 : std::min(std::max({cached, 4 * halo, int64_t{1}}), c.rows.outputs);
    strips = at::divup(c.rows.outputs, height);
    rows = std::max(l1 / (row * most_lanes * bytes), at::divup(least_pixels, c.columns.outputs));
    rows = std::min(rows, height);
    packed_rows = c.rows.most_elements(rows);
  }

  Block<acc_t> block(int64_t i) const {
    return {i * most_lanes, most_lanes, c.out_channels()};
  }
};

// The weights as the tiles read them, for each block of channels [source][tap][lane], and behind them the bias.
template <typename scalar_t>
class PackedWeights {
 public:
  using acc_t = at::opmath_type<scalar_t>;

  PackedWeights(const Plan<scalar_t>& plan, const scalar_t* weight, const scalar_t* bias)
      : planes_(plan.c.sources()),
        taps_(plan.c.taps()),
        block_size_((planes_ * taps_ + 1) * plan.most_lanes),
        packed_(plan.blocks * block_size_) {
    at::parallel_for(0, plan.blocks, 1 + (1 << 14) / block_size_, [&](int64_t begin, int64_t end) {
      // Squares are transposed, which may extend past the last plane.
      Scratch<acc_t> planes(plan.most_lanes * planes_ * taps_ + Block<acc_t>::size);
      for (const auto b : c10::irange(begin, end)) {
        pack(plan.block(b), planes.data(), packed_.data() + b * block_size_, weight, bias);
      }
    });
  }

  const acc_t* weights(int64_t block, int64_t source, int64_t lanes) const {
    return packed_.data() + block * block_size_ + source * taps_ * lanes;
  }
  const acc_t* bias(int64_t block, int64_t lanes) const {
    return weights(block, planes_, lanes);
  }

 private:
  void pack(const Block<acc_t>& block, acc_t* planes, acc_t* to, const scalar_t* weight, const scalar_t* bias) const {
    constexpr auto size = Block<acc_t>::size;
    const auto lane = planes_ * taps_, lanes = block.lanes;
    vec::convert(weight + block.first * lane, planes, block.count * lane);
    std::fill(planes + block.count * lane, planes + lanes * lane + size, acc_t(0));
    std::array<acc_t, size * size> square;
    for (const auto source : c10::irange(planes_)) {
      for (int64_t l = 0; l < lanes; l += size) {
        for (int64_t tap = 0; tap < taps_; tap += size) {
          transpose_square(planes + l * lane + source * taps_ + tap, lane, square.data(), size);
          for (const auto i : c10::irange(std::min(size, taps_ - tap))) {
            std::copy_n(square.data() + i * size, size, to + (source * taps_ + tap + i) * lanes + l);
          }
        }
      }
    }
    for (const auto l : c10::irange(lanes)) {
      to[lane * lanes + l] = bias && l < block.count ? static_cast<acc_t>(bias[block.first + l]) : acc_t(0);
    }
  }

  int64_t planes_; // of the weight, for each output channel
  int64_t taps_;
  int64_t block_size_;
  Scratch<acc_t> packed_;
};

// Computes strips of a block of channels.
template <typename scalar_t>
class Worker {
 public:
  using acc_t = at::opmath_type<scalar_t>;

  Worker(const Plan<scalar_t>& plan, const PackedWeights<scalar_t>& weights)
      : plan_(plan),
        c_(plan.c),
        weights_(weights),
        in_(plan.is_direct ? 0 : plan.most_lanes * c_.sources() * plan.packed_rows * c_.columns.size),
        // An incomplete tile writes past the last row.
        out_(
            plan.is_direct ? 0
                           : plan.most_lanes * (plan.rows * c_.columns.outputs + kTile * plan.tiles.window.stride)) {}

  // The rows from top to bottom of an image.
  void compute(int64_t b, Image<const scalar_t> in, Image<scalar_t> out, int64_t top, int64_t bottom) {
    const auto outputs = c_.columns.outputs;
    const auto block = plan_.block(b);
    out.data += block.first * out.channel + top * outputs * out.pixel;
    if (plan_.is_direct) {
      const Rows<scalar_t> rows{in.data + block.first, in.pixel};
      return compute_rows(rows, b, block.lanes, out.data, out.pixel, top, bottom);
    }
    last_row_ = 0;
    for (auto y = top; y < bottom; y += plan_.rows) {
      const auto end = std::min(y + plan_.rows, bottom);
      load(block, in, y, end);
      const auto source_size = plan_.packed_rows * c_.columns.size * block.lanes;
      const Rows<acc_t> rows{in_.data(), block.lanes, first_row_, source_size};
      compute_rows(rows, b, block.lanes, out_.data(), block.lanes, y, end);
      store_block(out, out_.data(), block, (end - y) * outputs);
      out.data += (end - y) * outputs * out.pixel;
    }
  }

 private:
  // Rows of the image from `first` on: from one pixel to the next and from one source to the next.
  template <typename T>
  struct Rows {
    const T* data;
    int64_t step;
    int64_t first = 0;
    int64_t source_size = 0;
  };

  // Packs the rows of the image that are read; the halo is packed already.
  void load(const Block<acc_t>& block, Image<const scalar_t> in, int64_t top, int64_t bottom) {
    const auto [first, last] = c_.rows.elements(top, bottom);
    const auto kept = std::max<int64_t>(last_row_ - first, 0);
    const auto outs = c_.is_backward ? 1 : c_.g.multiplier;
    const auto row = c_.columns.size * block.lanes;
    // The channel of lane l is (block.first + l) / outs * sources + source.
    in.data += (first + kept) * c_.columns.size * in.pixel + block.first / outs * c_.sources() * in.channel;
    for (const auto source : c10::irange(c_.sources())) {
      auto* to = in_.data() + source * plan_.packed_rows * row;
      if (kept > 0) {
        std::memmove(to, to + (first - first_row_) * row, kept * row * sizeof(acc_t));
      }
      const ChannelMap map{block.first % outs, outs, c_.sources(), source};
      load_block(to + kept * row, in, block, map, (last - first - kept) * c_.columns.size);
    }
    first_row_ = first;
    last_row_ = last;
  }

  template <typename T>
  void compute_rows(const Rows<T>& rows, int64_t b, int64_t lanes, T* out, int64_t step, int64_t top, int64_t bottom) {
    const auto row_size = c_.columns.size * rows.step;
    c10::SmallVector<Source<T>, 16> sources;
    for (const auto y : c10::irange(top, bottom)) {
      sources.clear();
      for (const auto source : c10::irange(c_.sources())) {
        const auto* weights = weights_.weights(b, source, lanes);
        for (const auto tap : c10::irange(c_.rows.taps)) {
          const auto row = c_.rows.element(y, tap);
          if (row && *row >= 0 && *row < c_.rows.size) {
            const auto* data = rows.data + source * rows.source_size + (*row - rows.first) * row_size;
            sources.push_back({data, weights + tap * c_.columns.taps * lanes});
          }
        }
      }
      TileArgs<T> args{sources.data(), static_cast<int64_t>(sources.size()), plan_.tiles.step * rows.step};
      args.out_step = plan_.tiles.window.stride * step;
      for (const auto& group : plan_.tiles.groups) {
        compute_group(group, rows.step, lanes, weights_.bias(b, lanes), out + group.out * step, args);
      }
      out += c_.columns.outputs * step;
    }
  }

  template <typename T>
  void
  compute_group(const TileGroup& group, int64_t pixel, int64_t lanes, const acc_t* bias, T* out, TileArgs<T> args) {
    constexpr auto size = Block<acc_t>::size;
    const auto next_element = kTile * plan_.tiles.window.step * args.step, next_out = kTile * args.out_step;
    // Pixels are some cache lines apart: all vectors of a tile come before the next tile, in the order of memory.
    if (plan_.is_direct && lanes > 2 * size) {
      args.tiles = lanes / size;
      args.next_element = args.next_weight = args.next_start = args.next_out = size;
      for (const auto tile : c10::irange(group.tiles)) {
        compute_tiles(group, pixel, lanes, 0, tile * next_element, bias, out + tile * next_out, args);
      }
    } else {
      args.tiles = group.tiles;
      args.next_element = next_element;
      args.next_out = next_out;
      for (int64_t l = 0; l < lanes; l += size) {
        compute_tiles(group, pixel, lanes, l, 0, bias, out + l, args);
      }
    }
  }

  // Computes the runs of tiles, one after the other.
  template <typename T>
  void compute_tiles(
      const TileGroup& group,
      int64_t pixel,
      int64_t lanes,
      int64_t lane,
      int64_t offset,
      const acc_t* bias,
      T* out,
      TileArgs<T> args) const {
    const auto& functions = group.is_edge ? kTileFunctions<T, true> : kTileFunctions<T, false>;
    args.start = bias + lane;
    args.out = out;
    for (const auto& run : group.runs) {
      args.offset = offset + run.first * pixel + lane;
      args.inside = run.inside;
      args.weight_offset = run.kernel * lanes + lane;
      args.weight_step = run.kernel_step * lanes;
      functions[plan_.tiles.window.step - 1][run.taps - 1](args);
      if constexpr (std::is_same_v<T, acc_t>) {
        args.start = out;
        args.start_step = args.out_step;
        args.next_start = args.next_out;
      }
    }
  }

  const Plan<scalar_t>& plan_;
  const Convolution& c_;
  const PackedWeights<scalar_t>& weights_;
  Scratch<acc_t> in_;
  Scratch<acc_t> out_;
  // The packed part of the image.
  int64_t first_row_ = 0;
  int64_t last_row_ = 0;
};

template <typename scalar_t>
void convolve(
    const Convolution& c,
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const scalar_t* bias) {
  const bool is_channels_last = !output.is_contiguous() || !input.is_contiguous();
  const auto* in = input.const_data_ptr<scalar_t>();
  auto* out = output.mutable_data_ptr<scalar_t>();
  const auto* taps = weight.const_data_ptr<scalar_t>();
  if (are_along_rows(c, is_channels_last, taps)) {
    return RowConvolution<scalar_t>(c, is_channels_last, taps, bias).compute(out, in);
  }
  const Plan<scalar_t> plan(c, is_channels_last);
  const PackedWeights<scalar_t> weights(plan, taps, bias);
  const auto in_pixels = c.rows.size * c.columns.size, out_pixels = c.rows.outputs * c.columns.outputs;
  const auto strips = c.g.batch * plan.strips;
  // Blocks that are written in place share channels, so one thread computes all of them.
  const auto parts = plan.is_direct ? 1 : plan.blocks;
  const auto cost = plan.height * c.columns.outputs * c.taps() * c.sources() * c.out_channels() / parts;
  at::parallel_for(0, strips * parts, 1 + (1 << 17) / cost, [&](int64_t begin, int64_t end) {
    Worker<scalar_t> worker(plan, weights);
    for (const auto task : c10::irange(begin, end)) {
      const auto strip = task / parts, image = strip / plan.strips, top = strip % plan.strips * plan.height;
      const auto from = image_of(in, image, c.in_channels(), in_pixels, is_channels_last);
      const auto to = image_of(out, image, c.out_channels(), out_pixels, is_channels_last);
      const auto bottom = std::min(top + plan.height, c.rows.outputs);
      for (auto b = task % parts; b < plan.blocks; b += parts) {
        worker.compute(b, from, to, top, bottom);
      }
    }
  });
}

void forward_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const DepthwiseConv2dGeometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_cpu", [&] {
    const auto* bias_data = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
    convolve<scalar_t>({g, false}, output, input, weight, bias_data);
  });
}

void backward_input_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const DepthwiseConv2dGeometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, weight.scalar_type(), "depthwise_conv2d_backward_input_cpu", [&] {
    convolve<scalar_t>({g, true}, grad_input, grad_output, weight, nullptr);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_stub, &forward_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_input_stub, &backward_input_kernel)

} // namespace at::native
