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

template <typename acc_t, bool of_plane, int V>
void call_tile(int64_t taps, const TileArgs<acc_t>& args) {
  switch (taps) {
  case 1:
    return tile<acc_t, 1, V, of_plane>(args);
  case 2:
    return tile<acc_t, 2, V, of_plane>(args);
  case 3:
    return tile<acc_t, 3, V, of_plane>(args);
  case 4:
    return tile<acc_t, 4, V, of_plane>(args);
  case 5:
    return tile<acc_t, 5, V, of_plane>(args);
  case 6:
    return tile<acc_t, 6, V, of_plane>(args);
  default:
    return tile<acc_t, 7, V, of_plane>(args);
  }
}

// One tile, run after run.
//
// Args:
//   skipped, others: which of the other axis's taps times sources the weights begin with, and how many there are.
template <typename acc_t, bool of_plane, int V>
void convolve_tile(const Phase& window, int64_t others, int64_t skipped, TileArgs<acc_t> args) {
  constexpr int64_t lanes = of_plane ? 1 : V * vec::Vectorized<acc_t>::size();
  if (window.runs.empty()) {
    args.n = 0;
    return tile<acc_t, 1, V, of_plane>(args);
  }
  const auto offset = args.offset;
  const auto* weights = args.w;
  for (const auto& run : window.runs) {
    args.offset = offset + window.taps[run.first].position * args.step;
    args.w = weights + skipped * run.count * lanes;
    call_tile<acc_t, of_plane, V>(run.count, args);
    weights += others * run.count * lanes;
    args.start = args.out;
    args.start_step = args.out_step;
  }
}

// The elements j of a segment that lie inside of the image: from first to second.
std::pair<int64_t, int64_t> inside(const Segment& segment, const Axis& axis) {
  const auto first = segment.source >= 0 ? 0 : (-segment.source + axis.step - 1) / axis.step;
  const auto second = segment.source >= axis.size ? 0 : (axis.size - 1 - segment.source) / axis.step + 1;
  return {std::min(first, segment.length), std::clamp(second, std::min(first, segment.length), segment.length)};
}

// So many tasks that a thread has work for some microseconds in each.
int64_t grain_size(int64_t tasks, int64_t products) {
  constexpr int64_t least = 1 << 17;
  return std::max<int64_t>(1, least * tasks / std::max<int64_t>(products, 1));
}

