// Every type that an argument can have. Most kernels return what arrived as a tensor.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/DistributionsHelper.h>

namespace at::native {
namespace {

// In place of an argument that is None.
constexpr int64_t none = -99;

Tensor text(std::string_view string) {
  std::vector<int64_t> codes(string.begin(), string.end());
  return at::tensor(codes, kLong);
}

} // namespace

Tensor gr_maybe_add(const Tensor& self, const std::optional<Tensor>& other, const std::optional<Tensor>& third) {
  Tensor result = self.clone();
  if (other.has_value() && other->defined()) {
    result = result + *other;
  }
  if (third.has_value() && third->defined()) {
    result = result + 2 * *third;
  }
  return result;
}

std::tuple<Tensor, Tensor, Tensor> gr_maybe_add_backward(const Tensor& grad, std::array<bool, 3> mask) {
  if (!grad.defined()) {
    return {};
  }
  return {mask[0] ? grad : Tensor(), mask[1] ? grad : Tensor(), mask[2] ? 2 * grad : Tensor()};
}

Tensor gr_sum_list(TensorList tensors, const Scalar& scale) {
  Tensor sum = tensors[0] * scale;
  for (const Tensor& tensor : tensors.slice(1)) {
    sum = sum + tensor * scale;
  }
  return sum;
}

std::vector<Tensor> gr_sum_list_backward(const Tensor& grad, int64_t n, const Scalar& scale) {
  return std::vector<Tensor>(n, grad.defined() ? grad * scale : Tensor());
}

Tensor gr_sum_some(const Tensor& self, const c10::List<std::optional<Tensor>>& parts) {
  Tensor sum = self.clone();
  for (const std::optional<Tensor>& part : parts) {
    if (part.has_value() && part->defined()) {
      sum = sum + *part;
    }
  }
  return sum;
}

Tensor gr_poly(const Tensor& self, ArrayRef<Scalar> coefficients) {
  Tensor sum = at::zeros_like(self);
  for (size_t i = 0; i < coefficients.size(); ++i) {
    sum = sum + self.pow(static_cast<int64_t>(i)) * coefficients[i];
  }
  return sum;
}

Tensor gr_poly_derivative(const Tensor& self, ArrayRef<Scalar> coefficients) {
  Tensor sum = at::zeros_like(self);
  for (size_t i = 1; i < coefficients.size(); ++i) {
    sum = sum + self.pow(static_cast<int64_t>(i) - 1) * coefficients[i] * static_cast<int64_t>(i);
  }
  return sum;
}

Tensor gr_ints(
    const Tensor& self,
    int64_t a,
    std::optional<int64_t> b,
    IntArrayRef c,
    OptionalIntArrayRef d,
    IntArrayRef e,
    int64_t f,
    std::optional<int64_t> g,
    IntArrayRef h,
    OptionalIntArrayRef i,
    int64_t reduction,
    OptionalIntArrayRef pair) {
  std::vector<int64_t> values{a, b.value_or(none)};
  const auto append = [&](IntArrayRef more) { values.insert(values.end(), more.begin(), more.end()); };
  append(c);
  append(d.value_or(IntArrayRef{none}));
  append(e);
  append({f, g.value_or(none)});
  append(h);
  append(i.value_or(IntArrayRef{none}));
  append({reduction});
  append(pair.value_or(IntArrayRef{none}));
  return at::tensor(values, self.options().dtype(kLong));
}

Tensor gr_floats(
    const Tensor& self,
    double a,
    std::optional<double> b,
    std::optional<ArrayRef<double>> c,
    double d,
    const Scalar& e,
    const std::optional<Scalar>& f) {
  std::vector<double> values{a, b.value_or(none)};
  if (c.has_value()) {
    values.insert(values.end(), c->begin(), c->end());
  }
  values.insert(values.end(), {d, e.toDouble(), f.has_value() ? f->toDouble() : none});
  return at::tensor(values, kDouble);
}

Tensor gr_bools(const Tensor& self, bool a, bool b, std::optional<bool> c) {
  return at::tensor({int64_t{a}, int64_t{b}, c.has_value() ? int64_t{*c} : none});
}

Tensor gr_strings(const Tensor& self, std::string_view a, std::optional<std::string_view> b, std::string_view c) {
  return at::cat({text(a), b.has_value() ? text(*b) : at::tensor({none}), text(c)});
}

Tensor gr_kinds(
    const Tensor& self,
    ScalarType dtype,
    std::optional<ScalarType> other,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory,
    MemoryFormat memory_format) {
  const auto number = [](auto value) { return value.has_value() ? static_cast<int64_t>(*value) : none; };
  return at::tensor(
      {static_cast<int64_t>(dtype),
       number(other),
       number(layout),
       device.has_value() ? static_cast<int64_t>(device->type()) : none,
       number(pin_memory),
       static_cast<int64_t>(memory_format)});
}

Tensor gr_noise(const Tensor& self, double scale, std::optional<Generator> generator) {
  auto* source = get_generator_or_default<CPUGeneratorImpl>(generator, detail::getDefaultCPUGenerator());
  std::lock_guard<std::mutex> lock(source->mutex_);
  at::uniform_real_distribution<double> uniform(0, scale);
  return self + uniform(source);
}

Tensor gr_factory(
    IntArrayRef size,
    const Scalar& value,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  return at::empty(size, dtype, layout, device, pin_memory, std::nullopt).fill_(value);
}

Tensor gr_full_like(
    const Tensor& self,
    const Scalar& value,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory,
    std::optional<MemoryFormat> memory_format) {
  return at::empty_like(self, dtype, layout, device, pin_memory, memory_format).fill_(value);
}

Tensor new_gr_filled(
    const Tensor& self,
    IntArrayRef size,
    const Scalar& value,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  return self.new_empty(size, dtype, layout, device, pin_memory).fill_(value);
}

} // namespace at::native
