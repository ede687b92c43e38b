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
#include <type_traits>
#include <vector>

namespace at::native {
namespace {

// Elements in the type computed in, V: one, or a vector of them.
template <typename V, typename scalar_t>
C10_ALWAYS_INLINE V load(const scalar_t* from) {
  if constexpr (std::is_arithmetic_v<V>) {
    return static_cast<V>(*from);
  } else if constexpr (vec::is_reduced_floating_point_v<scalar_t>) {
    V elements;
    vec::load_to_float(from, elements);
    return elements;
  } else {
    return V::loadu(from);
  }
}

// The reverse: half types are rounded.
template <typename V, typename scalar_t>
C10_ALWAYS_INLINE void store(scalar_t* to, const V& elements) {
  if constexpr (std::is_arithmetic_v<V>) {
    *to = static_cast<scalar_t>(elements);
  } else if constexpr (vec::is_reduced_floating_point_v<scalar_t>) {
    vec::convert_from_float<scalar_t>(elements, elements).store(to, V::size());
  } else {
    elements.store(to);
  }
}

// Rows in vectors: the last vector ends behind the row, within the rows that follow. In the last rows, elements that
// fill no vector are computed one by one, since the functions of vec:: take several times as long. So are all elements
// of rows shorter than `least`.
template <typename T>
struct RowVectors {
  static constexpr int64_t size = vec::Vectorized<T>::size();
  int64_t length, rounded_up, last_rows;
  bool is_short;

  explicit RowVectors(int64_t length, int64_t least = 0)
      : length(length),
        rounded_up(at::divup(length, size) * size),
        last_rows(at::divup(rounded_up - length, std::max<int64_t>(1, length))),
        is_short(length < least) {}

  // How many elements of a row are computed in vectors; `end` is the first row that must not be touched.
  int64_t in_vectors(int64_t row, int64_t end) const {
    return is_short ? 0 : row < end - last_rows ? rounded_up : length - length % size;
  }
};

// The squared distance of the first `in_vectors` elements, which may be more than there are: those count as 0.
template <typename T, typename scalar_t>
T squared_distance_in_vectors(const scalar_t* x, const scalar_t* y, int64_t length, int64_t in_vectors) {
  using Vec = vec::Vectorized<T>;
  Vec sums(T(0));
  for (int64_t i = 0; i < in_vectors; i += Vec::size()) {
    Vec difference = load<Vec>(x + i) - load<Vec>(y + i);
    if (i + Vec::size() > length) {
      difference = difference & (Vec::arange(T(0), T(1)) < Vec(static_cast<T>(length - i)));
    }
    sums = vec::fmadd(difference, difference, sums);
  }
  std::array<T, Vec::size()> lanes;
  sums.store(lanes.data());
  for (size_t n = lanes.size() / 2; n > 0; n /= 2) {
    for (size_t lane = 0; lane < n; ++lane) {
      lanes[lane] += lanes[lane + n];
    }
  }
  return lanes[0];
}

// The error of a sum grows with its length, so a long one is made of two halves.
template <typename T, typename scalar_t>
T squared_distance(const scalar_t* x, const scalar_t* y, int64_t length, int64_t in_vectors) {
  if (length > 1024) {
    // Halves of whole cache lines.
    const int64_t half = length / 128 * 64;
    return squared_distance<T>(x, y, half, half) +
        squared_distance<T>(x + half, y + half, length - half, in_vectors - half);
  }
  T sum = in_vectors > 0 ? squared_distance_in_vectors<T>(x, y, length, in_vectors) : T(0);
  for (int64_t i = in_vectors; i < length; ++i) {
    const T difference = static_cast<T>(x[i]) - static_cast<T>(y[i]);
    sum += difference * difference;
  }
  return sum;
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
        length_(x.size(1)),
        buffer_(
            stride_ >= length_ && (step_ == 1 || length_ <= 1)
                ? 0
                : RowVectors<at::opmath_type<scalar_t>>(length_).rounded_up) {}

  // A contiguous row, valid until the next call: strided elements, and rows that overlap, are copied.
  const scalar_t* operator[](int64_t row) {
    const scalar_t* from = data_ + row * stride_;
    if (buffer_.empty()) {
      return from;
    }
    for (int64_t i = 0; i < length_; ++i) {
      buffer_[i] = from[i * step_];
    }
    return buffer_.data();
  }

 private:
  const scalar_t* data_;
  int64_t stride_;
  int64_t step_;
  int64_t length_;
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
  // Adding up the lanes of a vector takes longer than a row that does not fill one.
  const RowVectors<opmath_t> vectors(length, vec::Vectorized<opmath_t>::size());
  auto* loss = losses.mutable_data_ptr<opmath_t>();
  auto* distance = distances.mutable_data_ptr<opmath_t>();
  parallel_for(0, inputs[0].size(0), rows_per_task(length), [&](int64_t begin, int64_t end) {
    Rows<scalar_t> anchor(inputs[0]), positive(inputs[1]), negative(inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const scalar_t* a = anchor[row];
      const int64_t in_vectors = vectors.in_vectors(row, end);
      const auto d_ap = squared_distance<opmath_t>(a, positive[row], length, in_vectors);
      const auto d_an = squared_distance<opmath_t>(a, negative[row], length, in_vectors);
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
  // Storing three vectors that the next rows overwrite takes longer than a few elements.
  const RowVectors<opmath_t> vectors(length, 4);
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
      const int64_t to = row * length, in_vectors = vectors.in_vectors(row, end);
      const auto compute = [&](auto slope_ap, auto slope_an, int64_t i) C10_ALWAYS_INLINE_ATTRIBUTE {
        using V = decltype(slope_ap);
        const V x = load<V>(a + i);
        const V of_positive = (load<V>(p + i) - x) * slope_ap, of_negative = (load<V>(n + i) - x) * slope_an;
        if (grad_anchor) {
          store(grad_anchor + to + i, V(opmath_t(0)) - of_positive - of_negative);
        }
        if (grad_positive) {
          store(grad_positive + to + i, of_positive);
        }
        if (grad_negative) {
          store(grad_negative + to + i, of_negative);
        }
      };
      int64_t i = 0;
      for (; i < in_vectors; i += vectors.size) {
        compute(vec::Vectorized<opmath_t>(by_ap), vec::Vectorized<opmath_t>(by_an), i);
      }
      for (; i < length; ++i) {
        compute(by_ap, by_an, i);
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
