#pragma once

#include <ATen/native/DispatchStub.h>

#include <array>

namespace at {
class TensorBase;
}

namespace at::native {

// What the loss is made of, beside the tensors:
//   loss = max(d_ap - d_an, tau1) + beta * max(d_ap, tau2), d_ap = |anchor - positive|^2, d_an = |anchor - negative|^2
struct TripletParameters {
  double tau1;
  double tau2;
  double beta;
};

// Rows of anchor, positive and negative, whose elements lie one after another; the rows may lie anywhere.
using TripletInputs = std::array<TensorBase, 3>;

// losses: contiguous, in the type that is computed in, float for the half types.
using improved_triplet_loss_fn = void (*)(const TensorBase& losses, const TripletInputs&, const TripletParameters&);

// grads: contiguous, undefined where not wanted. grad_losses: one for each row, as losses.
using improved_triplet_loss_backward_fn =
    void (*)(const TripletInputs& grads, const TensorBase& grad_losses, const TripletInputs&, const TripletParameters&);

DECLARE_DISPATCH(improved_triplet_loss_fn, improved_triplet_loss_stub)
DECLARE_DISPATCH(improved_triplet_loss_backward_fn, improved_triplet_loss_backward_stub)

} // namespace at::native
