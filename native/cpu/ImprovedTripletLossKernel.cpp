#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/ImprovedTripletLoss.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <vector>

namespace at::native {
namespace {

// The functions of vec:: load half types as float, and round results once.
template <typename scalar_t>
using OpmathVec = vec::Vectorized<at::opmath_type<scalar_t>>;

template <typename scalar_t>
at::opmath_type<scalar_t> squared_distance(const scalar_t* x, const scalar_t* y, int64_t length) {
  using Vec = OpmathVec<scalar_t>;
  if (length == 0) {
    return 0;
  }
  return vec::map2_reduce_all<scalar_t>(
      [](Vec x, Vec y) { return (x - y) * (x - y); }, [](Vec x, Vec y) { return x + y; }, x, y, length);
}

int64_t rows_per_task(int64_t length) {
  return std::max<int64_t>(1, at::internal::GRAIN_SIZE / std::max<int64_t>(1, length));
}

// The rows of a matrix, for one thread.
template <typename scalar_t>
class Rows {
 public:
  explicit Rows(const TensorBase& x)
      : data_(x.const_data_ptr<scalar_t>()),
        stride_(x.stride(0)),
        step_(x.stride(1)),
        buffer_(step_ == 1 || x.size(1) <= 1 ? 0 : x.size(1)) {}

  // A contiguous row, valid until the next call: strided elements are copied.
  const scalar_t* operator[](int64_t row) {
    const scalar_t* from = data_ + row * stride_;
    if (buffer_.empty()) {
      return from;
    }
    for (size_t i = 0; i < buffer_.size(); ++i) {
      buffer_[i] = from[static_cast<int64_t>(i) * step_];
    }
    return buffer_.data();
  }

 private:
  const scalar_t* data_;
  int64_t stride_;
  int64_t step_;
  std::vector<scalar_t> buffer_;
};

template <typename scalar_t>
void forward(
    const TensorBase& losses,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  using opmath_t = at::opmath_type<scalar_t>;
  const TripletFormula<opmath_t> formula(parameters);
  const int64_t length = inputs[0].size(1);
  auto* loss = losses.mutable_data_ptr<opmath_t>();
  auto* distance = distances.mutable_data_ptr<opmath_t>();
  parallel_for(0, inputs[0].size(0), rows_per_task(length), [&](int64_t begin, int64_t end) {
    Rows<scalar_t> anchor(inputs[0]), positive(inputs[1]), negative(inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const scalar_t* a = anchor[row];
      const auto d_ap = squared_distance(a, positive[row], length);
      const auto d_an = squared_distance(a, negative[row], length);
      loss[row] = formula.loss(d_ap, d_an);
      distance[2 * row] = d_ap;
      distance[2 * row + 1] = d_an;
    }
  });
}

template <typename scalar_t>
void backward(
    const TripletInputs& grads,
    const TensorBase& grad_losses,
    int64_t divisor,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  using opmath_t = at::opmath_type<scalar_t>;
  using Vec = OpmathVec<scalar_t>;
  const TripletFormula<opmath_t> formula(parameters);
  const int64_t length = inputs[0].size(1);
  const auto* grad_loss = grad_losses.const_data_ptr<opmath_t>();
  const auto* distance = distances.const_data_ptr<opmath_t>();
  const auto data = [](const TensorBase& x) { return x.defined() ? x.mutable_data_ptr<scalar_t>() : nullptr; };
  scalar_t* const grad_anchor = data(grads[0]);
  scalar_t* const grad_positive = data(grads[1]);
  scalar_t* const grad_negative = data(grads[2]);
  parallel_for(0, inputs[0].size(0), rows_per_task(length), [&](int64_t begin, int64_t end) {
    Rows<scalar_t> anchor(inputs[0]), positive(inputs[1]), negative(inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const scalar_t *a = anchor[row], *p = positive[row], *n = negative[row];
      const opmath_t grad = grad_loss[row * grad_losses.stride(0)] / static_cast<opmath_t>(divisor);
      const auto slopes = formula.slopes(distance[2 * row], distance[2 * row + 1]);
      const Vec by_ap(2 * grad * slopes.by_ap), by_an(2 * grad * slopes.by_an);
      const int64_t to = row * length;
      if (grad_anchor) {
        vec::map3<scalar_t>(
            [&](Vec a, Vec p, Vec n) { return (a - p) * by_ap + (a - n) * by_an; }, grad_anchor + to, a, p, n, length);
      }
      if (grad_positive) {
        vec::map2<scalar_t>([&](Vec a, Vec p) { return (p - a) * by_ap; }, grad_positive + to, a, p, length);
      }
      if (grad_negative) {
        vec::map2<scalar_t>([&](Vec a, Vec n) { return (n - a) * by_an; }, grad_negative + to, a, n, length);
      }
    }
  });
}

void improved_triplet_loss_kernel(
    const TensorBase& losses,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, inputs[0].scalar_type(), "improved_triplet_loss_cpu", [&] {
    forward<scalar_t>(losses, distances, inputs, parameters);
  });
}

void improved_triplet_loss_backward_kernel(
    const TripletInputs& grads,
    const TensorBase& grad_losses,
    int64_t divisor,
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, inputs[0].scalar_type(), "improved_triplet_loss_backward_cpu", [&] {
    backward<scalar_t>(grads, grad_losses, divisor, distances, inputs, parameters);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(improved_triplet_loss_stub, &improved_triplet_loss_kernel)
ALSO_REGISTER_AVX512_DISPATCH(improved_triplet_loss_backward_stub, &improved_triplet_loss_backward_kernel)

} // namespace at::native
