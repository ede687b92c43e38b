// Registers an error for each kernel that is not compiled.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace {
namespace missing_cuda {

void raise(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      op.schema().name(),
      ": its kernel for CUDA is not in this torch, since there was no CUDA toolkit when it was built, or CUDA_ARCHS ",
      "was set to none. Where pip can fetch the toolkit, or with CUDA_HOME set to one, run `make patch-and-build` ",
      "again");
}

torch::CppFunction missing() {
  return torch::CppFunction::makeFromBoxedFunction<&raise>();
}

${registrations}

} // namespace missing_cuda
} // namespace