// ---- Contiguous: the vectors' elements are columns of a plane, tiles extend downwards.

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
    const auto [first, second] = inside(segment, columns);
    if (columns.step == 1) {
      // Behind the end this writes zeros, over zeros or over what is packed next.
      copy_in(start + first, row + segment.source + first, second - first);
    } else if (columns.step == 2) {
      const auto* from = converted + segment.source;
      for (auto j = first; j < second; ++j) {
        start[j] = from[2 * j];
      }
    } else {
      for (auto j = first; j < second; ++j) {
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
      for (const auto j : c10::irange((width + 1) / 2)) {
        buffer[2 * j] = from[j];
        buffer[2 * j + 1] = from[pitch + j];
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

// As many rows at a time as keep what is packed in the second-level cache.
int64_t strip_height(int64_t row_bytes) {
  constexpr int64_t cache = 1 << 17;
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
        // The last tile covers rows of the one before again rather than rows that are not there.
        const auto top = std::max<int64_t>(std::min(i, last - first - kTile), 0);
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

// The channels of one pixel. Lane l is channel(l); where the channels are neighbours, channel(0) + l.
template <typename scalar_t, typename acc_t, typename F>
void pack_pixel(acc_t* to, const scalar_t* pixel, const Lanes<acc_t>& lanes, bool are_neighbours, const F& channel) {
  if (are_neighbours && lanes.is_whole() && std::is_same_v<scalar_t, acc_t>) {
    std::copy_n(reinterpret_cast<const acc_t*>(pixel) + channel(0), lanes.width(), to);
  } else if (are_neighbours) {
    copy_in(to, pixel + channel(0), lanes.count);
    std::fill(to + lanes.count, to + lanes.width(), acc_t(0));
  } else {
    for (const auto l : c10::irange(lanes.count)) {
      to[l] = static_cast<acc_t>(pixel[channel(l)]);
    }
    std::fill(to + lanes.count, to + lanes.width(), acc_t(0));
  }
}

template <typename scalar_t, typename acc_t, typename F>
void pack_pixels(
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
    const auto [first, second] = inside(segment, columns);
    std::fill(start, start + first * width, acc_t(0));
    for (auto j = first; j < second; ++j) {
      const auto* pixel = row + (segment.source + j * columns.step) * channels;
      pack_pixel(start + j * width, pixel, lanes, are_neighbours, channel);
    }
    std::fill(start + second * width, start + segment.length * width, acc_t(0));
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
void sort_by_base(Axis& axis) {
  for (auto& phase : axis.phases) {
    std::sort(phase.taps.begin(), phase.taps.end(), [](const Tap& a, const Tap& b) { return a.base < b.base; });
  }
}

template <typename scalar_t>
void convolve_channels_last(
    const Convolution& c,
    scalar_t* out,
    const scalar_t* in,
    const scalar_t* weight,
    const scalar_t* bias) {
  using acc_t = at::opmath_type<scalar_t>;
  constexpr int64_t most_lanes = kMostVectors * vec::Vectorized<acc_t>::size();
  constexpr bool is_same = std::is_same_v<scalar_t, acc_t>;
  const auto columns = c.axis(1);
  auto rows = c.axis(0);
  sort_by_base(rows);
  const auto sources = c.sources();
  const auto offsets = weight_offsets(columns, rows, sources);
  const auto row_phases = static_cast<int64_t>(rows.phases.size());
  const auto channels = c.out_channels();
  const auto [height, width] = c.out_size();
  const auto blocks = (channels + most_lanes - 1) / most_lanes;
  // Strips only where there are too few blocks of channels to go round.
  const auto threads = at::get_num_threads();
  const auto strips = std::clamp<int64_t>((4 * threads - 1) / (blocks * c.g.batch) + 1, 1, (height + 13) / 14);
  const auto strip = (height + strips - 1) / strips;
  const auto tasks = blocks * c.g.batch * strips;
  const auto products = tasks * strip * width * c.taps() * sources * most_lanes;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    const auto row_size = (columns.length + kTile) * most_lanes;
    PackedRows<acc_t> packed(rows, row_size * sources);
    Scratch<acc_t> weights(c.taps() * sources * most_lanes);
    Scratch<acc_t> start(most_lanes);
    Scratch<acc_t> buffer(kTile * most_lanes);
    std::vector<const acc_t*> x;
    int64_t block = -1;

    for (const auto task : c10::irange(begin, end)) {
      const auto image = task / strips % c.g.batch;
      const Lanes<acc_t> lanes(task / strips / c.g.batch * most_lanes, channels);
      const auto lane_width = lanes.width();
      if (block != task / strips / c.g.batch) {
        block = task / strips / c.g.batch;
        auto* w = weights.data;
        for_each_weight(columns, rows, sources, [&](int64_t x, int64_t y, int64_t source) {
          const auto k = y * c.g.kernel[1] + x;
          for (const auto l : c10::irange(lanes.count)) {
            w[l] = static_cast<acc_t>(weight[c.filter(lanes.first + l, source) * c.taps() + k]);
          }
          std::fill(w + lanes.count, w + lane_width, acc_t(0));
          w += lane_width;
        });
        std::fill_n(start.data, lane_width, acc_t(0));
        if (bias) {
          copy_in(start.data, bias + lanes.first, lanes.count);
        }
      }
      packed.forget();

      const auto first = task % strips * strip;
      for (const auto y : c10::irange(first, std::min(first + strip, height))) {
        const auto phase = y % rows.stride;
        const auto& taps = rows.phases[phase].taps;
        const auto all = static_cast<int64_t>(taps.size());
        int64_t skipped = -1;
        x.clear();
        for (const auto t : c10::irange(all)) {
          const auto from = (y / rows.stride) * rows.step + taps[t].base;
          if (from < 0 || from >= rows.size) {
            continue;
          }
          skipped = skipped < 0 ? t : skipped;
          const auto* row = packed.get(from, t, [&](acc_t* to) {
            const auto* line = in + (image * rows.size + from) * columns.size * c.in_channels();
            for (const auto source : c10::irange(sources)) {
              pack_pixels(
                  to + source * row_size, line, c.in_channels(), columns, lanes, c.g.multiplier == 1, [&](int64_t l) {
                    return c.in_channel(lanes.first + l, source);
                  });
            }
          });
          for (const auto source : c10::irange(sources)) {
            x.push_back(row + source * row_size);
          }
        }
        auto* line = out + (image * height + y) * width * channels + lanes.first;
        for (const auto f : c10::irange(static_cast<int64_t>(columns.phases.size()))) {
          const auto& window = columns.phases[f];
          const auto step = columns.stride * channels;
          const bool is_whole = is_same && lanes.is_whole() && window.count >= kTile;
          for (int64_t i = 0; i < window.count; i += kTile) {
            const auto left = is_whole ? std::min(i, window.count - kTile) : i;
            auto* to = line + (window.first + left * columns.stride) * channels;
            TileArgs<acc_t> args{x.data(), static_cast<int64_t>(x.size()), left * lane_width, lane_width};
            args.w = weights.data + offsets[f * row_phases + phase] * lane_width;
            args.start = start.data;
            args.start_step = 0;
            args.out = is_whole ? reinterpret_cast<acc_t*>(to) : buffer.data;
            args.out_step = is_whole ? step : lane_width;
            const auto skip = std::max<int64_t>(skipped, 0) * sources;
            if (lanes.vectors == 1) {
              convolve_tile<acc_t, false, 1>(window, all * sources, skip, args);
            } else {
              convolve_tile<acc_t, false, kMostVectors>(window, all * sources, skip, args);
            }
            if (!is_whole) {
              for (const auto j : c10::irange(std::min<int64_t>(kTile, window.count - left))) {
                copy_out(to + j * step, buffer.data + j * lane_width, lanes.count);
              }
            }
          }
        }
      }
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

template <typename acc_t, int V>
void correlate_run(int64_t taps, const CorrelateArgs<acc_t>& args) {
  switch (taps) {
  case 1:
    return correlate<acc_t, 1, V>(args);
  case 2:
    return correlate<acc_t, 2, V>(args);
  case 3:
    return correlate<acc_t, 3, V>(args);
  case 4:
    return correlate<acc_t, 4, V>(args);
  case 5:
    return correlate<acc_t, 5, V>(args);
  case 6:
    return correlate<acc_t, 6, V>(args);
  default:
    return correlate<acc_t, 7, V>(args);
  }
}

// All bits set in the first n elements.
template <typename acc_t>
void fill_mask(acc_t* mask, int64_t n, int64_t width) {
  std::memset(mask, 0xff, n * sizeof(acc_t));
  std::memset(mask + n, 0, (width - n) * sizeof(acc_t));
}

// The gradients as they are summed: for each output channel those of the taps, in the order of the weight, and of the
// bias.
template <typename acc_t>
struct Sums {
  int64_t taps;
  std::vector<acc_t> values;

  Sums(const Geometry& g, int64_t chunks)
      : taps(g.kernel[0] * g.kernel[1]), values(chunks * g.output_channels() * (taps + 1)) {}

  int64_t stride() const {
    return taps + 1;
  }

  template <typename scalar_t>
  void store(const Geometry& g, int64_t chunks, scalar_t* grad_weight, scalar_t* grad_bias) {
    const auto channels = g.output_channels();
    // A chunk's sums are one behind the other, channel after channel.
    add_partials(values.data(), chunks, channels * stride());
    for (const auto c : c10::irange(channels)) {
      const auto* from = values.data() + c * stride();
      if (grad_weight) {
        copy_out_exact(grad_weight + c * taps, from, taps);
      }
      if (grad_bias) {
        grad_bias[c] = static_cast<scalar_t>(from[taps]);
      }
    }
  }

  template <typename scalar_t>
  static void copy_out_exact(scalar_t* to, const acc_t* from, int64_t n) {
    std::transform(from, from + n, to, [](acc_t x) { return static_cast<scalar_t>(x); });
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
        CorrelateArgs<acc_t> args{grads.data + j, grad_pitch, nullptr, pitch, n};
        args.mask = j + size <= g.output[1] ? whole.data() : last.data();
        for (const auto& tap : across.taps) {
          auto* to = vectors.data + tap.kernel * g.kernel[0] * kMostVectors * size;
          for (const auto& run : down.runs) {
            args.x = plane.data + down.taps[run.first].position * pitch + tap.position + j;
            args.sums = to + run.first * kMostVectors * size;
            args.sums_step = kMostVectors * size;
            if (is_wide) {
              correlate_run<acc_t, kMostVectors>(run.count, args);
            } else {
              correlate_run<acc_t, 1>(run.count, args);
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
            auto* result = sums.values.data() + (chunk * g.output_channels() + o) * sums.stride();
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
  sums.store(g, chunks.count, grad_weight, grad_bias);
}

template <typename scalar_t>
void backward_weight_channels_last(
    const Geometry& g,
    scalar_t* grad_weight,
    scalar_t* grad_bias,
    const scalar_t* grad,
    const scalar_t* in) {
  using acc_t = at::opmath_type<scalar_t>;
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t most_lanes = kMostVectors * Vec::size();
  const auto columns = forward_axis(g, 1, g.output[1]);
  auto rows = forward_axis(g, 0, g.output[0]);
  sort_by_base(rows);
  const auto& across = columns.phases[0];
  const auto& down = rows.phases[0];
  const auto taps = g.kernel[0] * g.kernel[1];
  const auto channels = g.output_channels();
  const auto [height, width] = g.output;
  const auto blocks = (channels + most_lanes - 1) / most_lanes;
  const Chunks chunks(g.batch * height, width);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = blocks * chunks.count;
  const auto products = g.batch * channels * height * width * taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    PackedRows<acc_t> packed(rows, (columns.length + kTile) * most_lanes);
    Scratch<acc_t> line(width * most_lanes + kMargin<acc_t>);
    // For each row of the kernel its taps in the order of their positions, and the bias.
    Scratch<acc_t> vectors((taps + 1) * most_lanes);
    std::array<acc_t, most_lanes> mask;
    fill_mask(mask.data(), most_lanes, most_lanes);

    for (const auto task : c10::irange(begin, end)) {
      const Lanes<acc_t> lanes(task / chunks.count * most_lanes, channels);
      const auto lane_width = lanes.width();
      const auto chunk = task % chunks.count;
      std::fill_n(vectors.data, (taps + 1) * most_lanes, acc_t(0));
      int64_t previous = -1;
      for (const auto r : c10::irange(chunk * chunks.size, std::min((chunk + 1) * chunks.size, g.batch * height))) {
        const auto image = r / height;
        const auto y = r % height;
        if (image != previous) {
          packed.forget();
          previous = image;
        }
        const auto* from = grad + r * width * channels;
        const acc_t* grads = line.data;
        auto grad_step = lane_width;
        if (std::is_same_v<scalar_t, acc_t> && lanes.is_whole()) {
          grads = reinterpret_cast<const acc_t*>(from) + lanes.first;
          grad_step = channels;
        } else {
          for (const auto j : c10::irange(width)) {
            pack_pixel(line.data + j * lane_width, from + j * channels, lanes, true, [&](int64_t l) {
              return lanes.first + l;
            });
          }
        }
        auto* total = vectors.data + taps * lane_width;
        for (int64_t l = 0; l < lane_width; l += Vec::size()) {
          auto sum = Vec::loadu(total + l);
          for (const auto j : c10::irange(width)) {
            sum = sum + Vec::loadu(grads + j * grad_step + l);
          }
          sum.store(total + l);
        }
        for (const auto t : c10::irange(grad_weight ? g.kernel[0] : 0)) {
          const auto iy = y * rows.step + down.taps[t].base;
          if (iy < 0 || iy >= rows.size) {
            continue;
          }
          const auto* x = packed.get(iy, t, [&](acc_t* to) {
            const auto* image_row = in + (image * rows.size + iy) * columns.size * g.channels;
            pack_pixels(to, image_row, g.channels, columns, lanes, g.multiplier == 1, [&](int64_t l) {
              return (lanes.first + l) / g.multiplier;
            });
          });
          for (const auto& run : across.runs) {
            CorrelateArgs<acc_t> args{grads, grad_step, x + across.taps[run.first].position * lane_width, lane_width};
            args.n = width;
            args.mask = mask.data();
            args.sums = vectors.data + (t * g.kernel[1] + run.first) * lane_width;
            args.sums_step = lane_width;
            if (lanes.vectors == 1) {
              correlate_run<acc_t, 1>(run.count, args);
            } else {
              correlate_run<acc_t, kMostVectors>(run.count, args);
            }
          }
        }
      }
      for (const auto l : c10::irange(lanes.count)) {
        auto* result = sums.values.data() + (chunk * channels + lanes.first + l) * sums.stride();
        for (const auto t : c10::irange(g.kernel[0])) {
          for (const auto k : c10::irange(g.kernel[1])) {
            result[down.taps[t].kernel * g.kernel[1] + across.taps[k].kernel] =
                vectors.data[(t * g.kernel[1] + k) * lane_width + l];
          }
        }
        result[taps] = vectors.data[taps * lane_width + l];
      }
    }
  });
  sums.store(g, chunks.count, grad_weight, grad_bias);
}

// ---- The kernels.

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
