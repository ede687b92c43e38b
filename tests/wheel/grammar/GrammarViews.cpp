// Views, and how functionalization undoes them.
#include <ATen/ATen.h>
#include <ATen/FunctionalInverses.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/NativeFunctions.h>

namespace at::functionalization {

Tensor FunctionalInverses::gr_diag_inverse(
    const Tensor& base,
    const Tensor& mutated_view,
    InverseReturnMode inverse_return_mode,
    int64_t offset) {
  return at::diagonal_scatter(base, mutated_view, offset, 0, 1);
}

Tensor FunctionalInverses::gr_swap_inverse(
    const Tensor& base,
    const Tensor& mutated_view,
    InverseReturnMode inverse_return_mode) {
  return at::transpose_copy(mutated_view, 0, 1);
}

Tensor FunctionalInverses::gr_window_inverse(
    const Tensor& base,
    const Tensor& mutated_view,
    InverseReturnMode inverse_return_mode,
    c10::SymInt start,
    c10::SymInt length) {
  return at::slice_scatter_symint(base, mutated_view, 0, start, start + length, 1);
}

Tensor FunctionalInverses::gr_halves_inverse(
    const Tensor& base,
    const Tensor& mutated_view,
    InverseReturnMode inverse_return_mode,
    int64_t mutated_view_idx,
    int64_t dim) {
  const c10::SymInt half = (base.sym_size(dim) + 1) / 2;
  const c10::SymInt start = mutated_view_idx * half;
  return at::slice_scatter_symint(base, mutated_view, dim, start, start + mutated_view.sym_size(dim), 1);
}

} // namespace at::functionalization

namespace at::native {

Tensor gr_turn(const Tensor& self) {
  return self.t();
}

Tensor gr_diag(const Tensor& self, int64_t offset) {
  return self.diagonal(offset, 0, 1);
}

Tensor gr_window_symint(const Tensor& self, c10::SymInt start, c10::SymInt length) {
  return self.slice_symint(0, start, start + length);
}

std::vector<Tensor> gr_halves(const Tensor& self, int64_t dim) {
  return self.split_symint((self.sym_size(dim) + 1) / 2, dim);
}

Tensor gr_swap(const Tensor& self) {
  return self.transpose(0, 1);
}

Tensor& gr_swap_(Tensor& self) {
  return self.transpose_(0, 1);
}

const Tensor& gr_grow_(const Tensor& self, IntArrayRef size) {
  return self.resize_(size);
}

} // namespace at::native
