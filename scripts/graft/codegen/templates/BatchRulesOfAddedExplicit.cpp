// ${generated_comment}
//
// Batching rules of the added operators with a kernel for CompositeExplicitAutograd. Such a kernel calls operators that
// have batching rules: called with the whole batch, it is a batching rule itself. Where it does something else, such as
// reading numbers off a tensor, vmap raises an error, and the operator is called for each sample, as without a rule.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/functorch/TensorWrapper.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>

namespace at::functorch {

// Of libtorch_cpu (ATen/functorch/BatchedFallback.h, which costs more to read than it saves to write).
void batchedTensorForLoopFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

namespace {

template <typename Function>
void for_each_defined_tensor(const IValue& value, const Function& function) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      function(value.toTensor());
    }
  } else if (value.isList()) {
    for (const IValue& element : value.toListRef()) {
      for_each_defined_tensor(element, function);
    }
  }
}

// Whether the operators in the kernel cannot stand for `op` on `tensor`: where derivatives are taken outside of vmap,
// those of its own formula are asked for, and where the backend has a kernel of its own, that kernel.
bool needs_operator_itself(const c10::OperatorHandle& op, Tensor tensor) {
  while (true) {
    if ((GradMode::is_enabled() && tensor.requires_grad()) || tensor._fw_grad(/*level=*/0).defined()) {
      return true;
    }
    Tensor inner;
    if (const auto* batched = maybeGetBatchedImpl(tensor)) {
      inner = batched->value();
    } else if (const auto* wrapper = maybeGetTensorWrapper(tensor)) {
      inner = wrapper->value();
    } else {
      break;
    }
    tensor = std::move(inner);
  }
  // Keys that tensors of every backend have.
  const auto shared = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      DispatchKeySet(DispatchKey::Functionalize);
  const auto keys = tensor.key_set();
  // A kernel for Meta computes nothing that could differ.
  return !keys.has_backend(c10::BackendComponent::MetaBit) && op.hasKernelForAnyDispatchKey(keys - shared);
}

// Autocast comes after vmap, and casts the arguments of an operator that it still finds there.
bool has_autocast_policy(const c10::OperatorHandle& op) {
  return op.hasKernelForAnyDispatchKey(
      c10::autocast_dispatch_keyset - c10::impl::tls_local_dispatch_key_set().excluded_);
}

// Whether the loop takes an operator (batchedTensorForLoopFallback).
bool can_loop(const FunctionSchema& schema) {
  const auto is_tensor = [](const Argument& argument) { return argument.type() == TensorType::get(); };
  const auto is_list = [](const Argument& argument) {
    return argument.type()->isSubtypeOf(*ListType::ofTensors()) ||
        argument.type()->isSubtypeOf(*ListType::ofOptionalTensors());
  };
  const auto& arguments = schema.arguments();
  const auto& returns = schema.returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), is_tensor) &&
      std::none_of(arguments.begin(), arguments.end(), is_list) && !schema.hasAnyAliasInfo();
}

// Copies a result that is the same for every sample, so that it can be written to, as the loop's can.
Tensor for_each_sample(const Tensor& result, const DynamicLayer& layer) {
  if (!result.defined() || isBatchedAtLevel(result, layer.layerId())) {
    return result;
  }
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  c10::SymDimVector sizes(result.sym_sizes());
  sizes.insert(sizes.begin(), layer.batchSize());
  return makeBatched(result.unsqueeze(0).expand_symint(sizes).clone(MemoryFormat::Contiguous), 0, layer.layerId());
}

// Calls the kernel with the batch; `values` are the arguments and then the results.
void call_explicit_kernel(const c10::OperatorHandle& op, torch::jit::Stack& values, const DynamicLayer& layer) {
  op.callBoxedForDispatchKey(DispatchKey::CompositeExplicitAutograd, values);
  if (op.schema().hasAnyAliasInfo()) {
    return;
  }
  for (auto& value : values) {
    if (value.isTensor()) {
      value = for_each_sample(value.toTensor(), layer);
    } else if (value.isTensorList()) {
      auto tensors = value.toTensorVector();
      for (auto& tensor : tensors) {
        tensor = for_each_sample(tensor, layer);
      }
      value = std::move(tensors);
    }
  }
}

void explicit_batching_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto layer = maybeCurrentDynamicLayer();
  vmap_check_escaped(layer, "explicit_batching_rule");
  const auto arguments = torch::jit::last(*stack, schema.arguments().size());
  bool is_any_batched = false;
  bool is_kept_whole = has_autocast_policy(op);
  for (const auto& argument : arguments) {
    for_each_defined_tensor(argument, [&](const Tensor& tensor) {
      is_any_batched |= isBatchedAtLevel(tensor, layer->layerId());
      is_kept_whole |= needs_operator_itself(op, tensor);
    });
  }
  if (!is_any_batched) {
    c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
    op.callBoxed(stack);
    return;
  }
  if (is_kept_whole) {
    batchedTensorForLoopFallback(op, stack);
    return;
  }
  torch::jit::Stack values(arguments.begin(), arguments.end());
  try {
    call_explicit_kernel(op, values, *layer);
    torch::jit::drop(stack, arguments.size());
    stack->insert(stack->end(), values.begin(), values.end());
    return;
  } catch (c10::Error& error) {
    if (!can_loop(schema)) {
      error.add_context(
          c10::str("vmap: ", op.operator_name(), " got the whole batch; we could not generate a fallback"));
      throw;
    }
  }
  // What is the user's own error is raised again here, in terms of one sample.
  batchedTensorForLoopFallback(op, stack);
}

} // namespace

${registrations}

} // namespace at::functorch
