// ${generated_comment}
//
// Kernels of operators that write arguments which they do not return: for the device meta, and for conjugate and
// negative views, where PyTorch's fallback (aten/src/ATen/native/MathBitsFallback.h) expects that they are returned.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <utility>
#include <vector>

namespace at {
namespace {

// What the argument `value` has of tensors, with `change` applied to each.
template <class Change>
void for_each_tensor(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    auto tensor = std::move(value).toTensor();
    change(tensor);
    value = std::move(tensor);
  } else if (value.isTensorList()) {
    auto tensors = value.toTensorVector();
    for (auto& tensor : tensors) {
      change(tensor);
    }
    value = c10::List<Tensor>(std::move(tensors));
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> tensors;
    for (std::optional<Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor) {
        change(*tensor);
      }
      tensors.push_back(std::move(tensor));
    }
    value = std::move(tensors);
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// Tensors on the device meta have no data to write.
[[maybe_unused]] void writes_nothing(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  auto values = torch::jit::pop(*stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i])) {
      for_each_tensor(values[i], [&](Tensor& tensor) {
        TORCH_CHECK_NOT_IMPLEMENTED(
            !tensor.defined() || tensor.is_meta(),
            op.operator_name(),
            ": ",
            arguments[i].name(),
            " is on ",
            tensor.device(),
            ", and others are on the device meta, which have no data that could be written to it");
      });
    }
  }
}

// Copies each tensor with the bit, calls the operator, and copies what it has written back.
template <c10::DispatchKey key>
void materializes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  std::vector<std::pair<Tensor, Tensor>> copied;
  std::vector<bool> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    for_each_tensor((*stack)[first + i], [&](Tensor& tensor) {
      if (!tensor.defined() || !tensor.key_set().has(key)) {
        return;
      }
      for (size_t n = 0; n < copied.size(); ++n) {
        if (copied[n].first.is_same(tensor)) {
          written[n] = written[n] || is_written(arguments[i]);
          tensor = copied[n].second;
          return;
        }
      }
      copied.emplace_back(tensor, key == c10::DispatchKey::Conjugate ? tensor.resolve_conj() : tensor.resolve_neg());
      written.push_back(is_written(arguments[i]));
      tensor = copied.back().second;
    });
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key), stack);
  for (size_t n = 0; n < copied.size(); ++n) {
    if (written[n]) {
      copied[n].first.copy_(copied[n].second);
    }
  }
  for (auto place = stack->size() - op.schema().returns().size(); place < stack->size(); ++place) {
    for_each_tensor((*stack)[place], [&](Tensor& tensor) {
      for (const auto& [original, copy] : copied) {
        tensor = copy.is_same(tensor) ? original : tensor;
      }
    });
  }
}

} // namespace

${registrations}

} // namespace at
