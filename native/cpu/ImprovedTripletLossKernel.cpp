#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/ImprovedTripletLoss.h>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/TensorBase.h>
#include <ATen/cpu/vec/functional.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/LoadWithZeros.h>
#include <ATen/native/cpu/RoundHalf.h>
#include <ATen/native/cpu/Stream.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace at::native {
namespace {

// As many elements as a vector of them holds, in the type that is computed in: of the half types two vectors of floats.
template <typename scalar_t>
struct Elements {
  using Vec = vec::Vectorized<at::opmath_type<scalar_t>>;
  static constexpr int64_t parts = vec::is_reduced_floating_point_v<scalar_t> ? 2 : 1;
  static constexpr int64_t count = parts * Vec::size();

  // The elements from `length` on are zero.
  static Elements load(const scalar_t* from, int64_t length = count) {
    const auto loaded = load_with_zeros(from, length);
    if constexpr (parts == 2) {
      const auto [low, high] = vec::convert_to_float<scalar_t>(loaded);
      return {{low, high}};
    } else {
      return {{loaded}};
    }
  }

  auto converted() const {
    if constexpr (parts == 2) {
      return rounded<scalar_t>(part[0], part[1]);
    } else {
      return part[0];
    }
  }

  Vec part[parts];
};

template <typename T>
T sum_lanes(const vec::Vectorized<T>& x) {
  return vec::vec_reduce_all<T>([](const auto& a, const auto& b) { return a + b; }, x);
}

// The squared distances of one anchor to its positive and its negative.
template <typename scalar_t>
std::pair<at::opmath_type<scalar_t>, at::opmath_type<scalar_t>>
squared_distances(const scalar_t* a, const scalar_t* p, const scalar_t* n, int64_t length) {
  using Pack = Elements<scalar_t>;
  using Vec = typename Pack::Vec;
  // Several sums of each, for an addition need not wait for the one before.
  constexpr int64_t sums = 4;
  constexpr int64_t packs = sums / Pack::parts;
  Vec ap[sums];
  Vec an[sums];
  std::fill_n(ap, sums, Vec(0));
  std::fill_n(an, sums, Vec(0));
  const auto add = [&](int64_t pack, int64_t i, int64_t count) {
    const auto x = Pack::load(a + i, count), y = Pack::load(p + i, count), z = Pack::load(n + i, count);
    for (int64_t part = 0; part < Pack::parts; ++part) {
      const int64_t k = pack * Pack::parts + part;
      const Vec u = x.part[part] - y.part[part];
      const Vec v = x.part[part] - z.part[part];
      ap[k] = vec::fmadd(u, u, ap[k]);
      an[k] = vec::fmadd(v, v, an[k]);
    }
  };
  int64_t i = 0;
  for (; i + packs * Pack::count <= length; i += packs * Pack::count) {
    for (int64_t pack = 0; pack < packs; ++pack) {
      add(pack, i + pack * Pack::count, Pack::count);
    }
  }
  for (; i < length; i += Pack::count) {
    add(0, i, std::min(Pack::count, length - i));
  }
  return {sum_lanes((ap[0] + ap[1]) + (ap[2] + ap[3])), sum_lanes((an[0] + an[1]) + (an[2] + an[3]))};
}

// NaN in either goes into the result, as with clamp.
template <typename T>
T hinge(T x, T tau) {
  return x > tau || std::isnan(x) ? x : tau;
}

// About as many elements as TensorIterator gives to a task.
int64_t rows_per_task(int64_t length) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, length));
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

  // The elements of a row side by side, until the next row: those that lie apart are copied.
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
  const int64_t length = inputs[0].size(1);
  const opmath_t tau1 = parameters.tau1, tau2 = parameters.tau2, beta = parameters.beta;
  auto* loss = losses.mutable_data_ptr<opmath_t>();
  auto* distance = distances.mutable_data_ptr<opmath_t>();
  parallel_for(0, inputs[0].size(0), rows_per_task(length), [&](int64_t begin, int64_t end) {
    Rows<scalar_t> anchor(inputs[0]), positive(inputs[1]), negative(inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const auto [d_ap, d_an] = squared_distances(anchor[row], positive[row], negative[row], length);
      loss[row] = hinge<opmath_t>(d_ap - d_an, tau1) + beta * hinge<opmath_t>(d_ap, tau2);
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
  using Pack = Elements<scalar_t>;
  using Vec = typename Pack::Vec;
  const int64_t length = inputs[0].size(1);
  const opmath_t tau1 = parameters.tau1, tau2 = parameters.tau2, beta = parameters.beta;
  const auto* grad_loss = grad_losses.const_data_ptr<opmath_t>();
  const auto* distance = distances.const_data_ptr<opmath_t>();
  const auto data = [](const TensorBase& x) { return x.defined() ? x.mutable_data_ptr<scalar_t>() : nullptr; };
  scalar_t* const grad_anchor = data(grads[0]);
  scalar_t* const grad_positive = data(grads[1]);
  scalar_t* const grad_negative = data(grads[2]);
  const int64_t row_bytes = length * static_cast<int64_t>(sizeof(scalar_t));
  const int64_t bytes = inputs[0].size(0) * row_bytes *
      std::count_if(grads.begin(), grads.end(), [](const auto& x) { return x.defined(); });
  const bool is_streamed = std::all_of(grads.begin(), grads.end(), [&](const auto& x) {
    return !x.defined() || can_stream(x.const_data_ptr(), row_bytes, bytes);
  });
  parallel_for(0, inputs[0].size(0), rows_per_task(length), [&](int64_t begin, int64_t end) {
    Rows<scalar_t> anchor(inputs[0]), positive(inputs[1]), negative(inputs[2]);
    for (int64_t row = begin; row < end; ++row) {
      const scalar_t *a = anchor[row], *p = positive[row], *n = negative[row];
      const opmath_t d_ap = distance[2 * row], d_an = distance[2 * row + 1];
      const opmath_t by_negative = d_ap - d_an >= tau1 ? 1 : 0;
      const opmath_t by_positive = by_negative + (d_ap >= tau2 ? beta : 0);
      const opmath_t grad = grad_loss[row * grad_losses.stride(0)] / static_cast<opmath_t>(divisor);
      const Vec to_negative(2 * grad * by_negative);
      const Vec to_positive(2 * grad * by_positive);
      const auto store = [&](scalar_t* to, const Pack& values, int64_t i, int64_t count) {
        // Rows of whole cache lines have no rest.
        if (to && is_streamed) {
          stream(to + row * length + i, values.converted());
        } else if (to) {
          values.converted().store(to + row * length + i, static_cast<int>(count));
        }
      };
      const auto put = [&](int64_t i, int64_t count) {
        const auto x = Pack::load(a + i, count), y = Pack::load(p + i, count), z = Pack::load(n + i, count);
        Pack of_anchor, of_positive, of_negative;
        for (int64_t part = 0; part < Pack::parts; ++part) {
          const Vec u = (x.part[part] - y.part[part]) * to_positive;
          const Vec v = (x.part[part] - z.part[part]) * to_negative;
          of_anchor.part[part] = u - v;
          of_positive.part[part] = u.neg();
          of_negative.part[part] = v;
        }
        store(grad_anchor, of_anchor, i, count);
        store(grad_positive, of_positive, i, count);
        store(grad_negative, of_negative, i, count);
      };
      // Whole vectors in a loop of their own, in which no load is masked.
      int64_t i = 0;
      for (; i + Pack::count <= length; i += Pack::count) {
        put(i, Pack::count);
      }
      if (i < length) {
        put(i, length - i);
      }
    }
    end_stream();
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
