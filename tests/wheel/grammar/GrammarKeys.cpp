// A kernel for each kind of dispatch key, and what the flags of an entry bear on.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>

namespace at::native {

Tensor gr_backend_cpu(const Tensor& self) {
  return at::scalar_tensor(1, kLong);
}

Tensor gr_backend_meta(const Tensor& self) {
  return at::empty({}, self.options().dtype(kLong));
}

Tensor gr_backend_mkldnn(const Tensor& self) {
  return at::scalar_tensor(4, kLong);
}

Tensor gr_backend_zero(const Tensor& self) {
  return at::scalar_tensor(7, kLong);
}

Tensor gr_new_storage(const Tensor& self) {
  return self.clone();
}

Tensor gr_not_nested(const Tensor& self) {
  return self + 1;
}

Tensor gr_nested(const Tensor& self) {
  return self * 3;
}

Tensor gr_by_key(const Tensor& self) {
  return self * 2;
}

Tensor gr_lengths_symint(const Tensor& self, IntArrayRef stride, c10::SymIntArrayRef size) {
  return self.new_full_symint(size, stride[0] + 10 * stride[1], kLong);
}

Tensor gr_defaults(const Tensor& self, int64_t a, int64_t b) {
  return self + (a + b);
}

Tensor gr_defaults(const Tensor& self, int64_t a, std::string_view b) {
  return self + 10 * a * static_cast<int64_t>(b.size());
}

Tensor gr_made_from(
    const Tensor& values,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  return at::empty(values.sizes(), dtype, layout, device, pin_memory, std::nullopt).copy_(values);
}

Tensor gr_nonzero_values(const Tensor& self) {
  return self.masked_select(self != 0);
}

Tensor gr_strided(const Tensor& self) {
  return at::empty_strided(self.sizes(), self.strides(), self.options()).copy_(self);
}

bool gr_shares_storage(const Tensor& self, Storage source) {
  return self.storage().unsafeGetStorageImpl() == source.unsafeGetStorageImpl();
}

QScheme gr_scheme(const Tensor& self) {
  return self.qscheme();
}

int64_t gr_next_device(DeviceIndex device_index) {
  return device_index + 1;
}

void gr_nothing() {}

int64_t gr_stream_id(const Tensor& self, Stream s) {
  return s.id();
}

c10::SymBool _gr_is_even_forward(const Tensor& self) {
  return (self.sym_numel() % 2).sym_eq(0);
}

Tensor gr_pair(TensorList pair) {
  TORCH_CHECK(pair.size() == 2, "gr_pair(): expected two tensors");
  return pair[0] - pair[1];
}

} // namespace at::native

namespace grammar::native {

at::Tensor gr_elsewhere(const at::Tensor& self) {
  return self + 8;
}

} // namespace grammar::native
