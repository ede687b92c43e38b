#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/DepthwiseConv2d.h>
#include <ATen/native/cpu/DepthwiseConv2dAxis.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>
#include <c10/util/irange.h>

#include <cstring>
#include <numeric>

namespace at::native {
namespace {

using Geometry = DepthwiseConv2dGeometry;

// ---- Elements in and out: half types are converted on the way.

// What a loop over whole vectors may read or write behind the end of scratch memory.
template <typename acc_t>
constexpr int64_t kMargin = 2 * kMostVectors * vec::Vectorized<acc_t>::size();

template <typename scalar_t, typename acc_t>
void copy_in(acc_t* to, const scalar_t* from, int64_t n) {
  using Vec = vec::Vectorized<scalar_t>;
  for (int64_t i = 0; i < n; i += Vec::size()) {
    const auto values = i + Vec::size() <= n ? Vec::loadu(from + i) : Vec::loadu(from + i, static_cast<int>(n - i));
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      values.store(to + i);
    } else {
      const auto [low, high] = vec::convert_to_float<scalar_t>(values);
      low.store(to + i);
      high.store(to + i + low.size());
    }
  }
}

template <typename scalar_t, typename acc_t>
void copy_out(scalar_t* to, const acc_t* from, int64_t n) {
  using Vec = vec::Vectorized<scalar_t>;
  using AccVec = vec::Vectorized<acc_t>;
  for (int64_t i = 0; i < n; i += Vec::size()) {
    Vec values;
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      values = Vec::loadu(from + i);
    } else {
      values = vec::convert_from_float<scalar_t>(AccVec::loadu(from + i), AccVec::loadu(from + i + AccVec::size()));
    }
    if (i + Vec::size() <= n) {
      values.store(to + i);
    } else {
      values.store(to + i, static_cast<int>(n - i));
    }
  }
}

template <typename acc_t>
struct Scratch {
  std::vector<acc_t> memory;
  acc_t* data;

  explicit Scratch(int64_t n) : memory(n + kMargin<acc_t> + 16) {
    data = reinterpret_cast<acc_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  }
};

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
  int64_t in_channel(int64_t out_channel, int64_t source) const {
    return is_backward ? out_channel * g.multiplier + source : out_channel / g.multiplier;
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
  Axis axis(size_t i, int64_t most = std::numeric_limits<int64_t>::max()) const {
    return is_backward ? backward_axis(g, i, most) : forward_axis(g, i, most);
  }
};

