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

// The gradients of weight and bias. Sums over images and rows are split into chunks that the sizes alone
// determine, so that the result does not depend on the number of threads.

struct Chunks {
  int64_t size;
  int64_t count;

  // Args: how many things there are, how many pixels each has, and about how many pixels a chunk has at least.
  Chunks(int64_t things, int64_t pixels, int64_t least_pixels) {
    constexpr int64_t most = 64;
    const auto least = std::max(divide_up(things, most), divide_up(least_pixels, pixels));
    // As large as each other, as far as it goes.
    size = divide_up(things, divide_up(things, std::min(least, things)));
    count = divide_up(things, size);
  }
};

// partials holds `count` times n numbers, `pitch` apart; their sums, by pairs, go to the first n.
template <typename acc_t>
void add_partials(acc_t* partials, int64_t count, int64_t pitch, int64_t n) {
  for (int64_t step = 1; step < count; step *= 2) {
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      auto* to = partials + i * pitch;
      const auto* from = to + step * pitch;
      for (const auto j : c10::irange(n)) {
        to[j] += from[j];
      }
    }
  }
}

template <typename acc_t, int V, bool has_edges, typename... Args>
C10_ALWAYS_INLINE void correlate_run(int64_t taps, Args... args) {
  static constexpr std::array functions = {
      correlate<acc_t, 1, V, has_edges>,
      correlate<acc_t, 2, V, has_edges>,
      correlate<acc_t, 3, V, has_edges>,
      correlate<acc_t, 4, V, has_edges>,
      correlate<acc_t, 5, V, has_edges>,
      correlate<acc_t, 6, V, has_edges>,
      correlate<acc_t, 7, V, has_edges>};
  static_assert(functions.size() == kLongestRun);
  functions[taps - 1](args...);
}

