#pragma once

#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/DepthwiseConv2dAxis.h>
#include <ATen/native/cpu/DepthwiseConv2dTile.h>
#include <ATen/native/cpu/LoadWithZeros.h>
#include <ATen/native/cpu/RoundHalf.h>
#include <ATen/native/cpu/Transpose.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

// How images get into the order and the type that DepthwiseConv2dTile.h computes in, and back.

namespace at::native {
inline namespace CPU_CAPABILITY {

// ---- Elements: half types are converted on the way.

// What a loop over whole vectors may read or write behind the end of scratch memory.
template <typename acc_t>
constexpr int64_t kMargin = 2 * kMostVectors * vec::Vectorized<acc_t>::size();

template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void store_converted(acc_t* to, const vec::Vectorized<scalar_t>& values) {
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    values.store(to);
  } else {
    const auto [low, high] = vec::convert_to_float<scalar_t>(values);
    low.store(to);
    high.store(to + low.size());
  }
}

// May write zeros behind the end, up to a whole vector from the last element on.
template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void copy_in(acc_t* to, const scalar_t* from, int64_t n) {
  using Vec = vec::Vectorized<scalar_t>;
  int64_t i = 0;
  for (; i + Vec::size() <= n; i += Vec::size()) {
    store_converted(to + i, Vec::loadu(from + i));
  }
  if constexpr (!std::is_same_v<scalar_t, acc_t>) {
    // Half a vector is read as such: with AVX2 one that is not whole goes through memory, element by element.
    constexpr auto half = vec::Vectorized<acc_t>::size();
    if (i + half <= n) {
      vec::Vectorized<acc_t> elements;
      vec::load_to_float(from + i, elements);
      elements.store(to + i);
      i += half;
    }
  }
  if (i < n) {
    store_converted(to + i, load_with_zeros(from + i, n - i));
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
      values = rounded<scalar_t>(AccVec::loadu(from + i), AccVec::loadu(from + i + AccVec::size()));
    }
    if (i + Vec::size() <= n) {
      values.store(to + i);
    } else {
      values.store(to + i, static_cast<int>(n - i));
    }
  }
}

// Memory that begins at a cache line.
template <typename acc_t>
struct Scratch {
  int64_t size;
  std::unique_ptr<acc_t[]> memory;
  acc_t* data;

  explicit Scratch(int64_t n) : size(n + kMargin<acc_t>), memory(new acc_t[size + 64 / sizeof(acc_t)]) {
    data = reinterpret_cast<acc_t*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64);
  }
  void clear() {
    std::fill_n(data, size, acc_t(0));
  }
};

// So many tasks that a thread has work for some microseconds in each.
inline int64_t grain_size(int64_t tasks, int64_t products) {
  constexpr int64_t least = 1 << 17;
  return std::max<int64_t>(1, least * tasks / std::max<int64_t>(products, 1));
}

inline int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// As many rows at a time as keep what is packed in the first-level cache.
inline int64_t strip_height(int64_t row_bytes) {
  constexpr int64_t cache = 1 << 15;
  return std::max<int64_t>(cache / std::max<int64_t>(row_bytes, 1) / kTile, 2) * kTile;
}

// ---- Memory: a processor foresees what is read one behind the other, but not a block of channels of pixel after
// pixel, of which it takes from memory half as much at a time. And a line that is written is read first, unless it is
// streamed.

// Where a part of what lies between two places begins.
template <typename T>
T* part_of(T* begin, T* end, int64_t part, int64_t parts) {
  return begin + (end - begin) * part / parts;
}

// Fetches what is read or written next, at two places, each in the order of memory. It does so in small steps between
// those of the computation, since no more than some lines can be on their way at a time, and into the second-level
// cache, since fewer can be on their way to the first one.
class Ahead {
 public:
  // Where the places begin.
  void start(const void* a, const void* b) {
    ranges_[0].next = static_cast<const char*>(a);
    ranges_[1].next = static_cast<const char*>(b);
  }
  // What is to be fetched in so many steps: from where it ended before up to a and b; nothing where there is a nullptr.
  void aim(const void* a, const void* b, int64_t steps) {
    ranges_[0].aim(a, steps);
    ranges_[1].aim(b, steps);
  }
  // The same for one of so many parts of what begins at a and at b.
  template <typename A, typename B>
  void take_part(A* a, int64_t a_size, B* b, int64_t b_size, int64_t part, int64_t parts, int64_t steps) {
    start(part_of(a, a + a_size, part, parts), part_of(b, b + b_size, part, parts));
    aim(part_of(a, a + a_size, part + 1, parts), part_of(b, b + b_size, part + 1, parts), steps);
  }
  void step() {
    ranges_[0].step();
    ranges_[1].step();
  }