// Weights in the order in which tiles read them. `window` is the axis along which a tile extends. Calls
// f(kernel element of window, kernel element of other, source) for each place, in turn.
template <typename F>
void for_each_weight(const Axis& window, const Axis& other, int64_t sources, const F& f) {
  for (const auto& w : window.phases) {
    for (const auto& o : other.phases) {
      for (const auto& run : w.runs) {
        for (const auto& tap : o.taps) {
          for (const auto source : c10::irange(sources)) {
            for (const auto k : c10::irange(run.count)) {
              f(w.taps[run.first + k].kernel, tap.kernel, source);
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
  const acc_t* w;
  const acc_t* start;
  int64_t start_step;
  acc_t* out;
  int64_t out_step;
  int64_t tiles = 1;
};

template <typename acc_t, bool of_plane, int V>
C10_ALWAYS_INLINE void call_tile(int64_t taps, const TileArgs<acc_t>& a) {
  static constexpr std::array functions = {
      tile<acc_t, 1, V, of_plane>,
      tile<acc_t, 2, V, of_plane>,
      tile<acc_t, 3, V, of_plane>,
      tile<acc_t, 4, V, of_plane>,
      tile<acc_t, 5, V, of_plane>,
      tile<acc_t, 6, V, of_plane>,
      tile<acc_t, 7, V, of_plane>};
  static_assert(functions.size() == kLongestRun);
  functions[taps - 1](a.x, a.n, a.offset, a.step, a.w, a.start, a.start_step, a.out, a.out_step, a.tiles);
}

// Whether a tile whose first output is `left` reads, for a run, no element but such of the image.
bool is_inside(const Axis& columns, const Tap& tap, int64_t taps, int64_t left) {
  const auto column = tap.base + left * columns.step;
  return column >= 0 && column < columns.size && (columns.size - 1 - column) / columns.step >= kTile + taps - 2;
}

// An image as it is, for the tiles whose elements are all inside of it.
//
// Args:
//   x: for each of a tile's x, the row of the image.
//   channels: from one column to the next.
//   left: the tile's first output.
template <typename acc_t>
struct Unpacked {
  const Axis& columns;
  const acc_t* const* x;
  int64_t channels;
  int64_t left;

  bool covers(const Tap& tap, int64_t taps) const {
    return is_inside(columns, tap, taps, left);
  }
};

// One tile, run after run.
//
// Args:
//   unpacked: where to read from rather than what is packed, if that does.
//   skipped, others: which of the other axis's taps times sources the weights begin with, and how many there are.
template <typename acc_t, bool of_plane, int V>
C10_ALWAYS_INLINE void convolve_tile(
    const Phase& window,
    int64_t others,
    int64_t skipped,
    const TileArgs<acc_t>& args,
    const Unpacked<acc_t>* unpacked = nullptr) {
  constexpr int64_t lanes = of_plane ? 1 : V * vec::Vectorized<acc_t>::size();
  if (window.runs.empty()) {
    auto empty = args;
    empty.n = 0;
    return call_tile<acc_t, of_plane, V>(1, empty);
  }
  const auto* w = args.w;
  const auto* start = args.start;
  auto start_step = args.start_step;
  for (const auto& run : window.runs) {
    const auto& tap = window.taps[run.first];
    auto* x = args.x;
    auto step = args.step;
    auto offset = args.offset + tap.position * step;
    if (unpacked && unpacked->covers(tap, run.count)) {
      x = unpacked->x;
      step = unpacked->columns.step * unpacked->channels;
      offset = tap.base * unpacked->channels + unpacked->left * step;
    }
    call_tile<acc_t, of_plane, V>(
        run.count,
        {x,
         args.n,
         offset,
         step,
         w + skipped * run.count * lanes,
         start,
         start_step,
         args.out,
         args.out_step,
         args.tiles});
    w += others * run.count * lanes;
    start = args.out;
    start_step = args.out_step;
  }
}

// Where the tile of output i begins: the last one covers outputs of the one before again rather than some that are not
// there.
int64_t tile_start(int64_t i, int64_t count) {
  return std::max<int64_t>(std::min(i, count - kTile), 0);
}

// So many tasks that a thread has work for some microseconds in each.
int64_t grain_size(int64_t tasks, int64_t products) {
  constexpr int64_t least = 1 << 17;
  return std::max<int64_t>(1, least * tasks / std::max<int64_t>(products, 1));
}

// ---- Contiguous: the vectors' elements are columns of a plane, tiles extend downwards.

// The elements 0, 2, 4, ... of `from`, n of them.
template <typename acc_t>
void copy_every_second(acc_t* to, const acc_t* from, int64_t n) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  for (int64_t j = 0; j < n; j += size) {
    const auto rest = 2 * (n - j) - 1;
    const auto low = rest >= size ? Vec::loadu(from + 2 * j) : Vec::loadu(from + 2 * j, static_cast<int>(rest));
    const auto high = rest >= 2 * size ? Vec::loadu(from + 2 * j + size)
        : rest > size                  ? Vec::loadu(from + 2 * j + size, static_cast<int>(rest - size))
                                       : Vec(acc_t(0));
    vec::deinterleave2(low, high).first.store(to + j);
  }
}

// Packs a row of columns, into memory whose zeros are there.
template <typename scalar_t, typename acc_t>
void pack_columns(acc_t* to, const scalar_t* row, const Axis& columns, acc_t* buffer) {
  const acc_t* converted = nullptr;
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    converted = row;
  } else if (columns.step > 1) {
    copy_in(buffer, row, columns.size);
    converted = buffer;
  }
  for (const auto& segment : columns.segments) {
    auto* start = to + segment.start;
    if (columns.step == 1) {
      // Behind the end this writes zeros, over zeros or over what is packed next.
      copy_in(start + segment.first, row + segment.source + segment.first, segment.last - segment.first);
    } else if (columns.step == 2) {
      copy_every_second(
          start + segment.first, converted + segment.source + 2 * segment.first, segment.last - segment.first);
    } else {
      for (auto j = segment.first; j < segment.last; ++j) {
        start[j] = converted[segment.source + j * columns.step];
      }
    }
  }
}

// Packs the rows that the outputs from `first` on take, into memory that is all zeros or holds another image's: the
// zeros round the image stay, unless the strips are several.
template <typename scalar_t, typename acc_t>
void pack_plane(
    acc_t* to,
    const scalar_t* plane,
    const Axis& rows,
    const Axis& columns,
    int64_t first,
    bool is_only,
    acc_t* buffer) {
  for (const auto& segment : rows.segments) {
    for (const auto i : c10::irange(segment.length)) {
      // A strip at the end has fewer outputs; what it does not need may be beyond the image by far.
      const auto y = segment.source + (first + i) * rows.step;
      auto* row = to + (segment.start + i) * columns.length;
      if (y >= 0 && y < rows.size) {
        pack_columns(row, plane + y * columns.size, columns, buffer);
      } else if (!is_only) {
        std::fill(row, row + columns.length, acc_t(0));
      }
    }
  }
}

// Rows of a tile to the output, the phases of the columns side by side.
template <typename scalar_t, typename acc_t>
void put_row(scalar_t* to, const acc_t* from, int64_t width, const Axis& columns, int64_t pitch, acc_t* buffer) {
  const auto phases = static_cast<int64_t>(columns.phases.size());
  const acc_t* row = from;
  if (phases > 1) {
    if (columns.stride == 2) {
      using Vec = vec::Vectorized<acc_t>;
      for (int64_t j = 0; j < (width + 1) / 2; j += Vec::size()) {
        const auto [low, high] = vec::interleave2(Vec::loadu(from + j), Vec::loadu(from + pitch + j));
        low.store(buffer + 2 * j);
        high.store(buffer + 2 * j + Vec::size());
      }
    } else {
      for (const auto f : c10::irange(phases)) {
        for (const auto j : c10::irange(columns.phases[f].count)) {
          buffer[f + j * columns.stride] = from[f * pitch + j];
        }
      }
    }
    row = buffer;
  }
  copy_out(to, row, width);
}

// As many rows at a time as keep what is packed in the first-level cache.
int64_t strip_height(int64_t row_bytes) {
  constexpr int64_t cache = 1 << 15;
  return std::max<int64_t>(cache / std::max<int64_t>(row_bytes, 1) / kTile, 2) * kTile;
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
  const auto columns = c.axis(1);
  const auto pitch = columns.length;
  const auto height = strip_height(pitch * c.sources() * static_cast<int64_t>(sizeof(acc_t)));
  const auto rows = c.axis(0, height);
  const auto strips = (rows.phases[0].count + height - 1) / height;
  const auto sources = c.sources();
  const auto offsets = weight_offsets(rows, columns, sources);
  const auto plane_size = (rows.length + kTile) * pitch;
  const auto width = c.out_size()[1];
  // A tile's rows before they go to the output, one line for each phase of the columns.
  const auto buffer_pitch = columns.phases[0].count + kMargin<acc_t>;
  const auto column_phases = static_cast<int64_t>(columns.phases.size());
  const auto tasks = c.g.batch * c.g.channels * strips;
  const auto products = tasks * c.outs() * (c.out_size()[0] / strips + 1) * width * c.taps() * sources;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    Scratch<acc_t> planes(sources * plane_size + kMargin<acc_t>);
    Scratch<acc_t> weights(c.taps() * sources);
    Scratch<acc_t> tile_rows(kTile * column_phases * buffer_pitch);
    Scratch<acc_t> row(std::max(width, columns.size) + 1);
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

    // All rows of one phase from `first` to `last`, of one output channel.
    const auto convolve = [&](const Phase& phase, const int64_t* offset, int64_t first, int64_t last, scalar_t* plane) {
      for (int64_t i = 0; i < last - first; i += kTile) {
        const auto top = tile_start(i, last - first);
        auto* to = plane + (phase.first + (first + top) * rows.stride) * width;
        const bool is_whole = is_same && column_phases == 1 && last - first >= kTile;
        for (const auto f : c10::irange(column_phases)) {
          const auto count = columns.phases[f].count;
          TileArgs<acc_t> args{x[f].data(), static_cast<int64_t>(x[f].size()), 0, pitch, weights.data + offset[f]};
          args.start = start.data();
          args.start_step = 0;
          for (int64_t j = 0; j < count;) {
            const bool is_wide = kMostVectors > 1 && count - j > size && !(is_whole && count - j < 2 * size);
            const auto span = is_wide ? kMostVectors * size : size;
            auto left = j;
            if (is_whole && count >= span) {
              left = std::min(j, count - span);
              args.out = reinterpret_cast<acc_t*>(to) + left;
              args.out_step = rows.stride * width;
            } else {
              args.out = tile_rows.data + f * buffer_pitch + left;
              args.out_step = column_phases * buffer_pitch;
            }
            args.offset = top * pitch + left;
            if (is_wide) {
              convolve_tile<acc_t, true, kMostVectors>(phase, args.n, 0, args);
            } else {
              convolve_tile<acc_t, true, 1>(phase, args.n, 0, args);
            }
            j = left + span;
          }
        }
        if (!is_whole || columns.phases[0].count < size) {
          for (const auto r : c10::irange(std::min<int64_t>(kTile, last - first - top))) {
            auto* from = tile_rows.data + r * column_phases * buffer_pitch;
            put_row(to + r * rows.stride * width, from, width, columns, buffer_pitch, row.data);
          }
        }
      }
    };

    for (const auto task : c10::irange(begin, end)) {
      const auto image = task / strips / c.g.channels;
      const auto channel = task / strips % c.g.channels;
      const auto first = task % strips * height;
      for (const auto source : c10::irange(sources)) {
        const auto from = image * c.in_channels() + channel * sources + source;
        pack_plane(
            planes.data + source * plane_size,
            in + from * rows.size * columns.size,
            rows,
            columns,
            first,
            strips == 1,
            row.data);
      }
      for (const auto o : c10::irange(channel * c.outs(), (channel + 1) * c.outs())) {
        auto* w = weights.data;
        for_each_weight(rows, columns, sources, [&](int64_t y, int64_t x, int64_t source) {
          *w++ = static_cast<acc_t>(weight[c.filter(o, source) * c.taps() + y * c.g.kernel[1] + x]);
        });
        start.fill(bias ? static_cast<acc_t>(bias[o]) : acc_t(0));
        auto* plane = out + (image * c.out_channels() + o) * c.out_size()[0] * width;
        for (const auto f : c10::irange(static_cast<int64_t>(rows.phases.size()))) {
          const auto& phase = rows.phases[f];
          const auto* offset = offsets.data() + f * column_phases;
          convolve(phase, offset, first, std::min(first + height, phase.count), plane);
        }
      }
    }
  });
}

// ---- channels_last: the vectors' elements are channels, tiles extend to the right.

// The block of channels that is computed at a time.
template <typename acc_t>
struct Lanes {
  int64_t first;
  int64_t count;
  int vectors;

  static constexpr int64_t size = vec::Vectorized<acc_t>::size();

  Lanes(int64_t first, int64_t channels) : first(first) {
    vectors = kMostVectors > 1 && channels - first > size ? kMostVectors : 1;
    count = std::min(channels - first, vectors * size);
  }
  // In memory, with those that are not there.
  int64_t width() const {
    return vectors * size;
  }
  bool is_whole() const {
    return count == width();
  }
};

// n pixels, `step` apart. Lane l is channel(l); where the channels are neighbours, channel(0) + l.
template <typename scalar_t, typename acc_t, typename F>
void pack_pixels(
    acc_t* to,
    const scalar_t* pixel,
    int64_t step,
    int64_t n,
    const Lanes<acc_t>& lanes,
    bool are_neighbours,
    const F& channel) {
  constexpr int64_t most = kMostVectors * Lanes<acc_t>::size;
  const auto width = lanes.width();
  const auto* first = pixel + channel(0);
  if (are_neighbours && lanes.count == most) {
    for (const auto j : c10::irange(n)) {
      copy_in(to + j * most, first + j * step, most);
    }
    return;
  }
  for (const auto j : c10::irange(n)) {
    if (are_neighbours) {
      copy_in(to + j * width, first + j * step, lanes.count);
    } else {
      for (const auto l : c10::irange(lanes.count)) {
        to[j * width + l] = static_cast<acc_t>(pixel[j * step + channel(l)]);
      }
    }
    std::fill(to + j * width + lanes.count, to + (j + 1) * width, acc_t(0));
  }
}

// A row of an image, `channels` from one pixel to the next.
template <typename scalar_t, typename acc_t, typename F>
void pack_row(
    acc_t* to,
    const scalar_t* row,
    int64_t channels,
    const Axis& columns,
    const Lanes<acc_t>& lanes,
    bool are_neighbours,
    const F& channel) {
  const auto width = lanes.width();
  for (const auto& segment : columns.segments) {
    auto* start = to + segment.start * width;
    const auto* pixels = row + (segment.source + segment.first * columns.step) * channels;
    std::fill(start, start + segment.first * width, acc_t(0));
    pack_pixels(
        start + segment.first * width,
        pixels,
        columns.step * channels,
        segment.last - segment.first,
        lanes,
        are_neighbours,
        channel);
    std::fill(start + segment.last * width, start + segment.length * width, acc_t(0));
  }
}

// Keeps packed rows of an image, so that each is packed once where the rows that are needed at a time are near.
template <typename acc_t>
struct PackedRows {
  int64_t span = 0;
  bool is_ring;
  int64_t row_size;
  Scratch<acc_t> memory;
  std::vector<int64_t> held;

  static int64_t span_of(const Axis& rows) {
    int64_t least = std::numeric_limits<int64_t>::max(), most = std::numeric_limits<int64_t>::min();
    for (const auto& phase : rows.phases) {
      for (const auto& tap : phase.taps) {
        least = std::min(least, tap.base);
        most = std::max(most, tap.base);
      }
    }
    return least <= most ? most - least + 1 : 1;
  }

  static int64_t most_taps(const Axis& rows) {
    size_t most = 1;
    for (const auto& phase : rows.phases) {
      most = std::max(most, phase.taps.size());
    }
    return static_cast<int64_t>(most);
  }

  // Where rows of a ring are few more than are needed at a time, it is worth it.
  PackedRows(const Axis& rows, int64_t row_size)
      : span(span_of(rows)),
        is_ring(span <= 4 * most_taps(rows)),
        row_size(row_size),
        memory((is_ring ? span : most_taps(rows)) * row_size + kTile * kMargin<acc_t>),
        held(is_ring ? span : most_taps(rows)) {
    forget();
  }

  void forget() {
    std::fill(held.begin(), held.end(), -1);
  }

  // Row y, for tap t; pack(memory) fills it.
  template <typename F>
  const acc_t* get(int64_t y, int64_t t, const F& pack) {
    const auto slot = is_ring ? y % span : t;
    auto* row = memory.data + slot * row_size;
    if (held[slot] != y) {
      pack(row);
      held[slot] = y;
    }
    return row;
  }
};

// Taps by base, so that those inside of the image are neighbours.
Axis by_base(Axis axis) {
  for (auto& phase : axis.phases) {
    std::sort(phase.taps.begin(), phase.taps.end(), [](const Tap& a, const Tap& b) { return a.base < b.base; });
  }
  return axis;
}

// The columns that tiles read which are not all inside of the image.
Axis edges_of(const Axis& columns) {
  std::vector<bool> is_read(columns.length, false);
  for (const auto& phase : columns.phases) {
    for (int64_t i = 0; i < phase.count; i += kTile) {
      const auto left = tile_start(i, phase.count);
      for (const auto& run : phase.runs) {
        const auto& tap = phase.taps[run.first];
        if (!is_inside(columns, tap, run.count, left)) {
          const auto first = tap.position + left;
          const auto last = std::min(first + kTile + run.count - 1, columns.length);
          std::fill(is_read.begin() + first, is_read.begin() + last, true);
        }
      }
    }
  }
  return restricted(columns, is_read);
}

// An image whose channels are neighbours.
//
// Args:
//   step: from one pixel to the next.
//   first: the channel that the data begin with.
template <typename T>
struct Pixels {
  T* data;
  int64_t step;
  int64_t first;
};

// What all blocks of channels have in common.
struct ChannelsLastPlan {
  Convolution c;
  Axis columns;
  Axis rows;
  Axis edges;
  std::vector<int64_t> offsets;

  explicit ChannelsLastPlan(const Convolution& c)
      : c(c),
        columns(c.axis(1)),
        rows(by_base(c.axis(0))),
        edges(edges_of(columns)),
        offsets(weight_offsets(columns, rows, c.sources())) {}
};

// Computes rows of a block of channels.
template <typename acc_t>
class ChannelsLastBlock {
 public:
  explicit ChannelsLastBlock(const ChannelsLastPlan& plan)
      : plan_(plan),
        row_size_((plan.columns.length + kTile) * most_lanes),
        packed_(plan.rows, row_size_ * plan.c.sources()),
        weights_(plan.c.taps() * plan.c.sources() * most_lanes),
        start_(most_lanes),
        tiles_((plan.columns.phases[0].count + kTile) * most_lanes) {}

  static constexpr int64_t most_lanes = kMostVectors * vec::Vectorized<acc_t>::size();

  template <typename scalar_t>
  void set_weight(const Lanes<acc_t>& lanes, const scalar_t* weight, const scalar_t* bias) {
    const auto& c = plan_.c;
    auto* w = weights_.data;
    for_each_weight(plan_.columns, plan_.rows, c.sources(), [&](int64_t x, int64_t y, int64_t source) {
      const auto k = y * c.g.kernel[1] + x;
      for (const auto l : c10::irange(lanes.count)) {
        w[l] = static_cast<acc_t>(weight[c.filter(lanes.first + l, source) * c.taps() + k]);
      }
      std::fill(w + lanes.count, w + lanes.width(), acc_t(0));
      w += lanes.width();
    });
    std::fill_n(start_.data, lanes.width(), acc_t(0));
    if (bias) {
      copy_in(start_.data, bias + lanes.first, lanes.count);
    }
  }

  // The rows of one image from first to last.
  template <typename T>
  void compute(const Lanes<acc_t>& lanes, Pixels<const T> in, Pixels<T> out, int64_t first, int64_t last) {
    const bool is_unpacked = std::is_same_v<T, acc_t> && plan_.c.g.multiplier == 1 && lanes.is_whole();
    packed_.forget();
    for (const auto y : c10::irange(first, last)) {
      const auto phase = y % plan_.rows.stride;
      const auto skipped = find_rows(lanes, in, y, is_unpacked);
      auto* line = out.data + y * plan_.c.out_size()[1] * out.step + lanes.first - out.first;
      for (const auto f : c10::irange(static_cast<int64_t>(plan_.columns.phases.size()))) {
        const auto offset = plan_.offsets[f * static_cast<int64_t>(plan_.rows.phases.size()) + phase];
        const auto others = static_cast<int64_t>(plan_.rows.phases[phase].taps.size()) * plan_.c.sources();
        compute_row(lanes, plan_.columns.phases[f], in.step, is_unpacked, offset, others, skipped, line, out.step);
      }
    }
  }

 private:
  // Fills x_ and lines_ for row y of the output. Returns how many of the weights are skipped, those of rows above the
  // image.
  template <typename T>
  int64_t find_rows(const Lanes<acc_t>& lanes, Pixels<const T> in, int64_t y, bool is_unpacked) {
    const auto& c = plan_.c;
    const auto& rows = plan_.rows;
    const auto& taps = rows.phases[y % rows.stride].taps;
    int64_t above = 0;
    x_.clear();
    lines_.clear();
    for (const auto t : c10::irange(static_cast<int64_t>(taps.size()))) {
      const auto from = y / rows.stride * rows.step + taps[t].base;
      if (from < 0 || from >= rows.size) {
        above += from < 0 ? 1 : 0;
        continue;
      }
      const auto* line = in.data + from * plan_.columns.size * in.step;
      const auto* row = packed_.get(from, t, [&](acc_t* to) {
        for (const auto source : c10::irange(c.sources())) {
          const auto channel = [&](int64_t l) { return c.in_channel(lanes.first + l, source) - in.first; };
          const auto& columns = is_unpacked ? plan_.edges : plan_.columns;
          pack_row(to + source * row_size_, line, in.step, columns, lanes, c.g.multiplier == 1, channel);
        }
      });
      for (const auto source : c10::irange(c.sources())) {
        x_.push_back(row + source * row_size_);
      }
      if (is_unpacked) {
        lines_.push_back(reinterpret_cast<const acc_t*>(line) + lanes.first - in.first);
      }
    }
    return above * c.sources();
  }

  template <typename T>
  void compute_row(
      const Lanes<acc_t>& lanes,
      const Phase& window,
      int64_t in_step,
      bool is_unpacked,
      int64_t weight_offset,
      int64_t others,
      int64_t skipped,
      T* line,
      int64_t out_step) {
    const auto width = lanes.width();
    const auto step = plan_.columns.stride * out_step;
    const bool is_whole = std::is_same_v<T, acc_t> && lanes.is_whole() && window.count >= kTile;
    for (int64_t i = 0, tiles = 1; i < window.count; i += tiles * kTile) {
      const auto left = tile_start(i, window.count);
      tiles = 1;
      while (left + (tiles + 1) * kTile <= window.count &&
             (!is_unpacked || are_alike(window, left, left + tiles * kTile))) {
        ++tiles;
      }
      auto* to = line + (window.first + left * plan_.columns.stride) * out_step;
      TileArgs<acc_t> args{x_.data(), static_cast<int64_t>(x_.size()), left * width, width};
      args.w = weights_.data + weight_offset * width;
      args.start = start_.data;
      args.start_step = 0;
      args.out = is_whole ? reinterpret_cast<acc_t*>(to) : tiles_.data;
      args.out_step = is_whole ? step : width;
      args.tiles = tiles;
      const Unpacked<acc_t> image{plan_.columns, lines_.data(), in_step, left};
      const auto* unpacked = is_unpacked ? &image : nullptr;
      if (lanes.vectors == 1) {
        convolve_tile<acc_t, false, 1>(window, others, skipped, args, unpacked);
      } else {
        convolve_tile<acc_t, false, kMostVectors>(window, others, skipped, args, unpacked);
      }
      if (!is_whole) {
        put_pixels(to, step, std::min<int64_t>(tiles * kTile, window.count - left), lanes);
      }
    }
  }

  // Whether two tiles read the same runs from the image itself.
  bool are_alike(const Phase& window, int64_t left, int64_t other) const {
    return std::all_of(window.runs.begin(), window.runs.end(), [&](const Run& run) {
      const auto& tap = window.taps[run.first];
      return is_inside(plan_.columns, tap, run.count, left) == is_inside(plan_.columns, tap, run.count, other);
    });
  }

  // n pixels of the tiles to the output.
  template <typename T>
  void put_pixels(T* to, int64_t step, int64_t n, const Lanes<acc_t>& lanes) const {
    if (lanes.count == most_lanes) {
      for (const auto j : c10::irange(n)) {
        copy_out(to + j * step, tiles_.data + j * most_lanes, most_lanes);
      }
    } else {
      for (const auto j : c10::irange(n)) {
        copy_out(to + j * step, tiles_.data + j * lanes.width(), lanes.count);
      }
    }
  }

  const ChannelsLastPlan& plan_;
  int64_t row_size_;
  PackedRows<acc_t> packed_;
  Scratch<acc_t> weights_;
  Scratch<acc_t> start_;
  Scratch<acc_t> tiles_;
  // For each tap and source its row, packed and, for each tap, as it is.
  std::vector<const acc_t*> x_;
  std::vector<const acc_t*> lines_;
};

template <typename scalar_t>
void convolve_channels_last(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr auto most_lanes = ChannelsLastBlock<acc_t>::most_lanes;
  const ChannelsLastPlan plan(c);
  const auto channels = c.out_channels();
  const auto [height, width] = c.out_size();
  const auto blocks = (channels + most_lanes - 1) / most_lanes;
  // Large images go strip by strip, so that what a block of channels leaves of a cache line's neighbours is near; in
  // small ones a block's weights are set once for all images.
  const bool is_large = height * width >= 784;
  const auto strip = is_large ? strip_height(width * channels * static_cast<int64_t>(sizeof(scalar_t)) / 4) : height;
  const auto strips = (height + strip - 1) / strip;
  const auto tasks = blocks * c.g.batch * strips;
  const auto products = tasks * strip * width * c.taps() * c.sources() * most_lanes;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    ChannelsLastBlock<acc_t> worker(plan);
    int64_t last_block = -1;
    for (const auto task : c10::irange(begin, end)) {
      const auto block = is_large ? task % blocks : task / c.g.batch;
      const auto image = is_large ? task / blocks / strips : task % c.g.batch;
      const auto first = is_large ? task / blocks % strips * strip : 0;
      const Lanes<acc_t> lanes(block * most_lanes, channels);
      if (block != last_block) {
        worker.set_weight(lanes, weight, bias);
        last_block = block;
      }
      const Pixels<const scalar_t> from{
          in + image * plan.rows.size * plan.columns.size * c.in_channels(), c.in_channels(), 0};
      const Pixels<scalar_t> to{out + image * height * width * channels, channels, 0};
      worker.compute(lanes, from, to, first, std::min(first + strip, height));
    }
  });
}

