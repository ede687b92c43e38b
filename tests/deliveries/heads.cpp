// An extension as the field writes them: kernels by value, lambdas, schemas from signatures, written arguments.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/div.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sub.h>
#include <torch/library.h>

using at::Tensor;

namespace {

Tensor scale_by(Tensor x, double factor) {
  return x * factor;
}

std::tuple<Tensor, Tensor> top_heads(const Tensor& scores, int64_t k) {
  return scores.topk(k);
}

Tensor sum_lists(at::TensorList xs, std::vector<int64_t> dims, std::optional<double> weight, std::string mode) {
  Tensor total = xs[0].sum(dims);
  for (size_t i = 1; i < xs.size(); ++i) {
    total = total + xs[i].sum(dims);
  }
  const double count = mode == "mean" ? static_cast<double>(xs.size()) : 1.;
  return total / count * weight.value_or(1.);
}

void accumulate(Tensor& into, const Tensor& x) {
  float* data = into.data_ptr<float>();
  for (int64_t i = 0; i < into.numel(); ++i) {
    data[i] += x.data_ptr<float>()[i];
  }
}

void rotate(const Tensor& positions, Tensor query, std::optional<Tensor> key) {
  query.add_(positions);
  if (key) {
    key->add_(positions);
  }
}

Tensor widen(const Tensor& self, c10::SymIntArrayRef sizes) {
  return self.expand_symint(sizes).clone();
}

Tensor repeat(const Tensor& x, int64_t times) {
  return x.repeat({times});
}

int64_t version() {
  return 7;
}

std::optional<Tensor> maybe(const Tensor& x, bool give) {
  return give ? std::optional<Tensor>(x + 1) : std::nullopt;
}

Tensor& copy_to(const Tensor& x, Tensor& out) {
  return out.copy_(x);
}

Tensor of_integers(const Tensor& x, int64_t n) {
  return x + n;
}

Tensor of_floats(const Tensor& x, double n) {
  return x + 10 * n;
}

std::tuple<Tensor, Tensor> halves(const Tensor& x) {
  return {x / 2, x - x / 2};
}

std::tuple<Tensor&, Tensor&> halves_out(const Tensor& x, Tensor& low, Tensor& high) {
  at::div_out(low, x, at::scalar_tensor(2));
  at::sub_out(high, x, low);
  return {low, high};
}

Tensor clash(const Tensor& x, const Tensor& result, int64_t node) {
  return x + result * node;
}

int64_t last_notice = 0;

void notice(const Tensor& x, int64_t n) {
  last_notice = n;
}

int64_t noticed() {
  return last_notice;
}

} // namespace

TORCH_LIBRARY(heads, m) {
  m.def("halves(Tensor x) -> (Tensor low, Tensor high)");
  m.def("halves.out(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(a!), Tensor(b!))");
  m.def("notice", &notice);
  m.def("noticed", &noticed);
  m.def("scale_by(Tensor x, float factor=2.0) -> Tensor");
  m.def("top_heads(Tensor scores, int k) -> (Tensor values, Tensor indices)");
  m.def("sum_lists(Tensor[] xs, int[] dims=[0, 1], float? weight=None, str mode='sum') -> Tensor", &sum_lists);
  m.def("accumulate(Tensor(out!) into, Tensor x) -> ()");
  m.def("rotate(Tensor positions, Tensor(a!) query, Tensor(b!)? key) -> ()");
  m.def("stamp(Tensor! into, Tensor x) -> ()");
  m.def("clash(Tensor x, Tensor result, int node) -> Tensor");
  m.def("widen(Tensor self, SymInt[] sizes) -> Tensor");
  m.def("repeat_of(Tensor x, SymInt times) -> Tensor");
  m.def("version", &version);
  m.def("maybe(Tensor x, bool give) -> Tensor?");
  m.def("copy_to(Tensor x, Tensor(a!) out) -> Tensor(a!)");
  m.def("lambda_only(Tensor x) -> Tensor");
  m.def("shift.integer(Tensor x, int n) -> Tensor");
  m.def("shift.number(Tensor x, float n) -> Tensor");
  m.def("of_lists(Tensor[][] xs) -> Tensor");
}

TORCH_LIBRARY_IMPL(heads, CPU, m) {
  m.impl("halves", &halves);
  m.impl("halves.out", &halves_out);
  m.impl("scale_by", &scale_by);
  m.impl("top_heads", &top_heads);
  m.impl("accumulate", &accumulate);
  m.impl("rotate", &rotate);
  m.impl("stamp", &accumulate);
  m.impl("clash", &clash);
  m.impl("maybe", &maybe);
  m.impl("copy_to", &copy_to);
  m.impl("repeat_of", &repeat);
  m.impl("lambda_only", [](const Tensor& x) { return x + 5; });
  m.impl("shift.integer", &of_integers);
  m.impl("shift.number", &of_floats);
}

TORCH_LIBRARY_IMPL(heads, CompositeExplicitAutograd, m) {
  m.impl("widen", &widen);
}
