// Operators that Python finds in a module of torch.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Reduction.h>

namespace at::meta {

TORCH_META_FUNC(linalg_gr_anti_trace)(const Tensor& A) {
  TORCH_CHECK(A.dim() == 2 && A.sym_size(0) == A.sym_size(1), "linalg.gr_anti_trace: expected a square matrix");
  set_output_raw_strided(0, {}, {}, A.options());
}

} // namespace at::meta

namespace at::native {

TORCH_IMPL_FUNC(linalg_gr_anti_trace_out)(const Tensor& A, const Tensor& result) {
  result.copy_(A.flip({1}).diagonal().sum());
}

Tensor gr_gate(const Tensor& self, const std::optional<Tensor>& weight, int64_t reduction) {
  const Tensor weighted = weight.has_value() && weight->defined() ? self * *weight : self;
  return reduction == at::Reduction::Mean ? weighted.sum() / self.sym_numel() : weighted.sum();
}

Tensor& gr_gate_out(const Tensor& self, const std::optional<Tensor>& weight, int64_t reduction, Tensor& out) {
  out.resize_({});
  return out.copy_(at::native::gr_gate(self, weight, reduction));
}

Tensor fft_gr_center(const Tensor& self, OptionalIntArrayRef dim) {
  return at::fft_fftshift(self, dim);
}

Tensor special_gr_bump(const Tensor& self) {
  return (-self * self).exp();
}

int64_t sparse_gr_count(const Tensor& self, bool stored) {
  return stored ? self._nnz() : self.sym_numel().guard_int(__FILE__, __LINE__) - self._nnz();
}

int64_t nested_gr_width(const Tensor& self) {
  return self.size(-1);
}

Tensor special_entr(const Tensor& self, int64_t times) {
  return at::special_entr(self) * times;
}

Tensor gr_gelu_times(const Tensor& self, int64_t times) {
  return at::gelu(self) * times;
}

Tensor gr_zeros_word(
    int64_t n,
    std::string_view word,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  return at::full({n}, static_cast<int64_t>(word.size()), dtype.value_or(kLong), layout, device, pin_memory);
}

Tensor gr_method_only(const Tensor& self, int64_t n) {
  return self * n;
}

Tensor _gr_secret(const Tensor& self) {
  return self + 42;
}

Tensor __gr__(const Tensor& self, const Tensor& other) {
  return self * 100 + other;
}

} // namespace at::native