template <typename acc_t>
acc_t sum_of(const vec::Vectorized<acc_t>& lanes) {
  return vec::vec_reduce_all<acc_t>([](auto& a, auto& b) { return a + b; }, lanes);
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
    const auto grain = grain_size(channels, static_cast<int64_t>(values.size()));
    at::parallel_for(0, channels, grain, [&](int64_t begin, int64_t end) {
      add_partials(of(0, begin), chunks, channels * (taps + 1), (end - begin) * (taps + 1));
      for (const auto c : c10::irange(begin, end)) {
        const auto* from = of(0, c);
        if (grad_weight) {
          std::transform(from, from + taps, grad_weight + c * taps, [](acc_t x) { return static_cast<scalar_t>(x); });
        }
        if (grad_bias) {
          grad_bias[c] = static_cast<scalar_t>(from[taps]);
        }
      }
    });
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
  auto columns = forward_axis(g, 1, g.output[1]);
  align_segments(columns, size);
  const auto pitch = columns.length;
  const auto height = strip_height(pitch * static_cast<int64_t>(sizeof(acc_t)));
  const auto rows = forward_axis(g, 0, height);
  const auto& down = rows.phases[0];
  const auto& across = columns.phases[0];
  const auto taps = g.kernel[0] * g.kernel[1];
  // The gradient's rows are filled up with zeros to whole vectors.
  const auto grad_pitch = (g.output[1] + size - 1) / size * size;
  const auto in_plane = rows.size * columns.size, grad_planes = g.output[0] * g.output[1] * g.multiplier;
  const auto bytes = static_cast<int64_t>(sizeof(scalar_t));
  const Traffic traffic(g.batch * g.channels, in_plane * bytes, grad_planes * bytes, 0);
  const Chunks chunks(g.batch, g.output[0] * g.output[1], 2048);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = g.channels * chunks.count;
  const auto products = g.batch * g.output_channels() * g.output[0] * g.output[1] * taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    Scratch<acc_t> plane((rows.length + kTile) * pitch + kMargin<acc_t>);
    plane.clear();
    Scratch<acc_t> grads(std::min(height, g.output[0]) * grad_pitch + kMargin<acc_t>);
    Scratch<acc_t> buffer(g.input[1]);
    Scratch<acc_t> vectors((taps + 1) * kMostVectors * size);

    // Adds what one strip of one output channel gives; n rows.
    const auto correlate_strip = [&](int64_t n, acc_t* result) {
      std::fill_n(vectors.data, (taps + 1) * kMostVectors * size, acc_t(0));
      // Vectors of the narrow columns at the end go into the first lanes.
      for (int64_t j = 0; j < grad_pitch;) {
        const bool is_wide = kMostVectors > 1 && j + kMostVectors * size <= g.output[1];
        const auto lanes = std::min(is_wide ? kMostVectors * size : size, g.output[1] - j);
        constexpr auto step = kMostVectors * size;
        for (const auto& tap : across.taps) {
          for (const auto& run : down.runs) {
            const auto* x = plane.data + down.taps[run.first].position * pitch + tap.position + j;
            auto* to = vectors.data + (tap.kernel * g.kernel[0] + run.first) * step;
            if (is_wide) {
              correlate_run<acc_t, kMostVectors, false>(
                  run.count, grads.data + j, grad_pitch, x, pitch, n, Inside{}, lanes, to, step);
            } else {
              correlate_run<acc_t, 1, false>(
                  run.count, grads.data + j, grad_pitch, x, pitch, n, Inside{}, lanes, to, step);
            }
          }
        }
        j += is_wide ? kMostVectors * size : size;
      }
      for (const auto x : c10::irange(g.kernel[1])) {
        for (const auto k : c10::irange(g.kernel[0])) {
          const auto* from = vectors.data + (x * g.kernel[0] + k) * kMostVectors * size;
          auto sum = Vec::loadu(from);
          for (int64_t i = size; i < kMostVectors * size; i += size) {
            sum = sum + Vec::loadu(from + i);
          }
          result[down.taps[k].kernel * g.kernel[1] + x] += sum_of(sum);
        }
      }
    };

    const auto first_image = [&](int64_t task) { return task % chunks.count * chunks.size; };
    const auto images_end = [&](int64_t task) { return std::min(first_image(task) + chunks.size, g.batch); };
    for (const auto task : c10::irange(begin, end)) {
      const auto channel = task / chunks.count;
      const auto chunk = task % chunks.count;
      for (const auto image : c10::irange(first_image(task), images_end(task))) {
        for (int64_t first = 0; first < g.output[0]; first += height) {
          const auto n = std::min(height, g.output[0] - first);
          const auto* from = in + (image * g.channels + channel) * in_plane;
          Ahead ahead;
          const bool is_last_image = image + 1 == images_end(task);
          if (traffic.are_planes_ahead && !(is_last_image && task + 1 == end)) {
            const auto next = is_last_image ? first_image(task + 1) * g.channels + (task + 1) / chunks.count
                                            : (image + 1) * g.channels + channel;
            const auto part = first / height, parts = divide_up(g.output[0], height);
            const auto *next_in = in + next * in_plane, *next_grad = grad + next * grad_planes;
            ahead.take_part(next_in, in_plane, next_grad, grad_planes, part, parts, rows.length);
          }
          pack_plane(plane.data, from, rows, columns, first, height >= g.output[0], buffer.data, ahead);
          for (const auto o : c10::irange(channel * g.multiplier, (channel + 1) * g.multiplier)) {
            const auto* lines = grad + ((image * g.output_channels() + o) * g.output[0] + first) * g.output[1];
            auto* result = sums.of(chunk, o);
            Vec total(acc_t(0));
            for (const auto y : c10::irange(n)) {
              auto* line = grads.data + y * grad_pitch;
              copy_in(line, lines + y * g.output[1], g.output[1]);
              std::fill(line + g.output[1], line + grad_pitch, acc_t(0));
              Vec of_line(acc_t(0));
              for (int64_t j = 0; j < grad_pitch; j += size) {
                of_line = of_line + Vec::loadu(line + j);
              }
              total = total + of_line;
            }
            result[taps] += sum_of(total);
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

struct GradientPlan {
  const Geometry& g;
  Axis columns;
  Axis rows;
  // For each run of the columns which of the elements that a row reads are inside of the image.
  std::vector<Inside> inside;
  // Whether rows cannot be read as they are, or so few outputs read no edge that to pack them costs less.
  bool must_pack;

  explicit GradientPlan(const Geometry& g)
      : g(g), columns(forward_axis(g, 1, g.output[1])), rows(by_base(forward_axis(g, 0, g.output[0]))) {
    const auto& across = columns.phases[0];
    must_pack = g.multiplier > 1 || columns.is_far();
    for (const auto& run : across.runs) {
      const auto elements = inside_of(columns, across.taps[run.first].base, across.count + run.count - 1);
      inside.push_back(elements);
      must_pack = must_pack || 2 * (elements.last - elements.first - run.count + 1) < across.count;
    }
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
        sums_((taps_ + 1) * most_lanes),
        totals_((taps_ + 1) * most_lanes),
        ordered_((taps_ + 1) * most_lanes) {}

  void clear() {
    std::fill_n(sums_.data, (taps_ + 1) * most_lanes, acc_t(0));
    pixels_ = 0;
    has_totals_ = false;
  }

  // Before the rows of another image.
  void forget() {
    packed_.forget();
  }

  // Adds row y of the output of an image. Takes steps of `ahead`: for the weight one for each of the kernel's rows, for
  // the bias alone one.
  template <typename T>
  void
  add(const Lanes<acc_t>& lanes,
      Pixels<const T> grads,
      Pixels<const T> in,
      int64_t y,
      bool of_weight,
      bool of_bias,
      Ahead& ahead) {
    const auto width = plan_.g.output[1];
    const auto* from = grads.data + y * width * grads.step;
    const acc_t* line = line_.data;
    auto step = lanes.width();
    if (std::is_same_v<T, acc_t> && lanes.can_be_read()) {
      line = reinterpret_cast<const acc_t*>(from) + lanes.first - grads.first;
      step = grads.step;
    } else {
      pack_pixels(line_.data, from, grads.step, width, lanes, {lanes.first, 1, 1, -grads.first});
    }
    if (of_bias) {
      add_bias(lanes, line, step);
    }
    if (of_weight) {
      add_weight(lanes, line, step, in, y, ahead);
    } else {
      ahead.step();
    }
    // An error goes with the number of terms: sums of many pixels are sums of sums of a few.
    constexpr int64_t few_pixels = 1024;
    pixels_ += width;
    if (pixels_ >= few_pixels) {
      add_to_totals();
    }
  }

  // Writes the sums: for each channel those of the taps, in the order of the weight, and of the bias.
  void store(const Lanes<acc_t>& lanes, acc_t* to) {
    if (has_totals_) {
      add_to_totals();
    }
    const acc_t* sums = has_totals_ ? totals_.data : sums_.data;
    const auto& down = plan_.rows.phases[0].taps;
    const auto& across = plan_.columns.phases[0].taps;
    const auto kw = plan_.g.kernel[1];
    const auto width = lanes.width();
    for (const auto t : c10::irange(plan_.g.kernel[0])) {
      for (const auto k : c10::irange(kw)) {
        std::copy_n(
            sums + (t * kw + k) * width, width, ordered_.data + (down[t].kernel * kw + across[k].kernel) * width);
      }
    }
    std::copy_n(sums + taps_ * width, width, ordered_.data + taps_ * width);
    transpose(ordered_.data, width, to, taps_ + 1, taps_ + 1, lanes.count);
  }

 private:
  void add_to_totals() {
    for (const auto i : c10::irange((taps_ + 1) * most_lanes)) {
      totals_.data[i] = has_totals_ ? totals_.data[i] + sums_.data[i] : sums_.data[i];
      sums_.data[i] = 0;
    }
    pixels_ = 0;
    has_totals_ = true;
  }

  void add_bias(const Lanes<acc_t>& lanes, const acc_t* line, int64_t step) {
    auto* total = sums_.data + taps_ * lanes.width();
    for (int64_t l = 0; l < lanes.width(); l += Vec::size()) {
      const LaneMask<acc_t> mask(std::min<int64_t>(lanes.count - l, Vec::size()));
      auto sum = Vec::loadu(total + l);
      for (int64_t first = 0; first < plan_.g.output[1]; first += 128) {
        Vec part(acc_t(0));
        for (const auto j : c10::irange(first, std::min<int64_t>(first + 128, plan_.g.output[1]))) {
          part = part + mask.load(line + j * step + l);
        }
        sum = sum + part;
      }
      sum.store(total + l);
    }
  }

  template <typename T>
  void
  add_weight(const Lanes<acc_t>& lanes, const acc_t* line, int64_t step, Pixels<const T> in, int64_t y, Ahead& ahead) {
    const auto& g = plan_.g;
    const auto& rows = plan_.rows;
    const auto& columns = plan_.columns;
    const bool is_packed = !std::is_same_v<T, acc_t> || !lanes.can_be_read() || plan_.must_pack;
    const auto width = lanes.width();
    const auto x_step = is_packed ? width : columns.step * in.step;
    for (const auto t : c10::irange(g.kernel[0])) {
      ahead.step();
      const auto iy = y * rows.step + rows.phases[0].taps[t].base;
      if (iy < 0 || iy >= rows.size) {
        continue;
      }
      const auto* image = in.data + iy * columns.size * in.step;
      const acc_t* row = reinterpret_cast<const acc_t*>(image) + lanes.first - in.first;
      if (is_packed) {
        row = packed_.get(iy, t, [&](acc_t* to) {
          const LaneChannels channels{lanes.first, g.multiplier, 1, -in.first};
          pack_row(to, image, in.step, columns, lanes, channels);
        });
      }
      const auto* inside = plan_.inside.data();
      for (const auto& run : columns.phases[0].runs) {
        const auto& tap = columns.phases[0].taps[run.first];
        const auto* x = row + (is_packed ? tap.position * width : tap.base * in.step);
        auto* sums = sums_.data + (t * g.kernel[1] + run.first) * width;
        const auto there = is_packed ? Inside{} : *inside++;
        const auto add = [&](auto vectors, auto has_edges) {
          correlate_run<acc_t, vectors(), has_edges()>(
              run.count, line, step, x, x_step, g.output[1], there, lanes.count, sums, width);
        };
        constexpr std::integral_constant<int, 1> narrow;
        constexpr std::integral_constant<int, kMostVectors> wide;
        if (is_packed && lanes.vectors == 1) {
          add(narrow, std::false_type());
        } else if (is_packed) {
          add(wide, std::false_type());
        } else if (lanes.vectors == 1) {
          add(narrow, std::true_type());
        } else {
          add(wide, std::true_type());
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
  Scratch<acc_t> totals_;
  // So many are in sums_; if there were more, the rest is in totals_.
  int64_t pixels_ = 0;
  bool has_totals_ = false;
  Scratch<acc_t> ordered_;
};

template <typename scalar_t>
void backward_weight_channels_last(
    const Geometry& g,
    scalar_t* grad_weight,
    scalar_t* grad_bias,
    const scalar_t* grad,
    const scalar_t* in) {
  using acc_t = at::opmath_type<scalar_t>;
  using Block = GradientBlock<acc_t>;
  const GradientPlan plan(g);
  const auto channels = g.output_channels();
  const auto [height, width] = g.output;
  const auto rows = g.batch * height;
  const auto grad_row = width * channels, grad_image = height * grad_row;
  const auto in_row = g.input[1] * g.channels, in_image = g.input[0] * in_row;
  const auto bytes = static_cast<int64_t>(sizeof(scalar_t));
  const auto near = near_rows<acc_t>(g, g.input[1], channels);
  const Traffic traffic(g.batch, in_image * bytes, grad_image * bytes, near);
  // Small, so that there is a chunk for each thread even with few images: groups of blocks are not fetched ahead.
  const Chunks chunks(rows, width, 512);
  Sums<acc_t> sums(g, chunks.count);
  // Of images that are far away all blocks of channels of a row or image, then those of the next one; in groups, where
  // there are few chunks for the threads.
  const auto strip = traffic.is_by_rows ? 1 : height;
  const auto blocks = divide_up(channels, Block::most_lanes);
  const auto threads = static_cast<int64_t>(at::get_num_threads());
  const auto least_groups = threads > 1 ? std::min(divide_up(2 * threads, chunks.count), blocks) : 1;
  const auto most_workers = traffic.is_by_images || traffic.is_by_rows ? divide_up(blocks, least_groups) : 1;
  const auto groups = divide_up(blocks, most_workers);
  const bool is_fetched = traffic.is_ahead && groups == 1;
  const auto tasks = chunks.count * groups;
  const auto products = rows * width * channels * sums.taps;
  // Up to where the output's rows before this one, counted over all images, read.
  const auto in_end = [&](int64_t row) {
    const auto last = std::min(row, rows) - 1;
    return in + last / height * in_image + plan.rows.end(last % height) * in_row;
  };

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    std::vector<Block> workers;
    workers.reserve(most_workers);
    while (static_cast<int64_t>(workers.size()) < most_workers) {
      workers.emplace_back(plan);
    }
    // A thread's chunks lie one behind the other, where they are fetched ahead.
    const auto from = begin / groups * chunks.size, to = std::min(divide_up(end, groups) * chunks.size, rows);
    Ahead ahead;
    ahead.start(grad + from * grad_row, in_end(from + 1));
    for (const auto task : c10::irange(begin, end)) {
      const auto chunk = task / groups;
      const auto first_block = task % groups * most_workers;
      const auto last_block = std::min(first_block + most_workers, blocks);
      const auto first = chunk * chunks.size, last = std::min(first + chunks.size, rows);
      for (auto& worker : workers) {
        worker.clear();
      }
      for (auto top = first; top < last;) {
        const auto image = top / height;
        const auto bottom = std::min({top + strip, (image + 1) * height, last});
        const auto next = std::min(bottom + strip, to);
        const Pixels<const scalar_t> grads{grad + image * grad_image, channels, 0};
        const Pixels<const scalar_t> pixels{in + image * in_image, g.channels, 0};
        for (const auto block : c10::irange(first_block, last_block)) {
          if (is_fetched) {
            ahead.aim(
                part_of(grad + bottom * grad_row, grad + next * grad_row, block + 1, blocks),
                grad_weight ? part_of(in_end(bottom), in_end(next), block + 1, blocks) : nullptr,
                (bottom - top) * (grad_weight ? g.kernel[0] : 1));
          }
          const Lanes<acc_t> lanes(block * Block::most_lanes, channels);
          auto& worker = workers[block - first_block];
          for (const auto row : c10::irange(top, bottom)) {
            if (row == first || row % height == 0) {
              worker.forget();
            }
            worker.add(lanes, grads, pixels, row % height, grad_weight, grad_bias, ahead);
          }
        }
        top = bottom;
      }
      for (const auto block : c10::irange(first_block, last_block)) {
        const Lanes<acc_t> lanes(block * Block::most_lanes, channels);
        workers[block - first_block].store(lanes, sums.of(chunk, lanes.first));
      }
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
  const auto bytes = g.channels * static_cast<int64_t>(sizeof(scalar_t));
  const Traffic traffic(g.batch, in_pixels * bytes, out_pixels * bytes, 0);
  const auto blocks = divide_up(g.channels, most_lanes);
  const Chunks chunks(g.batch, out_pixels, 2048);
  Sums<acc_t> sums(g, chunks.count);
  const auto tasks = blocks * chunks.count;
  const auto products = g.batch * out_pixels * g.channels * sums.taps;

  at::parallel_for(0, tasks, grain_size(tasks, products), [&](int64_t begin, int64_t end) {
    GradientBlock<acc_t> worker(plan);
    Scratch<acc_t> pixels(in_pixels * most_lanes), grads(out_pixels * most_lanes);
    pixels.clear();
    grads.clear();
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
        Ahead ahead;
        if (traffic.is_ahead && image + 1 < g.batch) {
          const auto next = plane + g.channels, after = next + there.count;
          ahead.start(grad + next * out_pixels, in + next * in_pixels);
          ahead.aim(grad + after * out_pixels, in + after * in_pixels, g.output[0] * (grad_weight ? g.kernel[0] : 1));
        }
        planes_to_pixels(grads.data, width, grad + plane * out_pixels, out_pixels, there.count, buffer.data);
        planes_to_pixels(pixels.data, width, in + plane * in_pixels, in_pixels, there.count, buffer.data);
        const Pixels<const acc_t> of_grads{grads.data, width, lanes.first}, of_image{pixels.data, width, lanes.first};
        worker.forget();
        for (const auto y : c10::irange(g.output[0])) {
          worker.add(lanes, of_grads, of_image, y, grad_weight, grad_bias, ahead);
        }
      }
      worker.store(there, sums.of(chunk, lanes.first));
    }
  });
  sums.store(grad_weight, grad_bias);
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

ALSO_REGISTER_AVX512_DISPATCH(depthwise_conv2d_backward_weight_stub, &backward_weight_kernel)

} // namespace at::native
