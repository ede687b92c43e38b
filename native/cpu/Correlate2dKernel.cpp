#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/Correlate2d.h>
#include <ATen/native/cpu/Generate.h>

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace at::native {
namespace {

// `width` columns of one row of the output, in `registers` vectors.
template <typename T, int registers>
void correlate_columns(
    T* output,
    const T* input,
    int64_t input_width,
    const T* kernel,
    int64_t kernel_height,
    int64_t kernel_width,
    int64_t width) {
  using Vec = vec::Vectorized<T>;
  constexpr int64_t lanes = Vec::size();
  auto sums = generate<registers>([](auto) { return Vec(T(0)); });
  const int64_t last = width - (registers - 1) * lanes;
  for (const auto a : c10::irange(kernel_height)) {
    for (const auto b : c10::irange(kernel_width)) {
      const Vec tap(kernel[a * kernel_width + b]);
      const T* from = input + a * input_width + b;
      sums = generate<registers>([&](auto r) {
        const T* next = from + r * lanes;
        return vec::fmadd(r < registers - 1 ? Vec::loadu(next) : Vec::loadu(next, last), tap, sums[r]);
      });
    }
  }
  for (int64_t r = 0; r < registers - 1; ++r) {
    sums[r].store(output + r * lanes);
  }
  sums[registers - 1].store(output + (registers - 1) * lanes, last);
}

template <typename T>
void correlate(const TensorBase& output, const TensorBase& input, const TensorBase& kernel, const bool* chosen) {
  constexpr int64_t lanes = vec::Vectorized<T>::size();
  constexpr int64_t block = 4 * lanes;
  // Indexed by the number of vectors, the last of which may be partial.
  constexpr std::array functions{
      &correlate_columns<T, 1>, &correlate_columns<T, 2>, &correlate_columns<T, 3>, &correlate_columns<T, 4>};
  const int64_t images = output.size(1), height = output.size(2), width = output.size(3);
  const int64_t input_height = input.size(2), input_width = input.size(3);
  const int64_t kernel_height = kernel.size(1), kernel_width = kernel.size(2);
  const int64_t products = width * kernel_height * kernel_width;
  const int64_t rows_per_task = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, products));
  parallel_for(0, output.size(0) * images * height, rows_per_task, [&](int64_t begin, int64_t end) {
    for (const auto row : c10::irange(begin, end)) {
      if (chosen && !chosen[row / height]) {
        continue;
      }
      T* to = output.mutable_data_ptr<T>() + row * width;
      const int64_t image = row / height % (images * input.size(0));
      const T* from = input.const_data_ptr<T>() + (image * input_height + row % height) * input_width;
      const T* taps = kernel.const_data_ptr<T>() + row / height / images * kernel_height * kernel_width;
      for (int64_t j = 0; j < width; j += block) {
        const int64_t count = std::min(block, width - j);
        functions[(count - 1) / lanes](to + j, from + j, input_width, taps, kernel_height, kernel_width, count);
      }
    }
  });
}

// Adds to sums [taps, lanes] the products of one row of the gradient with one row of the input, shifted by each tap.
template <typename T, int taps>
void add_row(T* sums, const T* input, const T* grad, int64_t width) {
  using Vec = vec::Vectorized<T>;
  constexpr int64_t lanes = Vec::size();
  auto products = generate<taps>([](auto) { return Vec(T(0)); });
  int64_t j = 0;
  const auto add = [&](const auto& load) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Vec g = load(grad + j);
    products = generate<taps>([&](auto b) { return vec::fmadd(load(input + j + b), g, products[b]); });
  };
  for (; j + lanes <= width; j += lanes) {
    add([](const T* x) { return Vec::loadu(x); });
  }
  if (j < width) {
    add([&](const T* x) { return Vec::loadu(x, width - j); });
  }
  for (int64_t b = 0; b < taps; ++b) {
    (Vec::loadu(sums + b * lanes) + products[b]).store(sums + b * lanes);
  }
}

// The gradient of kernel k.
template <typename T>
void kernel_grad(const TensorBase& output, const TensorBase& input, const TensorBase& grad, int64_t k) {
  const int64_t height = grad.size(2), width = grad.size(3);
  const int64_t input_height = input.size(2), input_width = input.size(3);
  const int64_t kernel_height = output.size(1), kernel_width = output.size(2);
  constexpr int64_t lanes = vec::Vectorized<T>::size();
  const int64_t taps = kernel_height * kernel_width;
  const int64_t rows = grad.size(1) * height;
  constexpr std::array functions{&add_row<T, 1>, &add_row<T, 2>, &add_row<T, 3>, &add_row<T, 4>};
  constexpr int64_t most_taps = functions.size();
  // The sums of this many rows are added in order, independent of the number of threads.
  constexpr int64_t most_tasks = 64;
  const int64_t rows_per_task = (rows + most_tasks - 1) / most_tasks;
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  std::vector<T> sums(tasks * taps);
  parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    std::vector<T> of_lanes(taps * lanes);
    for (const auto task : c10::irange(begin, end)) {
      std::fill(of_lanes.begin(), of_lanes.end(), T(0));
      for (const auto row : c10::irange(task * rows_per_task, std::min((task + 1) * rows_per_task, rows))) {
        const T* g = grad.const_data_ptr<T>() + (k * rows + row) * width;
        const int64_t number = (k * grad.size(1) + row / height) % (grad.size(1) * input.size(0));
        const T* image = input.const_data_ptr<T>() + number * input_height * input_width;
        for (const auto a : c10::irange(kernel_height)) {
          const T* from = image + (row % height + a) * input_width;
          T* to = of_lanes.data() + a * kernel_width * lanes;
          for (int64_t b = 0; b < kernel_width; b += most_taps) {
            functions[std::min(most_taps, kernel_width - b) - 1](to + b * lanes, from + b, g, width);
          }
        }
      }
      for (const auto tap : c10::irange(taps)) {
        const T* first = of_lanes.data() + tap * lanes;
        sums[task * taps + tap] = std::accumulate(first, first + lanes, T(0));
      }
    }
  });
  T* total = output.mutable_data_ptr<T>() + k * taps;
  std::fill_n(total, taps, T(0));
  for (const auto task : c10::irange(tasks)) {
    for (const auto i : c10::irange(taps)) {
      total[i] += sums[task * taps + i];
    }
  }
}

const bool* data_of(const TensorBase& chosen) {
  return chosen.defined() ? chosen.const_data_ptr<bool>() : nullptr;
}

void correlate2d_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& kernel,
    const TensorBase& chosen) {
  AT_DISPATCH_V2(
      input.scalar_type(),
      "correlate2d_cpu",
      AT_WRAP([&] { correlate<scalar_t>(output, input, kernel, data_of(chosen)); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX));
}

void correlate2d_kernel_grad_kernel(
    const TensorBase& output,
    const TensorBase& input,
    const TensorBase& grad,
    const TensorBase& chosen) {
  AT_DISPATCH_FLOATING_AND_COMPLEX_TYPES(input.scalar_type(), "correlate2d_kernel_grad_cpu", [&] {
    for (const auto k : c10::irange(output.size(0))) {
      if (!chosen.defined() || data_of(chosen)[k]) {
        kernel_grad<scalar_t>(output, input, grad, k);
      }
    }
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(correlate2d_stub, &correlate2d_kernel)
ALSO_REGISTER_AVX512_DISPATCH(correlate2d_kernel_grad_stub, &correlate2d_kernel_grad_kernel)

} // namespace at::native
