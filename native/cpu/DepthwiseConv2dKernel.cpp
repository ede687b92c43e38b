#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/cpu/DepthwiseConv2dPacking.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <c10/util/irange.h>

namespace at::native {
namespace {

using Geometry = DepthwiseConv2dGeometry;

// ---- A convolution whose output channels each read one or more input channels: the operator, or the gradient of its
// input.

struct Convolution {
  const Geometry& g;
  bool is_backward;

  // Output channels of one group, and input channels.
  int64_t outs() const {
    return is_backward ? 1 : g.multiplier;
  }
  int64_t sources() const {
    return is_backward ? g.multiplier : 1;
  }
  int64_t out_channels() const {
    return g.channels * outs();
  }
  int64_t in_channels() const {
    return g.channels * sources();
  }
  // The plane of the weight.
  int64_t filter(int64_t out_channel, int64_t source) const {
    return is_backward ? out_channel * g.multiplier + source : out_channel;
  }
  const std::array<int64_t, 2>& in_size() const {
    return is_backward ? g.output : g.input;
  }
  const std::array<int64_t, 2>& out_size() const {
    return is_backward ? g.input : g.output;
  }
  int64_t taps() const {
    return g.kernel[0] * g.kernel[1];
  }
  // The axis along which tiles extend.
  Axis window(size_t i, int64_t most = std::numeric_limits<int64_t>::max()) const {
    // Each phase is to fill a tile.
    const bool is_dilated = g.stride[i] == 1 && g.dilation[i] > 1 && g.dilation[i] <= out_size()[i] / kTile;
    return is_dilated ? dilated_axis(g, i, most, is_backward) : other(i, most, true);
  }
  Axis other(size_t i, int64_t most = std::numeric_limits<int64_t>::max(), bool can_step = false) const {
    return is_backward ? backward_axis(g, i, most) : forward_axis(g, i, most, can_step);
  }
};

// How many phases have weights of their own.
int64_t distinct_phases(const Axis& axis) {
  return axis.are_phases_alike ? 1 : static_cast<int64_t>(axis.phases.size());
}

// Weights in the order in which tiles read them. Calls f(kernel element of window, kernel element of other, source) for
// each place, in turn.
template <typename F>
void for_each_weight(const Axis& window, const Axis& other, int64_t sources, const F& f) {
  for (const auto w : c10::irange(distinct_phases(window))) {
    for (const auto& o : other.phases) {
      for (const auto& run : window.phases[w].runs) {
        for (const auto& tap : o.taps) {
          for (const auto source : c10::irange(sources)) {
            for (const auto k : c10::irange(run.count)) {
              f(window.phases[w].taps[run.first + k].kernel, tap.kernel, source);
            }
          }
        }
      }
    }
  }
}

// Where the weights of each pair of phases begin, [window][other], in places.
std::vector<int64_t> weight_offsets(const Axis& window, const Axis& other, int64_t sources) {
  std::vector<int64_t> offsets;
  int64_t offset = 0;
  for (const auto& w : window.phases) {
    offset = window.are_phases_alike ? 0 : offset;
    for (const auto& o : other.phases) {
      offsets.push_back(offset);
      offset += static_cast<int64_t>(w.taps.size() * o.taps.size()) * sources;
    }
  }
  return offsets;
}

// What a tile is made of; see there. The functions that take it are inlined: put together in memory and read again by
// the callee it would cost more than some tiles.
template <typename acc_t>
struct TileArgs {
  const acc_t* const* x;
  int64_t n;
  int64_t offset;
  int64_t step;
  int64_t packed_step; // see Axis
  const acc_t* w;
  const acc_t* start;
  int64_t start_step;
  int64_t tiles = 1;
  // Keeps the sums of all runs but the last, where the output does not.
  acc_t* between = nullptr;
  // Where images, not planes, are read as they are: from one column to the next, and at an edge for each run what is
  // inside of the image.
  int64_t pixel = 0;
  const Inside* inside = nullptr;
  // How many lanes there are, where the last vector is not whole.
  int64_t lanes = 0;
};

// Where the outputs of tiles go.
template <typename out_t>
struct TileOut {
  out_t* data;
  int64_t step;
  bool is_streamed = false;
};

// For runs of 1, 2, ... taps.
template <typename acc_t, int S, int V, bool of_plane, bool is_edge, bool is_partial, typename out_t, int... taps>
constexpr auto tile_functions(std::integer_sequence<int, taps...>) {
  return std::array{tile<acc_t, taps + 1, S, V, of_plane, is_edge, is_partial, out_t>...};
}

template <typename acc_t, bool of_plane, int V, bool is_edge, bool is_partial, typename out_t>
C10_ALWAYS_INLINE void
call_tile(int64_t taps, const TileArgs<acc_t>& a, const TileOut<out_t>& out, Inside inside = {}) {
  constexpr std::make_integer_sequence<int, kLongestRun> runs;
  static constexpr std::array functions = {
      tile_functions<acc_t, 1, V, of_plane, is_edge, is_partial, out_t>(runs),
      tile_functions<acc_t, 2, V, of_plane, is_edge, is_partial, out_t>(runs)};
  static_assert(functions.size() == kLongestStep);
  functions[a.packed_step - 1][taps - 1](
      a.x,
      a.n,
      a.offset,
      a.step,
      a.w,
      a.start,
      a.start_step,
      out.data,
      out.step,
      a.tiles,
      out.is_streamed,
      inside,
      a.lanes);
}

// One tile, run after run.
//
// Args:
//   skipped, others: which of the other axis's taps times sources the weights begin with, and how many there are.
template <typename acc_t, bool of_plane, int V, bool is_partial = false, typename out_t>
C10_ALWAYS_INLINE void convolve_tile(
    const Phase& window,
    int64_t others,
    int64_t skipped,
    const TileArgs<acc_t>& args,
    const TileOut<out_t>& out) {
  constexpr int64_t lanes = of_plane ? 1 : V * vec::Vectorized<acc_t>::size();
  // What is rounded cannot be added to.
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY((std::is_same_v<out_t, acc_t>) || args.between);
  if (window.runs.empty()) {
    auto empty = args;
    empty.n = 0;
    return call_tile<acc_t, of_plane, V, false, is_partial>(1, empty, out);
  }
  auto part = args;
  const auto* w = args.w;
  const auto* inside = args.inside;
  const auto call = [&](int64_t taps, const auto& to) {
    if (!inside) {
      call_tile<acc_t, of_plane, V, false, is_partial>(taps, part, to);
    } else if constexpr (!of_plane) {
      call_tile<acc_t, of_plane, V, true, is_partial>(taps, part, to, *inside++);
    }
  };
  for (const auto& run : window.runs) {
    const auto& tap = window.taps[run.first];
    part.offset = args.offset + (args.pixel > 0 ? tap.base * args.pixel : tap.position * args.step);
    part.w = w + skipped * run.count * lanes;
    w += others * run.count * lanes;
    if (args.between && &run != &window.runs.back()) {
      call(run.count, TileOut<acc_t>{args.between, lanes});
      part.start = args.between;
      part.start_step = lanes;
    } else {
      call(run.count, out);
      if constexpr (std::is_same_v<out_t, acc_t>) {
        part.start = out.data;
        part.start_step = out.step;
      }
    }
  }
}

// Where the tile of output i begins: the last one covers outputs of the one before again rather than some that are not
// there.
int64_t tile_start(int64_t i, int64_t count) {
  return std::max<int64_t>(std::min(i, count - kTile), 0);
}

// ---- Contiguous: the vectors' elements are columns of a plane, tiles extend downwards.

// A row of a tile to the output, the phases of the columns side by side.
template <typename scalar_t, typename acc_t>
void put_row(scalar_t* to, const acc_t* from, int64_t width, const Axis& columns, int64_t pitch, acc_t* buffer) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr auto pair = 2 * Vec::size();
  if (columns.phases.size() == 1) {
    return copy_out(to, from, width);
  }
  if (columns.stride == 2) {
    const auto put_pair = [&](int64_t i, acc_t* target) {
      // From an odd column on, the second phase comes first.
      const auto* first = i % 2 == 0 ? from + i / 2 : from + pitch + i / 2;
      const auto* second = i % 2 == 0 ? from + pitch + i / 2 : from + i / 2 + 1;
      const auto [low, high] = vec::interleave2(Vec::loadu(first), Vec::loadu(second));
      low.store(target);
      high.store(target + Vec::size());
    };
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      if (width >= pair) {
        for (int64_t i = 0; i < width; i += pair) {
          const auto left = std::min(i, width - pair);
          put_pair(left, to + left);
        }
        return;
      }
    }
    for (int64_t i = 0; i < width; i += pair) {
      put_pair(i, buffer + i);
    }
  } else {
    for (const auto f : c10::irange(static_cast<int64_t>(columns.phases.size()))) {
      for (const auto j : c10::irange(columns.phases[f].count)) {
        buffer[f + j * columns.stride] = from[f * pitch + j];
      }
    }
  }
  copy_out(to, buffer, width);
}