// ---- Contiguous images that are small: turned round, so that their channels are neighbours while they are computed.

// [rows][columns] to [columns][rows].
template <typename acc_t>
void transpose(const acc_t* from, int64_t from_step, acc_t* to, int64_t to_step, int64_t rows, int64_t columns) {
  constexpr int64_t block = 16;
  for (int64_t i = 0; i < rows; i += block) {
    for (int64_t j = 0; j < columns; j += block) {
      const auto m = static_cast<int>(std::min(block, rows - i)), n = static_cast<int>(std::min(block, columns - j));
      const auto* source = from + i * from_step + j;
      auto* target = to + j * to_step + i;
      if (m == block && n == block) {
        vec::transpose_mxn<acc_t, block, block>(source, from_step, target, to_step);
      } else {
        vec::transpose_mxn<acc_t>(source, from_step, target, to_step, m, n);
      }
    }
  }
}

// So many pixels of a half type are converted at a time.
constexpr int64_t kTransposed = 64;

// `channels` planes of n elements to n pixels.
template <typename scalar_t, typename acc_t>
void planes_to_pixels(acc_t* to, int64_t to_step, const scalar_t* from, int64_t n, int64_t channels, acc_t* buffer) {
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    transpose(from, n, to, to_step, channels, n);
  } else {
    constexpr auto pitch = kTransposed + kMargin<acc_t>;
    for (int64_t j = 0; j < n; j += kTransposed) {
      const auto some = std::min(kTransposed, n - j);
      for (const auto c : c10::irange(channels)) {
        copy_in(buffer + c * pitch, from + c * n + j, some);
      }
      transpose(buffer, pitch, to + j * to_step, to_step, channels, some);
    }
  }
}

