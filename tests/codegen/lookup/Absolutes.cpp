// Calls of abs. The comments are what check says, with a header for abs of tensors, and without one.
// test_lookup.py writes the texts for HEADER and TENSORS.
// clang-format off
#include <ATen/core/Tensor.h>
#include <cmath>
// HEADER

template <typename scalar_t>
struct Vectorized {
  Vectorized abs() const;
};
struct Has {
  float abs(float x);
  float inside(float x) { return abs(x); }
};
float outside(float x) { return static_cast<float>(abs(2)); }

namespace at::native {
namespace {
void calls(float f, double d, int64_t n, int i, const Tensor& x, const Vectorized<float>& v, const float* p) {
  float a1 = abs(f);             // warning warning
  float a2 = std::abs(f);
  double a3 = abs(d);            // warning warning
  int64_t a4 = abs(n);           // warning warning
  int64_t a5 = std::abs(n);
  float a6 = abs(*p);            // warning
  auto a7 = v.abs();
  auto a8 = x.abs();
  int a9 = abs(3);               // - warning
  auto a10 = [](double y) { return abs(y); };  // warning warning
}
float declares(float x, float (*abs)(float)) { return abs(x); }
// TENSORS
}
}
