// Tells which of the copies of a vectorized kernel runs.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/native/GrammarCapability.h>
#include <ATen/ops/gr_capability_native.h>

namespace at::native {

DEFINE_DISPATCH(gr_capability_stub);

int64_t gr_capability(const Tensor& self) {
  return gr_capability_stub(self.device().type());
}

} // namespace at::native