template <typename scalar_t, typename acc_t>
void pixels_to_planes(scalar_t* to, const acc_t* from, int64_t from_step, int64_t n, int64_t channels, acc_t* buffer) {
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    transpose(from, from_step, to, n, n, channels);
  } else {
    constexpr auto pitch = kTransposed + kMargin<acc_t>;
    for (int64_t j = 0; j < n; j += kTransposed) {
      const auto some = std::min(kTransposed, n - j);
      transpose(from + j * from_step, from_step, buffer, pitch, some, channels);
      for (const auto c : c10::irange(channels)) {
        copy_out(to + c * n + j, buffer + c * pitch, some);
      }
    }
  }
}

template <typename scalar_t>
void convolve_small_planes(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr auto most_lanes = ChannelsLastBlock<acc_t>::most_lanes;
  const ChannelsLastPlan plan(c);
  const auto channels = c.out_channels();
  const auto [height, width] = c.out_size();
  const auto in_pixels = c.in_size()[0] * c.in_size()[1];
  const auto out_pixels = height * width;
  const auto blocks = (channels + most_lanes - 1) / most_lanes;
  const auto tasks = blocks * c.g.batch;
  const auto products = tasks * out_pixels * c.taps() * most_lanes;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    ChannelsLastBlock<acc_t> worker(plan);
    Scratch<acc_t> from(in_pixels * most_lanes), to(out_pixels * most_lanes);
    Scratch<acc_t> buffer(most_lanes * (kTransposed + kMargin<acc_t>));
    for (const auto task : c10::irange(begin, end)) {
      // All lanes are computed, also those that are not there.
      const Lanes<acc_t> there(task / c.g.batch * most_lanes, channels);
      auto lanes = there;
      lanes.count = lanes.width();
      const auto image = task % c.g.batch * channels + lanes.first;
      if (task == begin || task % c.g.batch == 0) {
        worker.set_weight(there, weight, bias);
      }
      planes_to_pixels(from.data, lanes.width(), in + image * in_pixels, in_pixels, there.count, buffer.data);
      const Pixels<const acc_t> pixels{from.data, lanes.width(), lanes.first};
      worker.compute(lanes, pixels, Pixels<acc_t>{to.data, lanes.width(), lanes.first}, 0, height);
      pixels_to_planes(out + image * out_pixels, to.data, lanes.width(), out_pixels, there.count, buffer.data);
    }
  });
}

