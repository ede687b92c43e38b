// ${generated_comment}
//
// Under vmap, operators that write positional arguments raise an error: what is written may have no batch dimension.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace at::functorch {
namespace {

void writing_batching_rule(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      op.operator_name(),
      ": it writes its arguments, and torch.vmap needs a batching rule for that; write a batching rule",
      op.schema().returns().empty() ? " (gen_vmap_plumbing_no_returns)" : "",
      " in a .cpp file of its native folder");
}

} // namespace

${registrations}

} // namespace at::functorch
