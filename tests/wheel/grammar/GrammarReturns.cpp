// Every type that an operator can return.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>

namespace at::native {

Tensor gr_extent_backward(
    const std::optional<Tensor>& grad_low,
    const std::optional<Tensor>& grad_high,
    const Tensor& self,
    const Tensor& low,
    const Tensor& high,
    int64_t dim) {
  Tensor grad = at::zeros_like(self);
  const auto spread = [&](const std::optional<Tensor>& incoming, const Tensor& value) {
    if (incoming.has_value() && incoming->defined()) {
      const Tensor hit = self == value.unsqueeze(dim);
      grad = grad + hit * (*incoming / hit.sum(dim)).unsqueeze(dim);
    }
  };
  spread(grad_low, low);
  spread(grad_high, high);
  return grad;
}

std::tuple<Tensor, Tensor> gr_two(const Tensor& self) {
  return {self.sin(), self.cos()};
}

// The two halves of the first n values, and their indices.
std::tuple<Tensor&, Tensor&, Tensor&>
gr_three_out(const Tensor& self, int64_t n, Tensor& first, Tensor& second, Tensor& indices) {
  for (Tensor* out : {&first, &second, &indices}) {
    at::native::resize_output(*out, {n});
  }
  const Tensor flat = self.reshape(-1);
  first.copy_(flat.narrow(0, 0, n));
  second.copy_(flat.narrow(0, n, n));
  at::arange_out(indices, n);
  return {first, second, indices};
}

std::tuple<Tensor, Tensor, Tensor> gr_three(const Tensor& self, int64_t n) {
  Tensor first = at::empty({n}, self.options());
  Tensor second = at::empty({n}, self.options());
  Tensor indices = at::empty({n}, self.options().dtype(kLong));
  at::native::gr_three_out(self, n, first, second, indices);
  return {first, second, indices};
}

std::tuple<Tensor, Tensor, Tensor> gr_three_meta(const Tensor& self, int64_t n) {
  return {at::empty({n}, self.options()), at::empty({n}, self.options()), at::empty({n}, self.options().dtype(kLong))};
}

std::vector<Tensor> gr_pieces(const Tensor& self, int64_t n) {
  std::vector<Tensor> pieces;
  for (const Tensor& piece : self.chunk(n)) {
    pieces.push_back(piece.clone());
  }
  return pieces;
}

std::tuple<Tensor, std::vector<Tensor>> gr_head_and_tail(const Tensor& self) {
  std::vector<Tensor> tail;
  for (int64_t i = 1; i < self.size(0); ++i) {
    tail.push_back(self[i].clone());
  }
  return {self[0].clone(), tail};
}

int64_t gr_count(const Tensor& self) {
  return self.count_nonzero().item<int64_t>();
}

c10::SymInt _gr_sym_length_forward(const Tensor& self) {
  return self.sym_numel() * 2;
}

double gr_mean_value(const Tensor& self) {
  return self.mean().item<double>();
}

bool gr_is_square(const Tensor& self) {
  return self.dim() == 2 && self.sym_size(0) == self.sym_size(1);
}

Scalar gr_first(const Tensor& self) {
  return self.reshape(-1)[0].item();
}

void gr_check(const Tensor& self, std::string_view message) {
  TORCH_CHECK(self.all().item<bool>(), message);
}

std::tuple<double, int64_t> gr_range(const Tensor& self) {
  return {self.max().item<double>() - self.min().item<double>(), self.numel()};
}

ScalarType gr_promoted(const Tensor& self, const Scalar& other) {
  return at::result_type(self, other);
}

// The double, and the triple if there are both.
std::tuple<Tensor, Tensor> gr_parts(const Tensor& x, bool both) {
  return {x.mul(2), both ? x.mul(3) : Tensor()};
}

Tensor gr_parts_backward(const std::optional<Tensor>& grad_first, const std::optional<Tensor>& grad_second) {
  const auto times = [](const std::optional<Tensor>& grad, int64_t by) {
    return grad.has_value() && grad->defined() ? grad->mul(by) : Tensor();
  };
  const Tensor first = times(grad_first, 2);
  const Tensor second = times(grad_second, 3);
  return first.defined() && second.defined() ? first.add(second) : first.defined() ? first : second;
}

std::tuple<Tensor, Tensor> gr_parts_composed(const Tensor& x, bool both) {
  return {x.mul(2), both ? x.mul(3) : Tensor()};
}

Tensor gr_part(const Tensor& x, bool is_there) {
  return is_there ? x.mul(2) : Tensor();
}

} // namespace at::native