// ---- The gradients of weight and bias. Sums over images and rows are split into chunks that the sizes alone
// determine, so that the result does not depend on the number of threads.

struct Chunks {
  int64_t size;
  int64_t count;

  // Args: how many things there are, and how many pixels each has.
  Chunks(int64_t things, int64_t pixels) {
    constexpr int64_t most = 64, least_pixels = 2048;
    size = std::max((things + most - 1) / most, (least_pixels + pixels - 1) / pixels);
    size = std::min(size, things);
    count = (things + size - 1) / size;
  }
};

// partials holds `count` times n numbers; their sums, by pairs, go to the first n.
template <typename acc_t>
void add_partials(acc_t* partials, int64_t count, int64_t n) {
  for (int64_t step = 1; step < count; step *= 2) {
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      auto* to = partials + i * n;
      const auto* from = to + step * n;
      for (const auto j : c10::irange(n)) {
        to[j] += from[j];
      }
    }
  }
}

template <typename acc_t, int V, typename... Args>
C10_ALWAYS_INLINE void correlate_run(int64_t taps, Args... args) {
  static constexpr std::array functions = {
      correlate<acc_t, 1, V>,
      correlate<acc_t, 2, V>,
      correlate<acc_t, 3, V>,
      correlate<acc_t, 4, V>,
      correlate<acc_t, 5, V>,
      correlate<acc_t, 6, V>,
      correlate<acc_t, 7, V>};
  static_assert(functions.size() == kLongestRun);
  functions[taps - 1](args...);
}

