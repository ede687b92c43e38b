#pragma once

#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

// How blocks of channels get from an image in NCHW or channels_last into the order [pixel][channel] and the type that
// DepthwiseConv2dTile.h computes in, and back.

namespace at::native::depthwise {
inline namespace CPU_CAPABILITY {

// Memory for n elements that begins at a cache line; its content is undefined.
template <typename acc_t>
class Scratch {
 public:
  explicit Scratch(int64_t n) : memory_(c10::GetCPUAllocator()->allocate(n * sizeof(acc_t))) {}
  acc_t* data() const {
    return static_cast<acc_t*>(memory_.get());
  }

 private:
  c10::DataPtr memory_;
};

// The channels that are computed together, in whole vectors. The last block begins earlier if need be: its first
// `shared` channels are those of the block before. If there are fewer channels than a vector has, nothing reads
// the lanes from `count` on.
template <typename acc_t>
struct Block {
  static constexpr int64_t size = vec::Vectorized<acc_t>::size();
  // Four cache lines of the type that is computed in.
  static constexpr int64_t most_lanes = 4 * 64 / sizeof(acc_t);

  int64_t first, count, lanes, shared;

  // The block from channel `first` on, of at most `most` channels.
  Block(int64_t first, int64_t most, int64_t channels) : first(first), count(std::min(channels - first, most)) {
    lanes = (count + size - 1) / size * size;
    shared = std::min(lanes - count, first);
    this->first -= shared;
    count += shared;
  }
  bool is_whole() const {
    return count == lanes;
  }
  // The number of channels in a block, at most `most`, with which the first block has whole vectors.
  static int64_t channels_of(int64_t channels, int64_t most) {
    return std::min(most, std::max(channels / size * size, size));
  }
};

// The channel that each lane reads, with a channel multiplier: (begin + lane) / repeat * step + offset.
struct ChannelMap {
  int64_t begin, repeat, step, offset;

  int64_t of(int64_t lane) const {
    return (begin + lane) / repeat * step + offset;
  }
};

// An image of some channels, in either format: how far neighbours are apart.
template <typename scalar_t>
struct Image {
  scalar_t* data;
  int64_t channel;
  int64_t pixel;
};

template <typename scalar_t>
Image<scalar_t> image_of(scalar_t* images, int64_t i, int64_t channels, int64_t pixels, bool is_channels_last) {
  auto* data = images + i * channels * pixels;
  return is_channels_last ? Image<scalar_t>{data, 1, channels} : Image<scalar_t>{data, pixels, 1};
}

// Convert n elements, whole vectors, to the type that is computed in, and back.
template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void load_converted(acc_t* to, const scalar_t* from, int64_t n) {
  using Vec = vec::Vectorized<acc_t>;
  for (int64_t i = 0; i < n; i += Vec::size()) {
    if constexpr (std::is_same_v<scalar_t, acc_t>) {
      Vec::loadu(from + i).store(to + i);
    } else {
      Vec elements;
      vec::load_to_float(from + i, elements);
      elements.store(to + i);
    }
  }
}

template <typename scalar_t, typename acc_t>
C10_ALWAYS_INLINE void store_converted(scalar_t* to, const acc_t* from, int64_t n) {
  using Vec = vec::Vectorized<acc_t>;
  constexpr int64_t size = Vec::size();
  if constexpr (std::is_same_v<scalar_t, acc_t>) {
    for (int64_t i = 0; i < n; i += size) {
      Vec::loadu(from + i).store(to + i);
    }
  } else {
    int64_t i = 0;
    for (; i + 2 * size <= n; i += 2 * size) {
      vec::convert_from_float<scalar_t>(Vec::loadu(from + i), Vec::loadu(from + i + size)).store(to + i);
    }
    if (i < n) {
      const auto last = Vec::loadu(from + i);
      vec::convert_from_float<scalar_t>(last, last).store(to + i, size);
    }
  }
}

// Transposes a square: as many vectors as a vector has elements.
template <typename acc_t>
C10_ALWAYS_INLINE void transpose_square(const acc_t* from, int64_t from_step, acc_t* to, int64_t to_step) {
  constexpr int size = vec::Vectorized<acc_t>::size();
  vec::transpose_mxn<acc_t, size, size>(from, from_step, to, to_step);
}

// Calls f with the start of each part of n elements. The last part overlaps the one before; `count` is at least n.
template <typename F>
C10_ALWAYS_INLINE void for_each_part(int64_t count, int64_t n, const F& f) {
  for (int64_t i = 0; i < count; i += n) {
    f(std::min(i, count - n));
  }
}

// Some neighbouring pixels of a block of channels to [pixel][lane].
template <typename scalar_t, typename acc_t>
void load_block(
    acc_t* to,
    const Image<const scalar_t>& image,
    const Block<acc_t>& block,
    const ChannelMap& map,
    int64_t pixels) {
  constexpr auto size = Block<acc_t>::size;
  const auto lanes = block.lanes;
  const auto lane = map.step * image.channel;
  const auto* from = image.data + map.of(0) * image.channel;
  const bool is_vector = block.is_whole() && map.repeat == 1;
  if (is_vector && lane == 1) {
    for (const auto p : c10::irange(pixels)) {
      load_converted(to + p * lanes, from + p * image.pixel, lanes);
    }
  } else if (is_vector && image.pixel == 1 && pixels >= size) {
    std::array<acc_t, size * size> square;
    for (int64_t l = 0; l < lanes; l += size) {
      for_each_part(pixels, size, [&](int64_t p) {
        const auto* corner = from + l * lane + p;
        if constexpr (std::is_same_v<scalar_t, acc_t>) {
          transpose_square(corner, lane, to + p * lanes + l, lanes);
        } else {
          for (const auto i : c10::irange(size)) {
            load_converted(square.data() + i * size, corner + i * lane, size);
          }
          transpose_square(square.data(), size, to + p * lanes + l, lanes);
        }
      });
    }
  } else {
    std::array<int64_t, Block<acc_t>::most_lanes> places{};
    for (const auto l : c10::irange(block.count)) {
      places[l] = map.of(l) * image.channel;
    }
    int64_t whole = 0;
    if (map.repeat == 1 && lane == 1 && lanes == size) {
      // Fewer channels than a vector has: the other lanes are those of the next pixels.
      for (; whole * image.pixel + size <= pixels * image.pixel; ++whole) {
        load_converted(to + whole * size, from + whole * image.pixel, size);
      }
    }
    for (const auto p : c10::irange(whole, pixels)) {
      for (const auto l : c10::irange(block.count)) {
        to[p * lanes + l] = static_cast<acc_t>(image.data[places[l] + p * image.pixel]);
      }
      std::fill(to + p * lanes + block.count, to + (p + 1) * lanes, acc_t(0));
    }
  }
}

// The reverse, without the channels that the block shares with the one before.
template <typename scalar_t, typename acc_t>
void store_block(const Image<scalar_t>& image, const acc_t* from, const Block<acc_t>& block, int64_t pixels) {
  constexpr auto size = Block<acc_t>::size;
  constexpr int64_t span = vec::Vectorized<scalar_t>::size();
  const auto lanes = block.lanes;
  if (block.is_whole() && image.channel == 1) {
    const auto own = block.count - block.shared;
    std::array<scalar_t, Block<acc_t>::most_lanes> converted;
    for (const auto p : c10::irange(pixels)) {
      auto* to = image.data + p * image.pixel;
      if (block.shared == 0) {
        store_converted(to, from + p * lanes, lanes);
      } else {
        store_converted(converted.data(), from + p * lanes, lanes);
        std::copy_n(converted.data() + block.shared, own, to + block.shared);
      }
    }
  } else if (block.is_whole() && image.pixel == 1 && pixels >= span) {
    std::array<acc_t, size * span> planes;
    for (int64_t l = 0; l < lanes; l += size) {
      for_each_part(pixels, span, [&](int64_t p) {
        const auto first = std::max<int64_t>(block.shared - l, 0);
        auto* to = image.data + l * image.channel + p;
        if (std::is_same_v<scalar_t, acc_t> && first == 0) {
          return transpose_square(from + p * lanes + l, lanes, reinterpret_cast<acc_t*>(to), image.channel);
        }
        for (int64_t i = 0; i < span; i += size) {
          transpose_square(from + (p + i) * lanes + l, lanes, planes.data() + i, span);
        }
        for (const auto i : c10::irange(first, size)) {
          store_converted(to + i * image.channel, planes.data() + i * span, span);
        }
      });
    }
  } else {
    for (const auto p : c10::irange(pixels)) {
      for (const auto l : c10::irange(block.shared, block.count)) {
        image.data[l * image.channel + p * image.pixel] = static_cast<scalar_t>(from[p * lanes + l]);
      }
    }
  }
}

} // namespace CPU_CAPABILITY
} // namespace at::native::depthwise
