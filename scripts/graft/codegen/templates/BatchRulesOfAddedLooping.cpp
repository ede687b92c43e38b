// ${generated_comment}
//
// Batching rules of the added operators with a kernel for CompositeExplicitAutograd. Such a kernel calls operators that
// have batching rules: called with the whole batch, it is a batching rule itself. Where it does something else, such as
// reading numbers off a tensor, vmap raises an error, and the operator is called for each sample, as without a rule.
//
// Operators with lists of tensors and other kernels are always called for each sample: PyTorch's loop refuses lists.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/functorch/TensorWrapper.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <algorithm>

namespace at::functorch {

// Of libtorch_cpu (ATen/functorch/BatchedFallback.h and BatchRulesHelper.h, which cost more to read than they save to
// write).
void batchedTensorForLoopFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);
TORCH_API bool isVmapFallbackEnabled();
TORCH_API bool isVmapFallbackWarningEnabled();
[[noreturn]] void vmapIncompatibleInplaceError(const char* schema_name);

namespace {

// Whether `holds` is true of a defined tensor among the values, or in a list among them.
template <typename Predicate>
bool any_tensor(c10::ArrayRef<IValue> values, const Predicate& holds) {
  return std::any_of(values.begin(), values.end(), [&](const IValue& value) {
    if (value.isTensor()) {
      return value.toTensor().defined() && holds(value.toTensor());
    }
    return value.isList() && any_tensor(value.toListRef(), holds);
  });
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

// Whether a loop can stack the results of an operator: tensors or lists of tensors, which are no views.
bool can_loop(const FunctionSchema& schema) {
  const auto is_of_tensors = [](const Argument& result) {
    return result.type() == TensorType::get() || result.type()->isSubtypeOf(*ListType::ofTensors());
  };
  const auto& returns = schema.returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), is_of_tensors) && !schema.hasAnyAliasInfo();
}

// Raises an error, or gives PyTorch's warning, as PyTorch's loop does.
void check_loop(const c10::OperatorHandle& op, int64_t size) {
  TORCH_CHECK(isVmapFallbackEnabled(), op.operator_name(), " hit the vmap fallback which is currently disabled");
  TORCH_CHECK(
      size > 0,
      "Batching rule not implemented for ",
      op.operator_name(),
      ", so vmap calls it for each sample, and cannot know the shape of its results for a batch of size 0");
  if (isVmapFallbackWarningEnabled()) {
    TORCH_WARN(
        "There is a performance drop because we have not yet implemented the batching rule for ",
        op.operator_name(),
        ". Please file us an issue on GitHub so that we can prioritize its implementation.");
  }
}

// The argument for one sample: of tensors, also in a list, those that are batched at this level are sliced.
IValue sample_of(const IValue& value, int64_t index, int64_t level) {
  if (value.isTensor()) {
    const auto [tensor, dim] = unwrapTensorAtLevel(value.toTensor(), level);
    return dim ? tensor.select(*dim, index) : tensor;
  }
  if (!value.isList()) {
    return value;
  }
  auto list = value.toList().copy();
  for (const auto i : c10::irange(list.size())) {
    list.set(i, sample_of(list.get(i), index, level));
  }
  return list;
}

// Stacks the results for the samples, in a list element by element. A result that is undefined for all stays undefined.
IValue batch_of(const std::vector<IValue>& samples, const c10::OperatorHandle& op, int64_t level) {
  const bool is_tensor = samples.front().isTensor();
  std::vector<std::vector<Tensor>> columns(is_tensor ? 1 : samples.front().toListRef().size());
  for (const auto& sample : samples) {
    const auto tensors = is_tensor ? std::vector<Tensor>{sample.toTensor()} : sample.toTensorVector();
    TORCH_CHECK(
        tensors.size() == columns.size(),
        "vmap: ",
        op.operator_name(),
        " returned a list of ",
        columns.size(),
        " tensors for one sample, and of ",
        tensors.size(),
        " for another");
    for (const auto i : c10::irange(tensors.size())) {
      columns[i].push_back(tensors[i]);
    }
  }
  std::vector<Tensor> results;
  for (const auto& column : columns) {
    const auto is_defined = [](const Tensor& tensor) { return tensor.defined(); };
    const auto count = static_cast<size_t>(std::count_if(column.begin(), column.end(), is_defined));
    TORCH_CHECK(
        count == 0 || count == column.size(),
        "vmap: ",
        op.operator_name(),
        " returned an undefined tensor for some samples, but not for all");
    results.push_back(count == 0 ? Tensor() : makeBatched(at::stack(column), 0, level));
  }
  return is_tensor ? IValue(results.front()) : IValue(results);
}

// Calls `op` for each sample, and stacks the results.
void loop_over_samples(const c10::OperatorHandle& op, torch::jit::Stack* stack, const DynamicLayer& layer) {
  const auto level = layer.layerId();
  const auto size = layer.batchSize().guard_int(__FILE__, __LINE__);
  check_loop(op, size);
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const bool is_in_place = op.schema().is_mutable();
  if (is_in_place && !isBatchedAtLevel(arguments.front().toTensor(), level)) {
    vmapIncompatibleInplaceError(op.schema().name().c_str());
  }
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  std::vector<std::vector<IValue>> results(op.schema().returns().size());
  for (const auto i : c10::irange(size)) {
    torch::jit::Stack values;
    for (const auto& argument : arguments) {
      values.push_back(sample_of(argument, i, level));
    }
    op.callBoxed(values);
    for (const auto j : c10::irange(results.size())) {
      results[j].push_back(std::move(values[j]));
    }
  }
  for (const auto& samples : results) {
    stack->push_back(is_in_place ? arguments.front() : batch_of(samples, op, level));
  }
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

// Calls the kernel with the batch, or each sample where it cannot stand for the operator.
void call_explicit_kernel_or_loop(const c10::OperatorHandle& op, torch::jit::Stack* stack, const DynamicLayer& layer) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto is_needed = [&](const Tensor& tensor) { return needs_operator_itself(op, tensor); };
  if (has_autocast_policy(op) || any_tensor(arguments, is_needed)) {
    // What cannot be looped over, PyTorch's loop refuses with an error.
    can_loop(op.schema()) ? loop_over_samples(op, stack, layer) : batchedTensorForLoopFallback(op, stack);
    return;
  }
  torch::jit::Stack values(arguments.begin(), arguments.end());
  try {
    call_explicit_kernel(op, values, layer);
    torch::jit::drop(stack, arguments.size());
    stack->insert(stack->end(), values.begin(), values.end());
    return;
  } catch (c10::Error& error) {
    if (!can_loop(op.schema())) {
      error.add_context(
          c10::str("vmap: ", op.operator_name(), " got the whole batch; we could not generate a fallback"));
      throw;
    }
  }
  // What is the user's own error is raised again here, in terms of one sample.
  loop_over_samples(op, stack, layer);
}

// Calls `rule` if an argument is batched at this level; if only at an outer one, the operator.
template <typename Rule>
void for_batch(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Rule& rule) {
  const auto layer = maybeCurrentDynamicLayer();
  vmap_check_escaped(layer, op.schema().name().c_str());
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  if (any_tensor(arguments, [&](const Tensor& tensor) { return isBatchedAtLevel(tensor, layer->layerId()); })) {
    rule(op, stack, *layer);
    return;
  }
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  op.callBoxed(stack);
}

[[maybe_unused]] void explicit_batching_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for_batch(op, stack, call_explicit_kernel_or_loop);
}

[[maybe_unused]] void looping_batching_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for_batch(op, stack, loop_over_samples);
}

} // namespace

${registrations}

} // namespace at::functorch
