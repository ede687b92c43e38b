#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/GrammarCapability.h>

namespace at::native {
namespace {

// What the compiler itself was told, and not what a macro of PyTorch's says.
int64_t gr_capability_kernel() {
#if defined(__AVX512F__)
  return 512;
#elif defined(__AVX2__)
  return 2;
#elif defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS // 0 if the length is unknown
  return __ARM_FEATURE_SVE_BITS;
#else
  return 0;
#endif
}

} // namespace

ALSO_REGISTER_AVX512_DISPATCH(gr_capability_stub, &gr_capability_kernel)

} // namespace at::native