template <typename scalar_t>
void convolve_planes(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr int64_t size = vec::Vectorized<acc_t>::size();
  constexpr bool is_same = std::is_same_v<scalar_t, acc_t>;
  auto columns = c.other(1);
  align_segments(columns, size);
  const auto pitch = columns.length;
  const auto height = strip_height(pitch * c.sources() * static_cast<int64_t>(sizeof(acc_t)));
  const auto rows = c.window(0, height);
  const auto strips = (rows.phases[0].count + height - 1) / height;
  const auto sources = c.sources();
  const auto offsets = weight_offsets(rows, columns, sources);
  // Which of a channel's weights each is, in the order in which tiles read them.
  std::vector<int64_t> order;
  for_each_weight(rows, columns, sources, [&](int64_t y, int64_t x, int64_t source) {
    order.push_back((source * c.g.kernel[0] + y) * c.g.kernel[1] + x);
  });
  const auto weights_of_channel = static_cast<int64_t>(order.size());
  const auto plane_size = (rows.length + kTile * rows.packed_step) * pitch;
  const auto width = c.out_size()[1];
  // Rows of some tiles before they go to the output, one line for each phase of the columns.
  constexpr int64_t kTogether = 4;
  const auto buffer_pitch = columns.phases[0].count + kMargin<acc_t>;
  const auto column_phases = static_cast<int64_t>(columns.phases.size());
  const auto tasks = c.g.batch * c.g.channels * strips;
  const auto products = tasks * c.outs() * (c.out_size()[0] / strips + 1) * width * c.taps() * sources;
  // What a channel reads and writes, strip after strip.
  const auto in_planes = rows.size * columns.size * sources, out_planes = c.out_size()[0] * width * c.outs();
  const auto bytes = static_cast<int64_t>(sizeof(scalar_t));
  const Traffic traffic(c.g.batch * c.g.channels, in_planes * bytes, out_planes * bytes, 0);

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    Scratch<acc_t> planes(sources * plane_size + kMargin<acc_t>);
    planes.clear();
    Scratch<acc_t> weights(c.taps() * sources);
    Scratch<acc_t> tile_rows(kTogether * kTile * column_phases * buffer_pitch);
    Scratch<acc_t> row(width);
    Scratch<acc_t> buffer(columns.size);
    std::array<acc_t, kMostVectors * size> start;
    std::vector<std::vector<const acc_t*>> x;
    for (const auto& phase : columns.phases) {
      auto& pointers = x.emplace_back();
      for (const auto& tap : phase.taps) {
        for (const auto source : c10::irange(sources)) {
          pointers.push_back(planes.data + source * plane_size + tap.position);
        }
      }
    }

    // Computes tiles of phase f of the columns; args say where they begin and where they go.
    const auto call = [&](const Phase& phase,
                          int64_t f,
                          int64_t offset,
                          bool is_wide,
                          TileArgs<acc_t> args,
                          const TileOut<acc_t>& out) {
      args.x = x[f].data();
      args.n = static_cast<int64_t>(x[f].size());
      args.step = pitch;
      args.packed_step = rows.packed_step;
      args.w = weights.data + offset;
      args.start = start.data();
      args.start_step = 0;
      if (is_wide) {
        convolve_tile<acc_t, true, kMostVectors>(phase, args.n, 0, args, out);
      } else {
        convolve_tile<acc_t, true, 1>(phase, args.n, 0, args, out);
      }
    };

    // n rows of one phase, from `to` on, where all columns are one phase and at least a vector: the tiles go to the
    // output themselves, the last ones over what is there already rather than beyond the edge.
    const auto convolve_direct = [&](const Phase& phase, int64_t offset, int64_t n, acc_t* to) {
      TileArgs<acc_t> args{};
      const auto out_step = rows.stride * width;
      for (int64_t j = 0; j < width;) {
        const bool is_wide = kMostVectors > 1 && width - j > size && width >= kMostVectors * size;
        const auto span = is_wide ? kMostVectors * size : size;
        const auto left = std::min(j, width - span);
        for (int64_t i = 0; i < n; i += args.tiles * kTile) {
          const auto top = tile_start(i, n);
          args.tiles = (n - top) / kTile;
          args.offset = top * rows.packed_step * pitch + left;
          call(phase, 0, offset, is_wide, args, {to + top * out_step + left, out_step});
        }
        j = left + span;
      }
    };

    // The same for all others, tile by tile.
    const auto convolve_buffered = [&](const Phase& phase, const int64_t* offset, int64_t n, scalar_t* to) {
      TileArgs<acc_t> args{};
      const auto row_pitch = column_phases * buffer_pitch;
      for (int64_t i = 0; i < n; i += args.tiles * kTile) {
        const auto top = tile_start(i, n);
        args.tiles = std::clamp<int64_t>((n - top) / kTile, 1, kTogether);
        for (const auto f : c10::irange(column_phases)) {
          const auto count = columns.phases[f].count;
          for (int64_t j = 0; j < count;) {
            const bool is_wide = kMostVectors > 1 && count - j > size;
            args.offset = top * rows.packed_step * pitch + j;
            call(phase, f, offset[f], is_wide, args, {tile_rows.data + f * buffer_pitch + j, row_pitch});
            j += is_wide ? kMostVectors * size : size;
          }
        }
        for (const auto r : c10::irange(std::min(args.tiles * kTile, n - top))) {
          const auto* from = tile_rows.data + r * row_pitch;
          put_row(to + (top + r) * rows.stride * width, from, width, columns, buffer_pitch, row.data);
        }
      }
    };

    for (const auto task : c10::irange(begin, end)) {
      const auto image = task / strips / c.g.channels;
      const auto channel = task / strips % c.g.channels;
      const auto first = task % strips * height;
      Ahead ahead;
      if (traffic.are_planes_ahead && task + 1 < end) {
        const auto next = (task + 1) / strips, part = (task + 1) % strips;
        const auto *next_in = in + next * in_planes, *next_out = out + next * out_planes;
        ahead.take_part(next_in, in_planes, next_out, out_planes, part, strips, rows.length * sources);
      }
      for (const auto source : c10::irange(sources)) {
        const auto from = image * c.in_channels() + channel * sources + source;
        pack_plane(
            planes.data + source * plane_size,
            in + from * rows.size * columns.size,
            rows,
            columns,
            first,
            strips == 1,
            buffer.data,
            ahead);
      }
      for (const auto o : c10::irange(channel * c.outs(), (channel + 1) * c.outs())) {
        const auto* filters = weight + c.filter(o, 0) * c.taps();
        for (const auto i : c10::irange(weights_of_channel)) {
          weights.data[i] = static_cast<acc_t>(filters[order[i]]);
        }
        start.fill(bias ? static_cast<acc_t>(bias[o]) : acc_t(0));
        auto* plane = out + (image * c.out_channels() + o) * c.out_size()[0] * width;
        for (const auto f : c10::irange(static_cast<int64_t>(rows.phases.size()))) {
          const auto& phase = rows.phases[f];
          const auto* offset = offsets.data() + f * column_phases;
          const auto n = std::min(first + height, phase.count) - first;
          auto* to = plane + (phase.first + first * rows.stride) * width;
          if constexpr (is_same) {
            if (column_phases == 1 && width >= size && n >= kTile) {
              convolve_direct(phase, *offset, n, to);
              continue;
            }
          }
          convolve_buffered(phase, offset, n, to);
        }
      }
    }
  });
}

