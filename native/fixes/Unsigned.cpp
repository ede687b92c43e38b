// pytorch#176298: addition and subtraction had no kernel for uint16, uint32 and uint64 on CPUs, which multiplication
// has. All other dtypes go to PyTorch's.

#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/cpu/Loops.h>
#include <ATen/ops/add_native.h>
#include <ATen/ops/sub_native.h>

namespace at::native {
namespace {

void add(TensorIteratorBase& iter, const Scalar& alpha) {
  const ScalarType type = iter.common_dtype();
  if (type != kUInt16 && type != kUInt32 && type != kUInt64) {
    return add_stub(iter.device_type(), iter, alpha);
  }
  AT_DISPATCH_V2(
      type,
      "add_stub",
      AT_WRAP([&] {
        // In 64 bits, since C++ computes with uint16_t in int, which overflows.
        const auto factor = static_cast<uint64_t>(alpha.to<scalar_t>());
        cpu_kernel(
            iter, [factor](scalar_t a, scalar_t b) -> scalar_t { return static_cast<scalar_t>(a + factor * b); });
      }),
      kUInt16,
      kUInt32,
      kUInt64);
}

} // namespace

TORCH_IMPL_FUNC(add_any)(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& out) {
  add(*this, alpha);
}

TORCH_IMPL_FUNC(sub_any)(const Tensor& self, const Tensor& other, const Scalar& alpha, const Tensor& out) {
  add(*this, -alpha);
}

} // namespace at::native
