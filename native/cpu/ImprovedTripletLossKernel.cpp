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
#include <array>
#include <numeric>
#include <vector>

namespace at::native {
namespace {

// A vector of elements in the type computed in.
template <typename scalar_t>
vec::Vectorized<at::opmath_type<scalar_t>> load_vector(const scalar_t* from) {
  vec::Vectorized<at::opmath_type<scalar_t>> elements;
  if constexpr (vec::is_reduced_floating_point_v<scalar_t>) {
    vec::load_to_float(from, elements);
  } else {
    elements = vec::Vectorized<scalar_t>::loadu(from);
  }
  return elements;
}

// Elements that fill no vector are computed one by one, here and in map: the functions of vec:: take several times as
// long for them. The error of a sum grows with its length, so a long one is made of two halves.
template <typename scalar_t>
at::opmath_type<scalar_t> squared_distance(const scalar_t* x, const scalar_t* y, int64_t length) {
  using T = at::opmath_type<scalar_t>;
  using Vec = vec::Vectorized<T>;
  if (length > 1024) {
    // Halves of whole cache lines.
    const int64_t half = length / 128 * 64;
    return squared_distance(x, y, half) + squared_distance(x + half, y + half, length - half);
  }
  T sum = 0;
  int64_t i = 0;
  if (length >= Vec::size()) {
    Vec sums(sum);
    for (; i + Vec::size() <= length; i += Vec::size()) {
      const Vec difference = load_vector(x + i) - load_vector(y + i);
      sums = vec::fmadd(difference, difference, sums);
    }
    std::array<T, Vec::size()> lanes;
    sums.store(lanes.data());
    sum = std::accumulate(lanes.begin(), lanes.end(), sum);
  }
  for (; i < length; ++i) {
    const T difference = static_cast<T>(x[i]) - static_cast<T>(y[i]);
    sum += difference * difference;
  }
  return sum;
}

// to[i] = f(rows[i]...), where f takes vectors and numbers in the type computed in, and half types are rounded once.
template <typename scalar_t, typename F, typename... Row>
void map(const F& f, scalar_t* to, int64_t length, const Row*... rows) {
  const int64_t whole = length - length % vec::Vectorized<scalar_t>::size();
  // The parameters' type makes the functions of vec:: convert half types.
  using Vec = vec::Vectorized<at::opmath_type<scalar_t>>;
  if constexpr (sizeof...(rows) == 2) {
    vec::map2<scalar_t>([&](Vec x, Vec y) { return f(x, y); }, to, rows..., whole);
  } else {
    vec::map3<scalar_t>([&](Vec x, Vec y, Vec z) { return f(x, y, z); }, to, rows..., whole);
  }
  for (int64_t i = whole; i < length; ++i) {
    to[i] = static_cast<scalar_t>(f(static_cast<at::opmath_type<Row>>(rows[i])...));
  }
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
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  using opmath_t = at::opmath_type<scalar_t>;
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
      const auto slopes = formula.slopes(distance[2 * row], distance[2 * row + 1]);
      const opmath_t by_ap = 2 * grad_loss[row] * slopes.by_ap, by_an = 2 * grad_loss[row] * slopes.by_an;
      const int64_t to = row * length;
      if (grad_anchor) {
        const auto f = [&](auto a, auto p, auto n) {
          return (a - p) * decltype(a)(by_ap) + (a - n) * decltype(a)(by_an);
        };
        map(f, grad_anchor + to, length, a, p, n);
      }
      if (grad_positive) {
        map([&](auto a, auto p) { return (p - a) * decltype(a)(by_ap); }, grad_positive + to, length, a, p);
      }
      if (grad_negative) {
        map([&](auto a, auto n) { return (n - a) * decltype(a)(by_an); }, grad_negative + to, length, a, n);
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
    const TensorBase& distances,
    const TripletInputs& inputs,
    const TripletParameters& parameters) {
  AT_DISPATCH_FLOATING_TYPES_AND2(kHalf, kBFloat16, inputs[0].scalar_type(), "improved_triplet_loss_backward_cpu", [&] {
    backward<scalar_t>(grads, grad_losses, distances, inputs, parameters);
  });
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(improved_triplet_loss_stub, &improved_triplet_loss_kernel)
ALSO_REGISTER_AVX512_DISPATCH(improved_triplet_loss_backward_stub, &improved_triplet_loss_backward_kernel)

} // namespace at::native