// ---- channels_last: the vectors' elements are channels, tiles extend to the right.

// Tiles one behind the other.
//
// Args:
//   left: the output that the first one begins with.
//   inside: at the edges of an image that is read as it is, for each run.
struct Tiles {
  int64_t left;
  int64_t count;
  std::vector<Inside> inside;
};

// The tiles of a phase; those that one call computes are together, at most so many.
std::vector<Tiles> tiles_of(const Axis& columns, const Phase& phase, bool is_packed, int64_t most) {
  std::vector<Tiles> result;
  for (int64_t i = 0; i < phase.count; i += kTile) {
    Tiles tiles{tile_start(i, phase.count), 1};
    bool is_edge = false;
    for (const auto& run : phase.runs) {
      const auto elements = (kTile - 1) * columns.packed_step + run.count;
      const auto inside = inside_of(columns, phase.taps[run.first].base + tiles.left * columns.step, elements);
      is_edge = is_edge || inside.first > 0 || inside.last < elements;
      tiles.inside.push_back(inside);
    }
    if (is_packed || !is_edge) {
      tiles.inside.clear();
    }
    const bool continues =
        !result.empty() && result.back().count < most && tiles.left == result.back().left + result.back().count * kTile;
    if (continues && tiles.inside.empty() && result.back().inside.empty()) {
      ++result.back().count;
    } else {
      result.push_back(std::move(tiles));
    }
  }
  return result;
}