 private:
  struct Range {
    const char* next = nullptr;
    const char* end = nullptr;
    int64_t share = 0;

    void aim(const void* to, int64_t steps) {
      end = to ? static_cast<const char*>(to) : next;
      share = end > next ? (end - next) / std::max<int64_t>(steps, 1) + 1 : 0;
    }
    void step() {
      constexpr int64_t line = 64;
      const auto* last = share < end - next ? next + share : end;
      for (; next < last; next += line) {
        __builtin_prefetch(next, 0, 2);
      }
    }
  };

  std::array<Range, 2> ranges_;
};

// How far away images are that are read and written. The limits were found by measuring: what is near enough does not
// gain.
struct Traffic {
  // Whether to fetch them ahead: what is next was not read lately. Planes sooner, which are not interrupted for it:
  // what was not read lately takes up to a third less time, what was a thirtieth more.
  bool is_ahead;
  bool are_planes_ahead;
  // In channels_last, whether to take all blocks of channels of an image before the next image, or even of a row: where
  // the caches hold few of the images, or not even one and the rows that are read again.
  bool is_by_images;
  bool is_by_rows;

  // Args:
  //   images: how many.
  //   in_image, out_image: the bytes of one.
  //   near_rows: the bytes of the packed rows that an output row reads.
  Traffic(int64_t images, int64_t in_image, int64_t out_image, double near_rows) {
    constexpr int64_t own_cache = 1 << 20;
    const auto bytes = images * (in_image + out_image);
    const bool is_image_near = in_image <= own_cache / 4;
    is_ahead = bytes > 8 * own_cache;
    are_planes_ahead = bytes > 2 * own_cache;
    is_by_images = is_ahead && is_image_near;
    is_by_rows = bytes > 16 * own_cache && !is_image_near && near_rows <= own_cache;
  }
};

// The bytes of the packed rows of which one output's row takes some, which may be more than 64 bits count.
template <typename acc_t>
double near_rows(const DepthwiseConv2dGeometry& g, int64_t columns, int64_t lanes) {
  const auto rows = static_cast<double>(g.dilation[0] * (g.kernel[0] - 1) + 1);
  return rows * static_cast<double>(columns) * static_cast<double>(lanes) * sizeof(acc_t);
}

// ---- Contiguous: a vector's elements are columns of a plane.

// The elements 0, 2, 4, ... of `from`, n of them.
template <typename acc_t>
C10_ALWAYS_INLINE void copy_every_second(acc_t* to, const acc_t* from, int64_t n) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  int64_t j = 0;
  for (; j + size < n; j += size) {
    vec::deinterleave2(Vec::loadu(from + 2 * j), Vec::loadu(from + 2 * j + size)).first.store(to + j);
  }
  for (; j < n; j += size) {
    const auto rest = 2 * (n - j) - 1;
    const auto low = rest >= size ? Vec::loadu(from + 2 * j) : Vec::loadu(from + 2 * j, static_cast<int>(rest));
    const auto high = rest >= 2 * size ? Vec::loadu(from + 2 * j + size)
        : rest > size                  ? Vec::loadu(from + 2 * j + size, static_cast<int>(rest - size))
                                       : Vec(acc_t(0));
    vec::deinterleave2(low, high).first.store(to + j);
  }
}

// The elements 0, 2, 4, ... of `from` to `even` and the others to `odd`, n of each, which are at least a vector.
template <typename acc_t>
C10_ALWAYS_INLINE void part_pairs(acc_t* even, acc_t* odd, const acc_t* from, int64_t n) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  for (int64_t j = 0; j < n; j += size) {
    const auto i = std::min(j, n - size);
    const auto [a, b] = vec::deinterleave2(Vec::loadu(from + 2 * i), Vec::loadu(from + 2 * i + size));
    a.store(even + i);
    b.store(odd + i);
  }
}

// Columns whose spacing is 2: the first `count` of both segments, taken in turn, are neighbours in the image, from
// `from` on.
struct ColumnPairs {
  int64_t count = 0;
  int64_t from = 0;
  int64_t even = 0;
  int64_t odd = 0;

  ColumnPairs(const Axis& columns, int64_t least) {
    if (columns.spacing != 2 || columns.segments.size() != 2) {
      return;
    }
    const auto& a = columns.segments[0];
    const auto& b = columns.segments[1];
    from = a.source + 2 * a.first;
    even = a.start + a.first;
    odd = b.start + b.first;
    const auto n = std::min(a.last - a.first, b.last - b.first);
    count = b.source + 2 * b.first == from + 1 && n >= least ? n : 0;
  }
};