// All bits set in the first n elements.
template <typename acc_t>
void fill_mask(acc_t* mask, int64_t n, int64_t width) {
  std::memset(mask, 0xff, n * sizeof(acc_t));
  std::memset(mask + n, 0, (width - n) * sizeof(acc_t));
}

// The gradients as they are summed up, for each chunk: for each output channel those of the taps, in the order of the
// weight, and of the bias.
template <typename acc_t>
struct Sums {
  int64_t channels;
  int64_t taps;
  int64_t chunks;
  std::vector<acc_t> values;

  Sums(const Geometry& g, int64_t chunks)
      : channels(g.output_channels()),
        taps(g.kernel[0] * g.kernel[1]),
        chunks(chunks),
        values(chunks * channels * (taps + 1)) {}

  acc_t* of(int64_t chunk, int64_t channel) {
    return values.data() + (chunk * channels + channel) * (taps + 1);
  }

  template <typename scalar_t>
  void store(scalar_t* grad_weight, scalar_t* grad_bias) {
    add_partials(values.data(), chunks, channels * (taps + 1));
    for (const auto c : c10::irange(channels)) {
      const auto* from = of(0, c);
      if (grad_weight) {
        std::transform(from, from + taps, grad_weight + c * taps, [](acc_t x) { return static_cast<scalar_t>(x); });
      }
      if (grad_bias) {
        grad_bias[c] = static_cast<scalar_t>(from[taps]);
      }
    }
  }
};

template <typename scalar_t>
void backward_weight_planes(
    const Geometry& g,
    scalar_t* grad_weight,
    scalar_t* grad_bias,
    const scalar_t* grad,
    const scalar_t* in) {
  using acc_t = at::opmath_type<scalar_t>;
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  const auto columns = forward_axis(g, 1, g.output[1]);
  const auto pitch = columns.length;
  const auto height = strip_height(pitch * static_cast<int64_t>(sizeof(acc_t)));
  const auto rows = forward_axis(g, 0, height);
  const auto& down = rows.phases[0];
  const auto& across = columns.phases[0];
  const auto taps = g.kernel[0] * g.kernel[1];
  // The gradient's rows are filled up with zeros to whole vectors.
  const auto grad_pitch = (g.output[1] + size - 1) / size * size;
  const Chunks chunks(g.batch, g.output[0] * g.output[1]);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = g.channels * chunks.count;
  const auto products = g.batch * g.output_channels() * g.output[0] * g.output[1] * taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    Scratch<acc_t> plane((rows.length + kTile) * pitch + kMargin<acc_t>);
    Scratch<acc_t> grads(std::min(height, g.output[0]) * grad_pitch + kMargin<acc_t>);
    Scratch<acc_t> row(g.input[1]);
    Scratch<acc_t> vectors((taps + 1) * kMostVectors * size);
    std::array<acc_t, kMostVectors * size> whole, last;
    fill_mask(whole.data(), kMostVectors * size, kMostVectors * size);
    fill_mask(last.data(), g.output[1] - (grad_pitch - size), size);

    // Adds what one strip of one output channel gives; n rows.
    const auto correlate_strip = [&](int64_t n, acc_t* result) {
      std::fill_n(vectors.data, (taps + 1) * kMostVectors * size, acc_t(0));
      // Vectors of the narrow columns at the end go into the first lanes.
      for (int64_t j = 0; j < grad_pitch;) {
        const bool is_wide = kMostVectors > 1 && j + kMostVectors * size <= g.output[1];
        const auto* mask = j + size <= g.output[1] ? whole.data() : last.data();
        constexpr auto step = kMostVectors * size;
        for (const auto& tap : across.taps) {
          for (const auto& run : down.runs) {
            const auto* x = plane.data + down.taps[run.first].position * pitch + tap.position + j;
            auto* to = vectors.data + (tap.kernel * g.kernel[0] + run.first) * step;
            if (is_wide) {
              correlate_run<acc_t, kMostVectors>(run.count, grads.data + j, grad_pitch, x, pitch, n, mask, to, step);
            } else {
              correlate_run<acc_t, 1>(run.count, grads.data + j, grad_pitch, x, pitch, n, mask, to, step);
            }
          }
        }
        j += is_wide ? kMostVectors * size : size;
      }
      for (const auto x : c10::irange(g.kernel[1])) {
        for (const auto k : c10::irange(g.kernel[0])) {
          const auto* from = vectors.data + (x * g.kernel[0] + k) * kMostVectors * size;
          result[down.taps[k].kernel * g.kernel[1] + x] += std::accumulate(from, from + kMostVectors * size, acc_t(0));
        }
      }
    };

    for (const auto task : c10::irange(begin, end)) {
      const auto channel = task / chunks.count;
      const auto chunk = task % chunks.count;
      for (const auto image : c10::irange(chunk * chunks.size, std::min((chunk + 1) * chunks.size, g.batch))) {
        for (int64_t first = 0; first < g.output[0]; first += height) {
          const auto n = std::min(height, g.output[0] - first);
          const auto* from = in + (image * g.channels + channel) * rows.size * columns.size;
          pack_plane(plane.data, from, rows, columns, first, height >= g.output[0], row.data);
          for (const auto o : c10::irange(channel * g.multiplier, (channel + 1) * g.multiplier)) {
            const auto* lines = grad + ((image * g.output_channels() + o) * g.output[0] + first) * g.output[1];
            auto* result = sums.of(chunk, o);
            Vec total(acc_t(0));
            for (const auto y : c10::irange(n)) {
              auto* line = grads.data + y * grad_pitch;
              copy_in(line, lines + y * g.output[1], g.output[1]);
              std::fill(line + g.output[1], line + grad_pitch, acc_t(0));
              for (int64_t j = 0; j < grad_pitch; j += size) {
                total = total + Vec::loadu(line + j);
              }
            }
            std::array<acc_t, size> lanes;
            total.store(lanes.data());
            result[taps] += std::accumulate(lanes.begin(), lanes.end(), acc_t(0));
            if (grad_weight) {
              correlate_strip(n, result);
            }
          }
        }
      }
    }
  });
  sums.store(grad_weight, grad_bias);
}