// What all blocks of channels have in common.
struct ChannelsLastPlan {
  Convolution c;
  Axis columns;
  Axis rows;
  std::vector<int64_t> offsets;
  // Of each phase of the columns, for images that are packed and for such that are read as they are.
  std::vector<std::vector<Tiles>> packed_tiles;
  std::vector<std::vector<Tiles>> image_tiles;
  // About how many tiles there are in a row.
  int64_t steps = 0;
  // Whether rows cannot be read as they are, whatever their type.
  bool must_pack;

  // is_interrupted: whether something is fetched between any two tiles.
  ChannelsLastPlan(const Convolution& c, bool is_interrupted)
      : c(c),
        columns(c.window(1)),
        rows(by_base(c.other(0))),
        offsets(weight_offsets(columns, rows, c.sources())),
        must_pack(c.g.multiplier > 1 || columns.is_far()) {
    const auto most = is_interrupted ? 1 : std::numeric_limits<int64_t>::max();
    for (const auto& phase : columns.phases) {
      packed_tiles.push_back(tiles_of(columns, phase, true, most));
      image_tiles.push_back(tiles_of(columns, phase, false, most));
      steps += static_cast<int64_t>(packed_tiles.back().size());
    }
  }
};

// The weights of each block of channels as its tiles read them, made where they are first asked for.
template <typename scalar_t>
class ChannelsLastWeights {
 public:
  using acc_t = at::opmath_type<scalar_t>;
  static constexpr int64_t most_lanes = kMostVectors * vec::Vectorized<acc_t>::size();

