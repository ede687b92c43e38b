// ${generated_comment}
//
// Tensors on the device meta have no data to write.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace at {
namespace {

void writes_nothing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

} // namespace

${registrations}

} // namespace at
