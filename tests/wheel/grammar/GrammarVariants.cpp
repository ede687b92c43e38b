// Functional, in-place, out and mutable operators.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>

namespace at::native {

Tensor gr_square(const Tensor& self) {
  return self * self;
}

Tensor& gr_square_(Tensor& self) {
  return self.mul_(self);
}

Tensor& gr_square_out(const Tensor& self, Tensor& out) {
  return at::mul_out(out, self, self);
}

Tensor gr_cube(const Tensor& self) {
  return self * self * self;
}

Tensor& gr_paint_(Tensor& self, const Scalar& value) {
  return self.fill_(value);
}

Tensor gr_half(const Tensor& self) {
  return self / 2;
}

Tensor& gr_half_(Tensor& self) {
  return self.div_(2);
}

// Adds self to the total and returns the total of before.
Tensor gr_tally(const Tensor& self, Tensor& total) {
  Tensor before = total.clone();
  total.add_(self);
  return before;
}

void gr_bump_all_(TensorList self, const Scalar& step) {
  for (const Tensor& tensor : self) {
    tensor.add_(step);
  }
}

Tensor gr_join(const Tensor& self, const Tensor& other) {
  return self * other;
}

Tensor gr_join(const Tensor& self, const Scalar& other) {
  return self * other;
}

Tensor gr_join(const Tensor& self, std::string_view other, int64_t times) {
  return self * (static_cast<int64_t>(other.size()) * times);
}

Tensor gr_lerp_mode(const Tensor& self, std::string_view mode) {
  TORCH_CHECK_VALUE(mode == "half" || mode == "all", "lerp(): mode must be 'half' or 'all', not '", mode, "'");
  return mode == "half" ? self / 2 : self.clone();
}

Tensor gr_add_word(const Tensor& self, std::string_view word) {
  return self + static_cast<int64_t>(word.size());
}

Tensor& gr_add_word_(Tensor& self, std::string_view word) {
  return self.add_(static_cast<int64_t>(word.size()));
}

Tensor& gr_add_word_out(const Tensor& self, std::string_view word, Tensor& out) {
  return at::add_out(out, self, wrapped_scalar_tensor(static_cast<int64_t>(word.size())));
}

} // namespace at::native
