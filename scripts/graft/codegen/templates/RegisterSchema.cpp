// ${generated_comment}
// A second library opens a fragment of the aten namespace: the library itself is libtorch_cpu's.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <torch/library.h>

namespace at {
TORCH_LIBRARY_FRAGMENT(aten, m) {
  ${aten_schema_registrations};
}
${schema_registrations}
}  // namespace at