// Packs a row of columns whose spacing is 2.
template <typename acc_t>
C10_ALWAYS_INLINE void pack_every_second(acc_t* to, const acc_t* row, const Axis& columns, const ColumnPairs& pairs) {
  for (const auto& segment : columns.segments) {
    const auto first = segment.first + pairs.count;
    if (first < segment.last) {
      copy_every_second(to + segment.start + first, row + segment.source + 2 * first, segment.last - first);
    }
  }
  // Last, since behind its end the above writes zeros over what is next.
  if (pairs.count > 0) {
    part_pairs(to + pairs.even, to + pairs.odd, row + pairs.from, pairs.count);
  }
}

// Packs a row of columns, into memory whose zeros are there.
template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void
pack_columns(acc_t* to, const scalar_t* row, const Axis& columns, const ColumnPairs& pairs, acc_t* buffer) {
  const acc_t* converted = nullptr;
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    converted = row;
  } else if (columns.spacing > 1) {
    copy_in(buffer, row, columns.size);
    converted = buffer;
  }
  if (columns.spacing == 2) {
    return pack_every_second(to, converted, columns, pairs);
  }
  for (const auto& segment : columns.segments) {
    if (segment.first == segment.last) {
      continue;
    }
    auto* start = to + segment.start;
    if (columns.spacing == 1) {
      // Behind the end this writes zeros, over zeros or over what is packed next.
      copy_in(start + segment.first, row + segment.source + segment.first, segment.last - segment.first);
    } else {
      for (auto j = segment.first; j < segment.last; ++j) {
        start[j] = converted[segment.source + j * columns.spacing];
      }
    }
  }
}

// Packs the rows that the outputs from `first` on take, into memory that is all zeros or holds another image's: the
// zeros round the image stay, unless the strips are several. A step of `ahead` comes with each row.
template <typename scalar_t, typename acc_t>
void pack_plane(
    acc_t* to,
    const scalar_t* plane,
    const Axis& rows,
    const Axis& columns,
    int64_t first,
    bool is_only,
    acc_t* buffer,
    Ahead& ahead) {
  const ColumnPairs pairs(columns, vec::Vectorized<acc_t>::size());
  for (const auto& segment : rows.segments) {
    // A strip at the end has fewer outputs; what it does not need may be beyond the image by far.
    const auto source = segment.source + first * rows.step;
    const auto inside = inside_of(rows, source, segment.length);
    for (const auto i : c10::irange(segment.length)) {
      auto* row = to + (segment.start + i) * columns.length;
      if (i >= inside.first && i < inside.last) {
        pack_columns(row, plane + (source + i * rows.spacing) * columns.size, columns, pairs, buffer);
      } else if (!is_only) {
        std::fill(row, row + columns.length, acc_t(0));
      }
      ahead.step();
    }
  }
}

// ---- channels_last: a vector's elements are channels.

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
  // From pixels as they are, without reading beyond them.
  bool can_be_read() const {
    return kHasMasks || is_whole();
  }
};

// Which channel of a pixel each lane takes: lane l that at (begin + l) / repeat * step + offset.
struct LaneChannels {
  int64_t begin;
  int64_t repeat;
  int64_t step;
  int64_t offset;

  int64_t of(int64_t l) const {
    return (begin + l) / repeat * step + offset;
  }
  bool are_neighbours() const {
    return repeat == 1 && step == 1;
  }
  // Whether vectors can be made by interleaving one with itself.
  bool can_interleave(int64_t size) const {
    return step == 1 && repeat <= size && (repeat & (repeat - 1)) == 0 && begin % repeat == 0;
  }
};

// The lanes of a pixel, where each element is taken 2 ** doublings times.
template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void repeat_elements(acc_t* to, const scalar_t* from, int64_t lanes, int doublings) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  for (int64_t l = 0; l < lanes; l += size) {
    const auto loaded = load_with_zeros(from + (l >> doublings), std::min(size, lanes - l) >> doublings);
    Vec elements;
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      elements = loaded;
    } else {
      elements = std::get<0>(vec::convert_to_float<scalar_t>(loaded));
    }
    for (int i = 0; i < doublings; ++i) {
      elements = vec::interleave2(elements, elements).first;
    }
    elements.store(to + l);
  }
}