  ChannelsLastWeights(const ChannelsLastPlan& plan, int64_t blocks, const scalar_t* weight, const scalar_t* bias)
      : plan_(plan),
        weight_(weight),
        bias_(bias),
        block_size_((plan.c.taps() * plan.c.sources() + 1) * most_lanes),
        is_made_(blocks, false),
        made_(blocks * block_size_),
        turned_(plan.c.taps() * most_lanes),
        buffer_(most_lanes * (kTransposed + kMargin<acc_t>)) {}

  // What the sums start with, then the weights.
  const acc_t* of(const Lanes<acc_t>& lanes) {
    const auto block = lanes.first / most_lanes;
    auto* result = made_.data + block * block_size_;
    if (!is_made_[block]) {
      make(lanes, result);
      is_made_[block] = true;
    }
    return result;
  }

 private:
  void make(const Lanes<acc_t>& lanes, acc_t* to) {
    const auto& c = plan_.c;
    const auto width = lanes.width();
    std::fill_n(to, width, acc_t(0));
    if (bias_) {
      copy_in(to, bias_ + lanes.first, lanes.count);
    }
    to += width;
    if (c.sources() == 1) {
      const auto* first = weight_ + c.filter(lanes.first, 0) * c.taps();
      planes_to_pixels(turned_.data, width, first, c.taps(), lanes.count, buffer_.data);
    }
    for_each_weight(plan_.columns, plan_.rows, c.sources(), [&](int64_t x, int64_t y, int64_t source) {
      const auto k = y * c.g.kernel[1] + x;
      if (c.sources() == 1) {
        std::copy_n(turned_.data + k * width, lanes.count, to);
      } else {
        for (const auto l : c10::irange(lanes.count)) {
          to[l] = static_cast<acc_t>(weight_[c.filter(lanes.first + l, source) * c.taps() + k]);
        }
      }
      std::fill(to + lanes.count, to + width, acc_t(0));
      to += width;
    });
  }

  const ChannelsLastPlan& plan_;
  const scalar_t* weight_;
  const scalar_t* bias_;
  int64_t block_size_;
  std::vector<bool> is_made_;
  Scratch<acc_t> made_;
  // The weights as they are, but with the channels side by side.
  Scratch<acc_t> turned_;
  Scratch<acc_t> buffer_;
};

// Computes rows of a block of channels.
template <typename acc_t>
class ChannelsLastBlock {
 public:
  explicit ChannelsLastBlock(const ChannelsLastPlan& plan)
      : plan_(plan),
        row_size_((plan.columns.length + kTile * plan.columns.packed_step) * most_lanes),
        packed_(plan.rows, row_size_ * plan.c.sources()),
        tiles_((plan.columns.phases[0].count + kTile) * most_lanes) {}

  static constexpr int64_t most_lanes = kMostVectors * vec::Vectorized<acc_t>::size();

