#pragma once

#include <ATen/native/DispatchStub.h>
#include <c10/macros/Macros.h>

#include <array>
#include <cstdint>

namespace at {
class TensorBase;
}

namespace at::native {

struct TripletParameters {
  double tau1;
  double tau2;
  double beta;
};

// The loss of one row by its squared distances d_ap = |anchor - positive|^2 and d_an = |anchor - negative|^2, for the
// kernels of all devices. T: the type of the computation.
template <typename T>
struct TripletFormula {
  // The derivatives of the loss.
  struct Slopes {
    T by_ap;
    T by_an;
  };

  explicit TripletFormula(const TripletParameters& p)
      : tau1(static_cast<T>(p.tau1)), tau2(static_cast<T>(p.tau2)), beta(static_cast<T>(p.beta)) {}

  C10_HOST_DEVICE T loss(T d_ap, T d_an) const {
    return hinge(d_ap - d_an, tau1) + beta * hinge(d_ap, tau2);
  }

  // At the kinks it is 1, like that of clamp(min=).
  C10_HOST_DEVICE Slopes slopes(T d_ap, T d_an) const {
    const T first = d_ap - d_an >= tau1 ? 1 : 0;
    return {first + (d_ap >= tau2 ? beta : 0), -first};
  }

  // NaN in either argument gives NaN, as with clamp. The last line is an instruction, since distances would be
  // predicted badly.
  static C10_HOST_DEVICE T hinge(T x, T tau) {
    if (tau != tau) {
      return tau;
    }
    return tau > x ? tau : x;
  }

  T tau1;
  T tau2;
  T beta;
};

// Rows of anchor, positive and negative: [N, D], of any strides.
using TripletInputs = std::array<TensorBase, 3>;

// losses: [N], in the type of the computation, float for half types. distances: [N, 2], in the same type: d_ap and d_an
// of each row. Both contiguous.
using improved_triplet_loss_fn =
    void (*)(const TensorBase& losses, const TensorBase& distances, const TripletInputs&, const TripletParameters&);

// grads: contiguous, undefined where not wanted. grad_losses and distances: as above.
using improved_triplet_loss_backward_fn = void (*)(
    const TripletInputs& grads,
    const TensorBase& grad_losses,
    const TensorBase& distances,
    const TripletInputs&,
    const TripletParameters&);

DECLARE_DISPATCH(improved_triplet_loss_fn, improved_triplet_loss_stub)
DECLARE_DISPATCH(improved_triplet_loss_backward_fn, improved_triplet_loss_backward_stub)

} // namespace at::native
