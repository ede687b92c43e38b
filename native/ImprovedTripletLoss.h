#pragma once

#include <ATen/native/DispatchStub.h>

#include <array>
#include <cstdint>

namespace at {
class Tensor;
class TensorBase;
} // namespace at

namespace at::native {

// What the loss is made of, beside the tensors:
//   loss = max(d_ap - d_an, tau1) + beta * max(d_ap, tau2), d_ap = |anchor - positive|^2, d_an = |anchor - negative|^2
struct TripletParameters {
  double tau1;
  double tau2;
  double beta;
};

// Refuses what is no loss's inputs.
void check_triplet_inputs(const Tensor& anchor, const Tensor& positive, const Tensor& negative, int64_t reduction);

// Rows of anchor, positive and negative: [N, D], of any strides.
using TripletInputs = std::array<TensorBase, 3>;

// losses: [N], of what is computed in, float for the half types. distances: [N, 2], in the same type: d_ap and d_an of
// each row. Both contiguous.
using improved_triplet_loss_fn =
    void (*)(const TensorBase& losses, const TensorBase& distances, const TripletInputs&, const TripletParameters&);

// grads: contiguous, undefined where not wanted. grad_losses: one for each row, in the type of losses, or one for all
// with the stride 0; a row's loss counts for grad_losses / divisor. distances: as above.
using improved_triplet_loss_backward_fn = void (*)(
    const TripletInputs& grads,
    const TensorBase& grad_losses,
    int64_t divisor,
    const TensorBase& distances,
    const TripletInputs&,
    const TripletParameters&);

DECLARE_DISPATCH(improved_triplet_loss_fn, improved_triplet_loss_stub)
DECLARE_DISPATCH(improved_triplet_loss_backward_fn, improved_triplet_loss_backward_stub)

} // namespace at::native
