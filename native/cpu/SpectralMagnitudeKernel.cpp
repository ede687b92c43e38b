#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/SpectralMagnitude.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>
#include <c10/util/complex.h>
#include <c10/util/irange.h>

#include <algorithm>

namespace at::native {
namespace {

template <typename T>
void grad_of_rows(
    c10::complex<T>* result,
    const T* grad,
    const c10::complex<T>* spectrum,
    const T* magnitude,
    int64_t columns,
    int64_t twins_end,
    int64_t rows) {
  for ([[maybe_unused]] const auto row : c10::irange(rows)) {
    for (const auto j : c10::irange(columns)) {
      const T scale = j >= 1 && j < twins_end ? grad[j] / 2 : grad[j];
      // Divided before it is scaled: the quotient is at most 1, while that of the gradient may be infinite. Where the
      // magnitude is 0 the spectrum is, too.
      const T divisor = magnitude[j] == 0 ? 1 : magnitude[j];
      result[j] = {spectrum[j].real() / divisor * scale, spectrum[j].imag() / divisor * scale};
    }
    result += columns;
    grad += columns;
    spectrum += columns;
    magnitude += columns;
  }
}

void spectrum_grad_kernel(
    const TensorBase& result,
    const TensorBase& grad,
    const TensorBase& spectrum,
    const TensorBase& magnitude,
    int64_t last_dim_size) {
  const int64_t columns = std::max<int64_t>(magnitude.size(-1), 1);
  AT_DISPATCH_FLOATING_TYPES(magnitude.scalar_type(), "rfft2_abs_backward_cpu", [&] {
    auto* to = result.mutable_data_ptr<c10::complex<scalar_t>>();
    const auto* grads = grad.const_data_ptr<scalar_t>();
    const auto* values = spectrum.const_data_ptr<c10::complex<scalar_t>>();
    const auto* lengths = magnitude.const_data_ptr<scalar_t>();
    const int64_t rows_per_task = std::max<int64_t>(1, 32768 / columns);
    parallel_for(0, magnitude.numel() / columns, rows_per_task, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * columns;
      grad_of_rows<scalar_t>(
          to + first, grads + first, values + first, lengths + first, columns, (last_dim_size + 1) / 2, end - begin);
    });
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(spectrum_grad_stub, &spectrum_grad_kernel)

} // namespace at::native