// The columns of a row that a run reads from the image itself: for the outputs from first to second, which is the first
// one that reads beyond an edge. None where they are so few that a division of the row costs more.
std::pair<int64_t, int64_t> inner_outputs(const Axis& columns, const Tap& tap, int64_t taps) {
  const auto count = columns.phases[0].count;
  const auto first = tap.base >= 0 ? 0 : std::min((-tap.base - 1) / columns.step + 1, count);
  const auto last = std::clamp(floor_div(columns.size - 1 - tap.base, columns.step) + 2 - taps, first, count);
  return 2 * (last - first) < count ? std::pair(count, count) : std::pair(first, last);
}

struct GradientPlan {
  const Geometry& g;
  Axis columns;
  Axis rows;
  Axis edges;

  explicit GradientPlan(const Geometry& g)
      : g(g), columns(forward_axis(g, 1, g.output[1])), rows(by_base(forward_axis(g, 0, g.output[0]))), edges(columns) {
    const auto& across = columns.phases[0];
    std::vector<bool> is_read(columns.length, false);
    for (const auto& run : across.runs) {
      const auto& tap = across.taps[run.first];
      const auto [first, last] = inner_outputs(columns, tap, run.count);
      const auto begin = is_read.begin() + tap.position;
      std::fill(begin, begin + (first > 0 ? first + run.count - 1 : 0), true);
      std::fill(begin + last, begin + (last < across.count ? across.count + run.count - 1 : last), true);
    }
    edges = restricted(columns, is_read);
  }
};

// Sums up the gradients of a block of channels.
template <typename acc_t>
class GradientBlock {
 public:
  using Vec = vec::Vectorized<acc_t>;
  static constexpr int64_t most_lanes = kMostVectors * Vec::size();

  explicit GradientBlock(const GradientPlan& plan)
      : plan_(plan),
        taps_(plan.g.kernel[0] * plan.g.kernel[1]),
        packed_(plan.rows, (plan.columns.length + kTile) * most_lanes),
        line_(plan.g.output[1] * most_lanes + kMargin<acc_t>),
        sums_((taps_ + 1) * most_lanes) {
    fill_mask(mask_.data(), most_lanes, most_lanes);
  }

  void clear() {
    std::fill_n(sums_.data, (taps_ + 1) * most_lanes, acc_t(0));
  }

  // Adds the output's rows of one image from first to last.
  template <typename T>
  void
  add(const Lanes<acc_t>& lanes,
      Pixels<const T> grads,
      Pixels<const T> in,
      int64_t first,
      int64_t last,
      bool of_weight,
      bool of_bias) {
    packed_.forget();
    for (const auto y : c10::irange(first, last)) {
      const auto width = plan_.g.output[1];
      const auto* from = grads.data + y * width * grads.step;
      const acc_t* line = line_.data;
      auto step = lanes.width();
      if (std::is_same_v<T, acc_t> && lanes.is_whole()) {
        line = reinterpret_cast<const acc_t*>(from) + lanes.first - grads.first;
        step = grads.step;
      } else {
        const auto channel = [&](int64_t l) { return lanes.first + l - grads.first; };
        pack_pixels(line_.data, from, grads.step, width, lanes, true, channel);
      }
      if (of_bias) {
        add_bias(lanes, line, step);
      }
      if (of_weight) {
        add_weight(lanes, line, step, in, y);
      }
    }
  }

  // Writes the sums: for each channel those of the taps, in the order of the weight, and of the bias.
  void store(const Lanes<acc_t>& lanes, acc_t* to) const {
    const auto& down = plan_.rows.phases[0].taps;
    const auto& across = plan_.columns.phases[0].taps;
    const auto kw = plan_.g.kernel[1];
    for (const auto l : c10::irange(lanes.count)) {
      const auto* from = sums_.data + l;
      for (const auto t : c10::irange(plan_.g.kernel[0])) {
        for (const auto k : c10::irange(kw)) {
          to[down[t].kernel * kw + across[k].kernel] = from[(t * kw + k) * lanes.width()];
        }
      }
      to[taps_] = from[taps_ * lanes.width()];
      to += taps_ + 1;
    }
  }

 private:
  void add_bias(const Lanes<acc_t>& lanes, const acc_t* line, int64_t step) {
    auto* total = sums_.data + taps_ * lanes.width();
    for (int64_t l = 0; l < lanes.width(); l += Vec::size()) {
      auto sum = Vec::loadu(total + l);
      for (const auto j : c10::irange(plan_.g.output[1])) {
        sum = sum + Vec::loadu(line + j * step + l);
      }
      sum.store(total + l);
    }
  }

