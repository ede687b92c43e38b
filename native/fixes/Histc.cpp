// pytorch#96613: counts are added in the dtype of the input, so a bin of float stays at 2^24. Here parts of 2^24
// elements are counted, which is exact, and their counts are added in double.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/histc_native.h>

namespace at::native {

Tensor& histc_of_many_out(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max, Tensor& out) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (self.scalar_type() != kFloat || self.numel() <= kMost) {
    return histogram_histc_out(self, bins, min, max, out);
  }
  Scalar low = min;
  Scalar high = max;
  if (min.to<double>() == max.to<double>()) { // the range of all parts, not of each
    const auto range = at::aminmax(self);
    low = std::get<0>(range).item();
    high = std::get<1>(range).item();
  }
  Tensor counts;
  for (const Tensor& part : self.reshape(-1).split(kMost)) {
    const Tensor some = histogram_histc_out(part, bins, low, high, out).to(kDouble);
    counts = counts.defined() ? counts.add_(some) : some;
  }
  return out.copy_(counts);
}

Tensor histc_of_many(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
  Tensor out = at::empty({0}, self.options());
  return histc_of_many_out(self, bins, min, max, out);
}

} // namespace at::native
