// Calls for which C++ may find an operator. The functions return Mine and the operators Tensor, so the type of a
// variable says which is called. The comments are what check says: "error" where g++ calls the line ambiguous, else
// "warning" or nothing.
// clang-format off
#include <ATen/core/Tensor.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/add.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/digamma.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

struct Mine {};
using at::Tensor;

namespace mylib {

Mine digamma(const Tensor& x);
Mine erfc(Tensor x);
Mine log2(Tensor& x);
Mine tril(const Tensor& x, int n);
Mine triu(const Tensor& x, double n);
Mine softmax(const Tensor& x);
Mine cat(const std::vector<Tensor>& x);
Mine stack(at::TensorList x);
Mine relu(const std::optional<Tensor>& x);
Mine eye(int64_t n);
template <class T> Mine erf(const T& x);
Mine tan(const Tensor& x);
Mine mul(const Tensor& a, const Tensor& b, const Tensor& c);
Mine add(const Tensor& a, const Tensor& b, double alpha);
Mine cumsum(const Tensor& a, int64_t dim, bool reverse = false);
Mine neg(const at::TensorBase& a);
Mine sum(const Tensor& a, at::IntArrayRef dims);
Mine mm_out(const Tensor& a, const Tensor& b, Tensor& out);
Mine exp(Tensor&& a);
Mine sinh(const Tensor& a);

void calls(const Tensor& x, Tensor& v, int64_t n, int m, double d, const std::vector<Tensor>& l) {
  const std::optional<Tensor> o;
  at::TensorList list = l;
  Mine a1 = digamma(x);                               // error
  Mine a2 = digamma(v + v);                           // error
  Mine a3 = mylib::digamma(x);
  Mine a4 = (digamma)(x);
  auto a5 = x.digamma();
  Mine a6 = erfc(x);                                  // error
  Mine a7 = log2(v);
  Tensor a8 = log2(x);
  Tensor a9 = tril(x, n);                             // warning
  Mine a10 = tril(x, m);
  Mine a11 = triu(x, d);
  Mine a12 = triu(x, m);                              // ambiguous: warning
  Mine a13 = softmax(x);
  Mine a14 = cat(l);
  Mine a15 = stack(list);                             // error
  Mine a16 = relu(o);
  Tensor a17 = relu(x);                               // warning
  Mine a18 = eye(n);
  Tensor a19 = erf(x);                                // warning
  Mine a20 = erf(d);
  Mine a21 = mul(x, x, x);
  Mine a22 = add(x, x, 1.5);
  Mine a23 = add(x, x, m);
  Mine a24 = cumsum(x, n);                            // error
  Tensor a25 = neg(x);                                // warning
  Mine a26 = sum(x, {1});                             // ambiguous: warning
  Mine a27 = sum(x, a5.sizes());
  Mine a28 = mm_out(x, x, v);
  Mine a29 = mm_out(v, v, v);                         // ambiguous: warning
  Mine a30 = exp(std::move(v));
  auto tan = [](const Tensor& y) { return Mine(); };
  Mine a31 = tan(x);
  const auto inner = [](const Tensor& y) { return sinh(y); };  // error
  Mine (*pointer)(const Tensor&) = &sinh;
  Mine a32 = pointer(x);
}

Mine passed(const Tensor& x, Mine (*digamma)(const Tensor&)) { return digamma(x); }

struct Class {
  Mine acos(const Tensor& x);
  Mine inside(const Tensor& x) { return acos(x); }
  Mine outside(const Tensor& x);
};
Mine acos(const Tensor& x);
Mine Class::outside(const Tensor& x) { return acos(x); }

}

namespace {
Mine cosh(const Tensor& x);
Mine calls_unnamed(const Tensor& x) { return cosh(x); }  // error
}
Mine asin(const Tensor& x);
Mine calls_global(const Tensor& x) { return asin(x); }  // error
Mine mylib::digamma(const Tensor& x) { return digamma(x.neg()); }  // error

namespace at::native {
Tensor calls_later(const Tensor& x) { return atan(x); }
static Mine atan(const Tensor& x) { return Mine(); }
Mine calls_kernel(const Tensor& x) { return atan(x); }  // error
Tensor calls_operator(const Tensor& x) { return asin(x); }
Tensor calls_used(const Tensor& x) {
  using namespace mylib;
  return sinh(x);                                     // warning
}
}

namespace user {
using mylib::sinh;
Mine calls_used(const Tensor& x) { return sinh(x); }  // ambiguous: warning
}