  // Before the rows of another image or block.
  void forget() {
    packed_.forget();
  }

  // Row y of an image; the weights are those of ChannelsLastWeights. Takes steps of `ahead`, ChannelsLastPlan::steps
  // of them.
  template <typename T>
  void
  compute(const Lanes<acc_t>& lanes, const acc_t* weights, Pixels<const T> in, Pixels<T> out, int64_t y, Ahead& ahead) {
    const bool is_packed = !std::is_same_v<T, acc_t> || !lanes.can_be_read() || plan_.must_pack;
    const auto phase = y % plan_.rows.stride;
    const auto skipped = find_rows(lanes, in, y, is_packed);
    const auto others = static_cast<int64_t>(plan_.rows.phases[phase].taps.size()) * plan_.c.sources();
    auto* line = out.data + y * plan_.c.out_size()[1] * out.step + lanes.first - out.first;
    TileArgs<acc_t> args{x_.data(), static_cast<int64_t>(x_.size())};
    args.step = is_packed ? lanes.width() : plan_.columns.spacing * in.step;
    args.packed_step = plan_.columns.packed_step;
    args.pixel = is_packed ? 0 : in.step;
    args.start = weights;
    args.lanes = lanes.count;
    for (const auto f : c10::irange(static_cast<int64_t>(plan_.columns.phases.size()))) {
      const auto offset = plan_.offsets[f * static_cast<int64_t>(plan_.rows.phases.size()) + phase];
      args.w = weights + (1 + offset) * lanes.width();
      compute_phase(lanes, f, is_packed, others, skipped, args, line, out, ahead);
    }
  }

 private:
  // Fills x_ for row y of the output. Returns how many of the weights are skipped, those of rows above the image.
  template <typename T>
  int64_t find_rows(const Lanes<acc_t>& lanes, Pixels<const T> in, int64_t y, bool is_packed) {
    const auto& c = plan_.c;
    const auto& rows = plan_.rows;
    const auto& taps = rows.phases[y % rows.stride].taps;
    int64_t above = 0;
    x_.clear();
    for (const auto t : c10::irange(static_cast<int64_t>(taps.size()))) {
      const auto from = y / rows.stride * rows.step + taps[t].base;
      if (from < 0 || from >= rows.size) {
        above += from < 0 ? 1 : 0;
        continue;
      }
      const auto* line = in.data + from * plan_.columns.size * in.step;
      if (!is_packed) {
        x_.push_back(reinterpret_cast<const acc_t*>(line) + lanes.first - in.first);
        continue;
      }
      const auto* row = packed_.get(from, t, [&](acc_t* to) {
        for (const auto source : c10::irange(c.sources())) {
          const LaneChannels channels{lanes.first, c.outs(), c.sources(), source - in.first};
          pack_row(to + source * row_size_, line, in.step, plan_.columns, lanes, channels);
        }
      });
      for (const auto source : c10::irange(c.sources())) {
        x_.push_back(row + source * row_size_);
      }
    }
    return above * c.sources();
  }

  // Phase f of the columns of a row.
  template <typename T>
  C10_ALWAYS_INLINE void compute_phase(
      const Lanes<acc_t>& lanes,
      int64_t f,
      bool is_packed,
      int64_t others,
      int64_t skipped,
      TileArgs<acc_t> args,
      T* line,
      const Pixels<T>& out,
      Ahead& ahead) {
    const auto& window = plan_.columns.phases[f];
    const auto width = lanes.width();
    const auto out_step = plan_.columns.stride * out.step;
    const bool is_partial = !is_packed && !lanes.is_whole();
    for (const auto& tiles : is_packed ? plan_.packed_tiles[f] : plan_.image_tiles[f]) {
      ahead.step();
      auto* to = line + (window.first + tiles.left * plan_.columns.stride) * out.step;
      args.offset = tiles.left * args.packed_step * args.step;
      args.tiles = tiles.count;
      args.inside = tiles.inside.empty() ? nullptr : tiles.inside.data();
      const auto convolve_lanes = [&](const auto& tile_out, auto of_part) {
        if (lanes.vectors == 1) {
          convolve_tile<acc_t, false, 1, of_part()>(window, others, skipped, args, tile_out);
        } else {
          convolve_tile<acc_t, false, kMostVectors, of_part()>(window, others, skipped, args, tile_out);
        }
      };
      const auto convolve = [&](const auto& tile_out) {
        if constexpr (kHasMasks && std::is_same_v<T, acc_t>) {
          if (is_partial) {
            return convolve_lanes(tile_out, std::true_type());
          }
        }
        convolve_lanes(tile_out, std::false_type());
      };
      if (window.count >= kTile && (lanes.is_whole() || !is_packed)) {
        // What is read to be added to is read by whole vectors: those of a part would go beyond the last pixel.
        const bool can_keep = std::is_same_v<T, acc_t> && !out.is_streamed && !is_partial;
        args.between = can_keep ? nullptr : tiles_.data;
        convolve(TileOut<T>{to, out_step, out.is_streamed});
      } else {
        args.between = nullptr;
        convolve(TileOut<acc_t>{tiles_.data, width});
        put_pixels(to, out_step, std::min<int64_t>(tiles.count * kTile, window.count - tiles.left), lanes);
      }
    }
  }

