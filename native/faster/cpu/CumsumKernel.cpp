// cumsum of PyTorch for CPUs, with vectors along the dimensions after the one that is summed. PyTorch's own sums along
// the last.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Faster.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/cpu/utils.h>

#include <algorithm>

namespace at::native {
namespace {

// The sums of so many columns fit the first-level cache; fewer than a vector's are added one by one.
constexpr int64_t kColumns = 512;
constexpr int64_t kLeastColumns = 8;

template <typename T>
void add_column(T* out, const T* in, int64_t size, int64_t stride) {
  acc_type<T, /*is_cuda=*/false> sum = 0;
  for (int64_t i = 0; i < size; i++) {
    sum += in[i * stride];
    out[i * stride] = static_cast<T>(sum);
  }
}

// Columns are added side by side, so the compiler uses vectors.
template <typename T>
void add_columns(T* out, const T* in, int64_t size, int64_t stride, int64_t columns) {
  acc_type<T, /*is_cuda=*/false> sums[kColumns];
  std::fill_n(sums, columns, 0);
  for (int64_t i = 0; i < size; i++) {
    for (int64_t j = 0; j < columns; j++) {
      sums[j] += in[i * stride + j];
      out[i * stride + j] = static_cast<T>(sums[j]);
    }
  }
}

void cumsum_kernel(const Tensor& result, const Tensor& self, int64_t dim) {
  dim = maybe_wrap_dim(dim, self.dim());
  if (dim == self.dim() - 1 || !is_faster_on()) {
    return stock::of(cumsum_stub)(self.device().type(), result, self, dim);
  }
  const Tensor in = self.contiguous();
  const Tensor out = result.contiguous();
  const int64_t size = in.size(dim);
  const int64_t stride = c10::multiply_integers(in.sizes().slice(dim + 1));
  const int64_t width = stride < kLeastColumns ? 1 : std::min(stride, kColumns);
  const int64_t outer = in.numel() / size / stride;
  const int64_t tiles = (stride + width - 1) / width;
  const int64_t grain = std::max<int64_t>(1, at::internal::GRAIN_SIZE / (size * width));
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(kBFloat16, kHalf, in.scalar_type(), "cumsum", [&] {
    auto* to = out.mutable_data_ptr<scalar_t>();
    auto* from = in.const_data_ptr<scalar_t>();
    parallel_for(0, outer * tiles, grain, [&](int64_t begin, int64_t end) {
      int64_t block = 0;
      int64_t tile = 0;
      data_index_init(begin, block, outer, tile, tiles);
      for (int64_t i = begin; i < end; i++) {
        const int64_t first = block * size * stride + tile * width;
        if (width == 1) {
          add_column(to + first, from + first, size, stride);
        } else {
          add_columns(to + first, from + first, size, stride, std::min(stride - tile * width, width));
        }
        data_index_step(block, outer, tile, tiles);
      }
    });
  });
  if (!out.is_same(result)) {
    result.copy_(out);
  }
}

} // namespace

REGISTER_DISPATCH(cumsum_stub, &cumsum_kernel)

} // namespace at::native