  template <typename T>
  void add_weight(const Lanes<acc_t>& lanes, const acc_t* line, int64_t step, Pixels<const T> in, int64_t y) {
    const auto& g = plan_.g;
    const auto& rows = plan_.rows;
    const auto& columns = plan_.columns;
    const bool is_unpacked = std::is_same_v<T, acc_t> && g.multiplier == 1 && lanes.is_whole();
    for (const auto t : c10::irange(g.kernel[0])) {
      const auto iy = y * rows.step + rows.phases[0].taps[t].base;
      if (iy < 0 || iy >= rows.size) {
        continue;
      }
      const auto* image = in.data + iy * columns.size * in.step;
      const auto* packed = packed_.get(iy, t, [&](acc_t* to) {
        const auto channel = [&](int64_t l) { return (lanes.first + l) / g.multiplier - in.first; };
        pack_row(to, image, in.step, is_unpacked ? plan_.edges : columns, lanes, g.multiplier == 1, channel);
      });
      for (const auto& run : columns.phases[0].runs) {
        const auto& tap = columns.phases[0].taps[run.first];
        auto* sums = sums_.data + (t * g.kernel[1] + run.first) * lanes.width();
        const auto correlate_part = [&](const acc_t* x, int64_t x_step, int64_t first, int64_t last) {
          if (last <= first) {
            return;
          }
          const auto* from = line + first * step;
          if (lanes.vectors == 1) {
            correlate_run<acc_t, 1>(run.count, from, step, x, x_step, last - first, mask_.data(), sums, lanes.width());
          } else {
            correlate_run<acc_t, kMostVectors>(
                run.count, from, step, x, x_step, last - first, mask_.data(), sums, lanes.width());
          }
        };
        const auto width = lanes.width();
        if (is_unpacked) {
          const auto [first, last] = inner_outputs(columns, tap, run.count);
          const auto* pixels = reinterpret_cast<const acc_t*>(image) + lanes.first - in.first;
          correlate_part(packed + tap.position * width, width, 0, first);
          correlate_part(pixels + (tap.base + first * columns.step) * in.step, columns.step * in.step, first, last);
          correlate_part(packed + (tap.position + last) * width, width, last, g.output[1]);
        } else {
          correlate_part(packed + tap.position * width, width, 0, g.output[1]);
        }
      }
    }
  }

  const GradientPlan& plan_;
  int64_t taps_;
  PackedRows<acc_t> packed_;
  Scratch<acc_t> line_;
  // For each row of the kernel its taps in the order of their positions, then the bias.
  Scratch<acc_t> sums_;
  std::array<acc_t, most_lanes> mask_;
};

template <typename scalar_t>
void backward_weight_channels_last(
    const Geometry& g,
    scalar_t* grad_weight,
    scalar_t* grad_bias,
    const scalar_t* grad,
    const scalar_t* in) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr auto most_lanes = GradientBlock<acc_t>::most_lanes;
  const GradientPlan plan(g);
  const auto channels = g.output_channels();
  const auto [height, width] = g.output;
  const auto blocks = (channels + most_lanes - 1) / most_lanes;
  const auto rows = g.batch * height;
  const Chunks chunks(rows, width);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = blocks * chunks.count;
  const auto products = rows * width * channels * sums.taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    GradientBlock<acc_t> worker(plan);
    for (const auto task : c10::irange(begin, end)) {
      const auto chunk = task / blocks;
      const Lanes<acc_t> lanes(task % blocks * most_lanes, channels);
      worker.clear();
      const auto last = std::min((chunk + 1) * chunks.size, rows);
      for (auto row = chunk * chunks.size; row < last;) {
        const auto image = row / height;
        const auto end_row = std::min(last - image * height, height);
        const Pixels<const scalar_t> grads{grad + image * height * width * channels, channels, 0};
        const Pixels<const scalar_t> pixels{in + image * g.input[0] * g.input[1] * g.channels, g.channels, 0};
        worker.add(lanes, grads, pixels, row - image * height, end_row, grad_weight, grad_bias);
        row = image * height + end_row;
      }
      worker.store(lanes, sums.of(chunk, lanes.first));
    }
  });
  sums.store(grad_weight, grad_bias);
}

template <typename scalar_t>
void backward_weight_small_planes(
    const Geometry& g,
    scalar_t* grad_weight,
    scalar_t* grad_bias,
    const scalar_t* grad,
    const scalar_t* in) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr auto most_lanes = GradientBlock<acc_t>::most_lanes;
  const GradientPlan plan(g);
  const auto in_pixels = g.input[0] * g.input[1];
  const auto out_pixels = g.output[0] * g.output[1];
  const auto blocks = (g.channels + most_lanes - 1) / most_lanes;
  const Chunks chunks(g.batch, out_pixels);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = blocks * chunks.count;
  const auto products = g.batch * out_pixels * g.channels * sums.taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    GradientBlock<acc_t> worker(plan);
    Scratch<acc_t> pixels(in_pixels * most_lanes), grads(out_pixels * most_lanes);
    Scratch<acc_t> buffer(most_lanes * (kTransposed + kMargin<acc_t>));
    for (const auto task : c10::irange(begin, end)) {
      const auto chunk = task / blocks;
      const Lanes<acc_t> there(task % blocks * most_lanes, g.channels);
      auto lanes = there;
      lanes.count = lanes.width();
      const auto width = lanes.width();
      worker.clear();
      for (const auto image : c10::irange(chunk * chunks.size, std::min((chunk + 1) * chunks.size, g.batch))) {
        const auto plane = image * g.channels + lanes.first;
        planes_to_pixels(grads.data, width, grad + plane * out_pixels, out_pixels, there.count, buffer.data);
        planes_to_pixels(pixels.data, width, in + plane * in_pixels, in_pixels, there.count, buffer.data);
        const Pixels<const acc_t> of_grads{grads.data, width, lanes.first}, of_image{pixels.data, width, lanes.first};
        worker.add(lanes, of_grads, of_image, 0, g.output[0], grad_weight, grad_bias);
      }
      worker.store(there, sums.of(chunk, lanes.first));
    }
  });
  sums.store(grad_weight, grad_bias);
}

// ---- The kernels.

// Planes that are turned round: where there are channels enough to fill vectors, and a plane is narrow for vectors or
// small enough for a block of channels to stay in the cache.
bool is_small(const Geometry& g) {
  const auto most = std::max({g.input[0], g.input[1], g.output[0], g.output[1]});
  return g.multiplier == 1 && g.channels >= 8 && most <= 56;
}

bool is_channels_last(const TensorBase& images) {
  return !images.is_contiguous();
}

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

void backward_weight_kernel(
    const TensorBase& grad_weight,
    const TensorBase& grad_bias,
    const TensorBase& grad_output,
    const TensorBase& input,
    const Geometry& g) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "depthwise_conv2d_backward_weight_cpu", [&] {
    const auto function = is_channels_last(grad_output) || is_channels_last(input)
        ? backward_weight_channels_last<scalar_t>
        : is_small(g) ? backward_weight_small_planes<scalar_t>
                      : backward_weight_planes<scalar_t>;
    function(
        g,
        grad_weight.defined() ? grad_weight.mutable_data_ptr<scalar_t>() : nullptr,
        grad_bias.defined() ? grad_bias.mutable_data_ptr<scalar_t>() : nullptr,
        grad_output.const_data_ptr<scalar_t>(),
        input.const_data_ptr<scalar_t>());
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_stub, &forward_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_input_stub, &backward_input_kernel)
ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_weight_stub, &backward_weight_kernel)

} // namespace at::native