  // n pixels of the tiles to the output.
  template <typename T>
  void put_pixels(T* to, int64_t step, int64_t n, const Lanes<acc_t>& lanes) const {
    for (const auto j : c10::irange(n)) {
      copy_out(to + j * step, tiles_.data + j * lanes.width(), lanes.count);
    }
  }

  const ChannelsLastPlan& plan_;
  int64_t row_size_;
  PackedRows<acc_t> packed_;
  Scratch<acc_t> tiles_;
  // For each tap and source its row.
  std::vector<const acc_t*> x_;
};

template <typename scalar_t>
void convolve_channels_last(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  using Block = ChannelsLastBlock<acc_t>;
  const auto channels = c.out_channels();
  const auto height = c.out_size()[0];
  const auto in_row = c.in_size()[1] * c.in_channels(), out_row = c.out_size()[1] * channels;
  const auto in_image = c.in_size()[0] * in_row, out_image = height * out_row;
  const auto bytes = static_cast<int64_t>(sizeof(scalar_t));
  const auto near = near_rows<acc_t>(c.g, c.in_size()[1], channels * c.sources());
  const Traffic traffic(c.g.batch, in_image * bytes, out_image * bytes, near);
  // Half types do not gain by it.
  const bool is_streamed =
      std::is_same_v<scalar_t, acc_t> && can_stream(out, channels * bytes, c.g.batch * out_image * bytes);
  const auto blocks = divide_up(channels, Block::most_lanes);
  // Large images go by strips, so that what a block leaves of a cache line's neighbours is near.
  const bool is_large = out_image >= 784 * channels;
  const auto strip = traffic.is_by_rows ? 1 : is_large ? strip_height(out_row * bytes / 4) : height;
  const auto strips = divide_up(height, strip);
  // All blocks of channels of a strip, then those of the next one; of small images that are near all images of a block,
  // since then its weights are, too.
  const bool is_by_blocks = !is_large && !traffic.is_by_images && !traffic.is_by_rows;
  const bool is_fetched = traffic.is_ahead && !is_by_blocks;
  const ChannelsLastPlan plan(c, is_fetched);
  const auto tasks = c.g.batch * strips * blocks;
  const auto products = c.g.batch * out_image * c.taps() * c.sources();
  // Up to where strip s, counted over all images, reads and writes.
  const auto last_row = [&](int64_t s) { return std::min((s % strips + 1) * strip, height) - 1; };
  const auto in_end = [&](int64_t s) { return in + s / strips * in_image + plan.rows.end(last_row(s)) * in_row; };
  const auto out_end = [&](int64_t s) { return out + s / strips * out_image + (last_row(s) + 1) * out_row; };

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    ChannelsLastWeights<scalar_t> weights(plan, blocks, weight, bias);
    // Row by row, each block takes the rows that were packed for the row before.
    std::vector<Block> workers;
    const auto most_workers = traffic.is_by_rows ? blocks : 1;
    workers.reserve(most_workers);
    while (static_cast<int64_t>(workers.size()) < most_workers) {
      workers.emplace_back(plan);
    }
    const auto last_strip = (end - 1) / blocks;
    Ahead ahead;
    ahead.start(in_end(begin / blocks), out_end(begin / blocks));
    for (const auto task : c10::irange(begin, end)) {
      const auto block = is_by_blocks ? task / c.g.batch : task % blocks;
      const auto s = is_by_blocks ? task % c.g.batch : task / blocks;
      const auto image = s / strips, first = s % strips * strip;
      const auto end_of_strip = std::min(first + strip, height);
      if (is_fetched && s < last_strip) {
        ahead.aim(
            part_of(in_end(s), in_end(s + 1), block + 1, blocks),
            is_streamed ? nullptr : part_of(out_end(s), out_end(s + 1), block + 1, blocks),
            (end_of_strip - first) * plan.steps);
      }
      const Lanes<acc_t> lanes(block * Block::most_lanes, channels);
      const Pixels<const scalar_t> from{in + image * in_image, c.in_channels(), 0};
      const Pixels<scalar_t> to{out + image * out_image, channels, 0, is_streamed};
      auto& worker = workers[block % most_workers];
      if (!traffic.is_by_rows || first == 0) {
        worker.forget();
      }
      for (const auto y : c10::irange(first, end_of_strip)) {
        worker.compute(lanes, weights.of(lanes), from, to, y, ahead);
      }
    }
    end_stream();
  });
}

