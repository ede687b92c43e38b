#pragma once

#include <ATen/native/DepthwiseConv2d.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace at::native {
inline namespace CPU_CAPABILITY {

// How one axis of a depthwise convolution is laid out for loops that know neither stride nor dilation nor padding.
//
// Output o takes of the image that is read the elements o * step + base, one for each tap. Where they are not read from
// the image itself they are copied ("packed") so that each tap's elements lie one behind the other, starting at the
// tap's position: then output o takes the elements position + o. Elements outside of the image are packed as zeros, and
// not read from the image. Taps share what they can.
//
// With step 2 and neighbouring taps that parts the image into its even and its odd elements, each with some of the
// taps. Where elements are whole vectors they need not be parted: output o takes position + o * packed_step, and all
// taps are one run.
//
// The gradient of the input is such a convolution, too: it reads the gradient of the output with step 1, and has as
// many sets of taps as the stride, the phases. Phase f makes the elements f, f + stride, f + 2 * stride, ... A dilated
// convolution with stride 1 has as many phases as the dilation.

// Taps at consecutive positions are computed together, at most so many: their weights stay in registers.
constexpr int64_t kLongestRun = 7;
// With this step they are, too; beyond it too little of what is read would be used.
constexpr int64_t kLongestStep = 2;

struct Tap {
  int64_t kernel; // which element of the kernel
  int64_t base;
  int64_t position;
};

// Of elements that are counted, those inside of the image: from first to last, which is the first one that is not.
struct Inside {
  int64_t first = 0;
  int64_t last = 0;
};

// Packed elements from start on: those of the image at source, source + spacing, ...
struct Segment : Inside {
  int64_t source;
  int64_t start;
  int64_t length;

  Segment(int64_t source, int64_t start, int64_t length) : source(source), start(start), length(length) {}
};

// The taps first, first + 1, ... of a phase, at consecutive positions.
struct Run {
  int64_t first;
  int64_t count;
};

struct Phase {
  int64_t first; // the first element that it makes
  int64_t count;
  std::vector<Tap> taps; // by position, where one phase has one remainder of base by spacing; then base grows, too
  std::vector<Run> runs;
};

struct Axis {
  int64_t size; // of the image that is read
  int64_t step;
  int64_t stride;     // from one element that a phase makes to the next
  int64_t length = 0; // packed
  std::vector<Segment> segments;
  std::vector<Phase> phases;
  bool are_phases_alike = false; // each has the same taps, only at other positions
  int64_t packed_step = 1;       // from one output of a phase to the next, in packed elements
  int64_t spacing = step;        // between neighbours of what is packed, in the image: step / packed_step
  int64_t most_base = std::numeric_limits<int64_t>::min();

  // One past the last element of the image that the outputs up to o read.
  int64_t end(int64_t o) const {
    return std::clamp<int64_t>(o / stride * step + most_base + 1, 0, size);
  }

  // Whether taps or outputs are so far apart that places in an image may be beyond 64 bits.
  bool is_far() const {
    constexpr int64_t most = int64_t{1} << 31;
    return step > most || std::any_of(phases.begin(), phases.end(), [](const Phase& phase) {
             return std::any_of(phase.taps.begin(), phase.taps.end(), [](const Tap& tap) {
               return tap.base > most || tap.base < -most;
             });
           });
  }
};

inline int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// Which of the `length` elements source, source + spacing, ... are inside of the image.
inline Inside inside_of(const Axis& axis, int64_t source, int64_t length) {
  const auto begin = source >= 0 ? 0 : (-source - 1) / axis.spacing + 1;
  const auto end = source >= axis.size ? 0 : floor_div(axis.size - 1 - source, axis.spacing) + 1;
  const auto first = std::min(begin, length);
  return {first, std::clamp(end, first, length)};
}

// Of a run's taps the elements are neighbours where they are packed and in the image, too, from which some are read as
// they are. Segments of one element lie side by side though their elements may not.
inline void add_runs(Phase& phase, int64_t spacing) {
  const auto taps = static_cast<int64_t>(phase.taps.size());
  const auto continues = [&](const Tap& previous, const Tap& tap) {
    return tap.position == previous.position + 1 && tap.base == previous.base + spacing;
  };
  for (int64_t first = 0, end = 0; first < taps; first = end) {
    for (end = first + 1; end < taps && continues(phase.taps[end - 1], phase.taps[end]);) {
      ++end;
    }
    // Equal parts: 9 taps are 5 and 4.
    for (auto parts = (end - first + kLongestRun - 1) / kLongestRun; parts > 0; --parts) {
      const auto count = (end - first + parts - 1) / parts;
      phase.runs.push_back({first, count});
      first += count;
    }
  }
}

// Gives every tap its position, for at most `most` outputs of a phase at a time.
inline void lay_out(Axis& axis, int64_t most) {
  const auto elements = (most - 1) * axis.packed_step + 1;
  std::vector<Tap*> taps;
  for (auto& phase : axis.phases) {
    for (auto& tap : phase.taps) {
      taps.push_back(&tap);
    }
  }
  const auto quotient = [&](const Tap* tap) { return floor_div(tap->base, axis.spacing); };
  const auto remainder = [&](const Tap* tap) { return tap->base - quotient(tap) * axis.spacing; };
  std::sort(taps.begin(), taps.end(), [&](const Tap* a, const Tap* b) {
    return std::pair(remainder(a), a->base) < std::pair(remainder(b), b->base);
  });
  const Tap* previous = nullptr;
  for (auto* tap : taps) {
    axis.most_base = std::max(axis.most_base, tap->base);
    const auto gap = previous ? quotient(tap) - quotient(previous) : 0;
    if (previous && remainder(tap) == remainder(previous) && gap <= elements) {
      tap->position = previous->position + gap;
      axis.segments.back().length += gap;
    } else {
      tap->position = axis.length;
      axis.segments.push_back({tap->base, axis.length, elements});
    }
    axis.length = axis.segments.back().start + axis.segments.back().length;
    previous = tap;
  }
  for (auto& segment : axis.segments) {
    static_cast<Inside&>(segment) = inside_of(axis, segment.source, segment.length);
  }
  for (auto& phase : axis.phases) {
    std::sort(phase.taps.begin(), phase.taps.end(), [](const Tap& a, const Tap& b) { return a.position < b.position; });
    add_runs(phase, axis.spacing);
  }
}

// Moves what is packed so that of each segment the part inside of the image begins at a multiple of n: then rows are
// packed by whole vectors none of which crosses a cache line, but for the last one where it overlaps the one before.
inline void align_segments(Axis& axis, int64_t n) {
  std::vector<int64_t> starts;
  int64_t end = 0;
  for (const auto& segment : axis.segments) {
    starts.push_back((end + segment.first + n - 1) / n * n - segment.first);
    end = starts.back() + segment.length;
  }
  axis.length = (end + n - 1) / n * n;
  for (auto& phase : axis.phases) {
    for (auto& tap : phase.taps) {
      const auto is_before = [](int64_t position, const Segment& segment) { return position < segment.start; };
      const auto next = std::upper_bound(axis.segments.begin(), axis.segments.end(), tap.position, is_before);
      const auto i = next - axis.segments.begin() - 1;
      tap.position += starts[i] - axis.segments[i].start;
    }
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    axis.segments[i].start = starts[i];
  }
}

// The axis of the convolution itself: 0 is the height. With can_step, elements are not parted where that is worth it.
inline Axis forward_axis(const DepthwiseConv2dGeometry& g, size_t i, int64_t most, bool can_step = false) {
  // With one output there is no step, so that a large stride is as good as none.
  Axis axis{g.input[i], g.output[i] > 1 ? g.stride[i] : 1, 1};
  const bool are_neighbours = g.dilation[i] == 1 && g.kernel[i] > 1;
  if (can_step && are_neighbours && axis.step <= kLongestStep) {
    axis.packed_step = axis.step;
    axis.spacing = 1;
  }
  axis.phases.push_back({0, g.output[i]});
  for (int64_t k = 0; k < g.kernel[i]; ++k) {
    axis.phases[0].taps.push_back({k, k * g.dilation[i] - g.padding[i], 0});
  }
  lay_out(axis, std::min(most, g.output[i]));
  return axis;
}

// The axis of a dilated convolution with stride 1, or of the gradient of its input. Every dilation-th output is of one
// phase, in which the taps are neighbours: of every dilation-th element. There are no fewer outputs than phases.
inline Axis dilated_axis(const DepthwiseConv2dGeometry& g, size_t i, int64_t most, bool is_backward) {
  const auto size = is_backward ? g.output[i] : g.input[i], count = is_backward ? g.input[i] : g.output[i];
  Axis axis{size, g.dilation[i], g.dilation[i]};
  axis.are_phases_alike = true;
  for (int64_t f = 0; f < g.dilation[i]; ++f) {
    Phase phase{f, (count - f - 1) / g.dilation[i] + 1};
    for (int64_t k = 0; k < g.kernel[i]; ++k) {
      const auto distance = k * g.dilation[i] - g.padding[i];
      phase.taps.push_back({k, f + (is_backward ? -distance : distance), 0});
    }
    axis.phases.push_back(std::move(phase));
  }
  lay_out(axis, std::min(most, axis.phases[0].count));
  return axis;
}

// The axis of the gradient of the input.
inline Axis backward_axis(const DepthwiseConv2dGeometry& g, size_t i, int64_t most) {
  const auto phases = std::min(g.stride[i], g.input[i]);
  Axis axis{g.output[i], 1, phases};
  for (int64_t f = 0; f < phases; ++f) {
    Phase phase{f, (g.input[i] - f - 1) / g.stride[i] + 1};
    for (int64_t k = 0; k < g.kernel[i]; ++k) {
      const auto distance = f + g.padding[i] - k * g.dilation[i];
      if (distance % g.stride[i] == 0) {
        phase.taps.push_back({k, distance / g.stride[i], 0});
      }
    }
    axis.phases.push_back(std::move(phase));
  }
  lay_out(axis, std::min(most, axis.phases[0].count));
  return axis;
}

} // namespace CPU_CAPABILITY
} // namespace at::native
