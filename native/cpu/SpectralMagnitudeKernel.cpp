#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/SpectralMagnitude.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/TensorBase.h>
#include <c10/util/complex.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

template <typename T>
void grad_of_rows(
    c10::complex<T>* result,
    const T* grad,
    const c10::complex<T>* spectrum,
    int64_t columns,
    int64_t twins_end,
    int64_t rows) {
  for ([[maybe_unused]] const auto row : c10::irange(rows)) {
    for (const auto j : c10::irange(columns)) {
      const T scale = j >= 1 && j < twins_end ? grad[j] / 2 : grad[j];
      // Divide by the larger part first: neither the squares nor the gradient divided by the magnitude fit for all.
      const T re = spectrum[j].real(), im = spectrum[j].imag();
      const T larger = std::max(std::abs(re), std::abs(im));
      const T divisor = larger == 0 ? 1 : larger;
      const T x = re / divisor, y = im / divisor;
      const T length = larger == 0 ? 1 : std::sqrt(x * x + y * y);
      result[j] = {x / length * scale, y / length * scale};
    }
    result += columns;
    grad += columns;
    spectrum += columns;
  }
}

void spectrum_grad_kernel(
    const TensorBase& result,
    const TensorBase& grad,
    const TensorBase& spectrum,
    int64_t last_dim_size) {
  const int64_t columns = std::max<int64_t>(grad.size(-1), 1);
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "rfft2_abs_backward_cpu", [&] {
    auto* to = result.mutable_data_ptr<c10::complex<scalar_t>>();
    const auto* grads = grad.const_data_ptr<scalar_t>();
    const auto* values = spectrum.const_data_ptr<c10::complex<scalar_t>>();
    const int64_t rows_per_task = std::max<int64_t>(1, at::internal::GRAIN_SIZE / columns);
    parallel_for(0, grad.numel() / columns, rows_per_task, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * columns;
      grad_of_rows<scalar_t>(to + first, grads + first, values + first, columns, (last_dim_size + 1) / 2, end - begin);
    });
  });
}

// Calls f(image, first pair, last pair) for blocks of pairs. Of a spectrum whose columns lie one behind the other, a
// block is a cache line of each.
template <typename T, typename F>
void for_blocks_of_pairs(int64_t images, int64_t pairs, int64_t columns, const F& f) {
  constexpr int64_t block = 64 / (2 * sizeof(c10::complex<T>));
  const auto blocks = (pairs + block - 1) / block;
  const int64_t blocks_per_task = std::max<int64_t>(1, at::internal::GRAIN_SIZE / (block * columns));
  parallel_for(0, images * blocks, blocks_per_task, [&](int64_t begin, int64_t end) {
    for (const auto i : c10::irange(begin, end)) {
      const auto first = i % blocks * block;
      f(i / blocks, first, std::min(first + block, pairs));
    }
  });
}

// In the pair's spectrum A + iB, the columns that A and B do not store are conjugates of others, A* + iB*.
void pair_rows_kernel(const TensorBase& result, const TensorBase& spectrum) {
  const auto images = result.size(0), pairs = result.size(1), columns = result.size(2);
  const auto half = spectrum.size(1), rows = spectrum.size(2);
  AT_DISPATCH_FLOATING_TYPES(c10::toRealValueType(result.scalar_type()), "rfft2_abs_backward_cpu", [&] {
    using Complex = c10::complex<scalar_t>;
    auto* to = result.mutable_data_ptr<Complex>();
    const auto* from = spectrum.const_data_ptr<Complex>();
    for_blocks_of_pairs<scalar_t>(images, pairs, columns, [&](int64_t image, int64_t first, int64_t last) {
      for (const auto k : c10::irange(half)) {
        const auto* column = from + (image * half + k) * rows;
        for (const auto p : c10::irange(first, last)) {
          const auto a = column[2 * p], b = 2 * p + 1 < rows ? column[2 * p + 1] : Complex(0);
          auto* pair = to + (image * pairs + p) * columns;
          if (k == 0) {
            // A complex-to-real transform uses the real part of the first column.
            pair[k] = {a.real(), b.real()};
          } else {
            pair[k] = {a.real() - b.imag(), a.imag() + b.real()};
            pair[columns - k] = {a.real() + b.imag(), b.real() - a.imag()};
          }
        }
      }
    });
  });
}

void part_rows_kernel(const TensorBase& result, const TensorBase& pairs) {
  const auto rows = result.size(1), columns = result.size(2);
  AT_DISPATCH_FLOATING_TYPES(result.scalar_type(), "rfft2_abs_backward_cpu", [&] {
    auto* to = result.mutable_data_ptr<scalar_t>();
    const auto* from = pairs.const_data_ptr<c10::complex<scalar_t>>();
    for_blocks_of_pairs<scalar_t>(
        pairs.size(0), pairs.size(1), columns, [&](int64_t image, int64_t first, int64_t last) {
          for (const auto p : c10::irange(first, last)) {
            const auto* pair = from + (image * pairs.size(1) + p) * columns;
            auto* row = to + (image * rows + 2 * p) * columns;
            for (const auto j : c10::irange(columns)) {
              row[j] = pair[j].real();
            }
            if (2 * p + 1 < rows) {
              for (const auto j : c10::irange(columns)) {
                row[columns + j] = pair[j].imag();
              }
            }
          }
        });
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(spectrum_grad_stub, &spectrum_grad_kernel)
ALSO_REGISTER_AVX512_DISPATCH(pair_rows_stub, &pair_rows_kernel)
ALSO_REGISTER_AVX512_DISPATCH(part_rows_stub, &part_rows_kernel)

} // namespace at::native