// ---- Contiguous images that are small: turned round, so that their channels are neighbours while they are computed.

template <typename scalar_t>
void convolve_small_planes(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr auto most_lanes = ChannelsLastBlock<acc_t>::most_lanes;
  const auto channels = c.out_channels();
  const auto [height, width] = c.out_size();
  const auto in_pixels = c.in_size()[0] * c.in_size()[1];
  const auto out_pixels = height * width;
  const auto bytes = channels * static_cast<int64_t>(sizeof(scalar_t));
  const Traffic traffic(c.g.batch, in_pixels * bytes, out_pixels * bytes, 0);
  const ChannelsLastPlan plan(c, traffic.is_ahead);
  const auto blocks = divide_up(channels, most_lanes);
  const auto tasks = blocks * c.g.batch;
  const auto products = tasks * out_pixels * c.taps() * most_lanes;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    ChannelsLastWeights<scalar_t> weights(plan, blocks, weight, bias);
    ChannelsLastBlock<acc_t> worker(plan);
    Scratch<acc_t> from(in_pixels * most_lanes), to(out_pixels * most_lanes);
    from.clear();
    Scratch<acc_t> buffer(most_lanes * (kTransposed + kMargin<acc_t>));
    for (const auto task : c10::irange(begin, end)) {
      // All lanes are computed, also those that are not there.
      const auto lanes_of = [&](int64_t task) {
        return Lanes<acc_t>((traffic.is_ahead ? task % blocks : task / c.g.batch) * most_lanes, channels);
      };
      const auto there = lanes_of(task);
      auto lanes = there;
      lanes.count = lanes.width();
      const auto image = (traffic.is_ahead ? task / blocks : task % c.g.batch) * channels + lanes.first;
      Ahead ahead;
      if (traffic.is_ahead && task + 1 < end) {
        const auto next = image + there.count, after = next + lanes_of(task + 1).count;
        ahead.start(in + next * in_pixels, out + next * out_pixels);
        ahead.aim(in + after * in_pixels, out + after * out_pixels, height * plan.steps);
      }
      planes_to_pixels(from.data, lanes.width(), in + image * in_pixels, in_pixels, there.count, buffer.data);
      const Pixels<const acc_t> pixels{from.data, lanes.width(), lanes.first};
      worker.forget();
      for (const auto y : c10::irange(height)) {
        worker.compute(lanes, weights.of(there), pixels, Pixels<acc_t>{to.data, lanes.width(), lanes.first}, y, ahead);
      }
      pixels_to_planes(out + image * out_pixels, to.data, lanes.width(), out_pixels, there.count, buffer.data);
    }
  });
}

// ---- The kernels.

template <typename scalar_t>
void convolve(
    const Convolution& c,
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const scalar_t* bias) {
  const auto function = is_channels_last(output) || is_channels_last(input) ? convolve_channels_last<scalar_t>
      : is_small(c.g)                                                       ? convolve_small_planes<scalar_t>
                                                                            : convolve_planes<scalar_t>;
  function(
      c,
      output.mutable_data_ptr<scalar_t>(),
      input.const_data_ptr<scalar_t>(),
      weight.const_data_ptr<scalar_t>(),
      bias);
}

void forward_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& weight,
    const TensorBase& bias,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_cpu", [&] {
    convolve({g, false}, output, input, weight, bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr);
  });
}

void backward_input_kernel(
    const TensorBase& grad_input,
    const TensorBase& grad_output,
    const TensorBase& weight,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, weight.scalar_type(), "depthwise_conv2d_backward_input_cpu", [&] {
    convolve<scalar_t>({g, true}, grad_input, grad_output, weight, nullptr);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_stub, &forward_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_input_stub, &backward_input_kernel)

} // namespace at::native