// n pixels, `step` apart, each filled up with zeros.
template <typename scalar_t, typename acc_t>
void pack_pixels(
    acc_t* to,
    const scalar_t* pixel,
    int64_t step,
    int64_t n,
    const Lanes<acc_t>& lanes,
    const LaneChannels& channels) {
  constexpr auto size = Lanes<acc_t>::size;
  constexpr int64_t most = kMostVectors * size;
  const auto width = lanes.width(), count = lanes.count;
  const auto* first = pixel + channels.of(0);
  const auto for_each_pixel = [&](const auto& pack) {
    for (const auto j : c10::irange(n)) {
      pack(to + j * width, first + j * step);
    }
  };
  if (channels.are_neighbours()) {
    if (count == most) {
      for_each_pixel([](acc_t* to, const scalar_t* from) { copy_in(to, from, most); });
    } else if (count == size) {
      for_each_pixel([](acc_t* to, const scalar_t* from) { copy_in(to, from, size); });
    } else {
      for_each_pixel([&](acc_t* to, const scalar_t* from) { copy_in(to, from, count); });
    }
    return;
  }
  if (channels.can_interleave(size) && count % channels.repeat == 0) {
    int doublings = 0;
    while (int64_t{1} << doublings < channels.repeat) {
      ++doublings;
    }
    return for_each_pixel([&](acc_t* to, const scalar_t* from) { repeat_elements(to, from, count, doublings); });
  }
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    if (channels.repeat == 1 && channels.step == 2) {
      return for_each_pixel([&](acc_t* to, const scalar_t* from) { copy_every_second(to, from, count); });
    }
  }
  // They take a division each.
  std::array<int64_t, most> places;
  for (const auto l : c10::irange(count)) {
    places[l] = channels.of(l) - channels.of(0);
  }
  for_each_pixel([&](acc_t* to, const scalar_t* from) {
    for (const auto l : c10::irange(count)) {
      to[l] = static_cast<acc_t>(from[places[l]]);
    }
    std::fill(to + count, to + width, acc_t(0));
  });
}

// A row of an image, `channels` from one pixel to the next.
template <typename scalar_t, typename acc_t>
void pack_row(
    acc_t* to,
    const scalar_t* row,
    int64_t channels,
    const Axis& columns,
    const Lanes<acc_t>& lanes,
    const LaneChannels& lane_channels) {
  const auto width = lanes.width();
  for (const auto& segment : columns.segments) {
    auto* start = to + segment.start * width;
    std::fill(start, start + segment.first * width, acc_t(0));
    if (segment.first < segment.last) {
      pack_pixels(
          start + segment.first * width,
          row + (segment.source + segment.first * columns.spacing) * channels,
          columns.spacing * channels,
          segment.last - segment.first,
          lanes,
          lane_channels);
    }
    std::fill(start + segment.last * width, start + segment.length * width, acc_t(0));
  }
}

// Keeps packed rows of an image, so that each is packed once where the rows that are needed at a time are near.
template <typename acc_t>
struct PackedRows {
  int64_t span = 0;
  bool is_ring;
  int64_t row_size;
  int64_t size;
  std::optional<Scratch<acc_t>> memory; // made where rows are packed at all
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
        size((is_ring ? span : most_taps(rows)) * row_size + kTile * kMargin<acc_t>),
        held(is_ring ? span : most_taps(rows)) {
    forget();
  }

  void forget() {
    std::fill(held.begin(), held.end(), -1);
  }

  // Row y, for tap t; pack(memory) fills it.
  template <typename F>
  const acc_t* get(int64_t y, int64_t t, const F& pack) {
    if (!memory) {
      memory.emplace(size);
    }
    const auto slot = is_ring ? y % span : t;
    auto* row = memory->data + slot * row_size;
    if (held[slot] != y) {
      pack(row);
      held[slot] = y;
    }
    return row;
  }
};

// Taps by base, so that those inside of the image are neighbours.
inline Axis by_base(Axis axis) {
  for (auto& phase : axis.phases) {
    std::sort(phase.taps.begin(), phase.taps.end(), [](const Tap& a, const Tap& b) { return a.base < b.base; });
  }
  return axis;
}

// An image whose channels are neighbours.
//
// Args:
//   step: from one pixel to the next.
//   first: the channel that the data begin with.
//   is_streamed: they are written past the caches.
template <typename T>
struct Pixels {
  T* data;
  int64_t step;
  int64_t first;
  bool is_streamed = false;
};

// ---- Contiguous images that are small: turned round, so that their channels are neighbours while they are computed.

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

// Planes that are turned round: where there are channels enough to fill vectors, the planes are so narrow that most of
// their rows are edges, and a block of channels stays in the cache.
inline bool is_small(const DepthwiseConv2dGeometry& g) {
  const auto most = std::max({g.input[0], g.input[1], g.output[0], g.output[1]});
  return g.multiplier == 1 && g.channels >= 8 && most <= 56 && std::min(g.input[1], g.output[1]) < 32;
}

inline bool is_channels_last(const TensorBase& images) {
  return !images.is_contiguous();
}

} // namespace CPU_CAPABILITY
} // namespace at::native
