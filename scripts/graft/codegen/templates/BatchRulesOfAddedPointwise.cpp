// ${generated_comment}
//
// Batching rules of the added operators that are tagged pointwise: the batch dimension of each tensor goes to the front,
// and since tensors broadcast from the last dimension, ranks are aligned behind it.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace at::functorch {

// Of libtorch_cpu (ATen/functorch/BatchRulesHelper.h, which costs more to read than it saves to write).
[[noreturn]] void vmapIncompatibleInplaceError(const char* schema_name);

namespace {

struct PointwiseInput {
  Tensor tensor;
  std::optional<int64_t> batch_dim;

  int64_t logical_rank() const {
    return tensor.dim() - (batch_dim ? 1 : 0);
  }

  bool is_batched_scalar() const {
    return batch_dim && tensor.dim() == 1;
  }
};

Tensor with_batch_in_front(const PointwiseInput& input, int64_t logical_rank) {
  if (!input.batch_dim) {
    return input.tensor;
  }
  auto tensor = input.tensor.movedim(*input.batch_dim, 0);
  for (auto missing = logical_rank - input.logical_rank(); missing > 0; --missing) {
    tensor = tensor.unsqueeze(1);
  }
  return tensor;
}

// A tensor without dimensions counts less in type promotion than others, also when a batch of such tensors has one:
// returns the type to convert it to, or nothing where the dimension makes no difference.
std::optional<ScalarType> type_of_scalars(const std::vector<PointwiseInput>& inputs) {
  native::ResultTypeState logical = {}, physical = {};
  for (const auto& input : inputs) {
    physical = native::update_result_type_state(input.tensor, physical);
    const auto one = input.is_batched_scalar() ? at::empty({}, input.tensor.options()) : input.tensor;
    logical = native::update_result_type_state(one, logical);
  }
  const auto type = native::result_type(logical);
  return type == native::result_type(physical) ? std::nullopt : std::make_optional(type);
}

void pointwise_batching_rule(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  c10::impl::ExcludeDispatchKeyGuard guard(DispatchKey::FuncTorchBatched);
  const auto layer = maybeCurrentDynamicLayer();
  vmap_check_escaped(layer, "pointwise_batching_rule");
  const auto level = layer->layerId();

  std::vector<PointwiseInput> inputs;
  std::vector<size_t> places;
  const auto first = stack->size() - count;
  std::optional<size_t> written;
  bool is_any_batched = false;
  int64_t rank = 0;
  for (const auto i : c10::irange(count)) {
    const auto& value = (*stack)[first + i];
    if (!value.isTensor() || !value.toTensor().defined()) {
      continue;
    }
    auto [tensor, batch_dim] = unwrapTensorAtLevel(value.toTensor(), level);
    inputs.push_back({std::move(tensor), batch_dim});
    is_any_batched |= batch_dim.has_value();
    rank = std::max(rank, inputs.back().logical_rank());
    if (schema.is_mutable({c10::SchemaArgType::input, i})) {
      written = places.size();
    }
    places.push_back(i);
  }
  if (!is_any_batched) {
    op.callBoxed(stack);
    return;
  }
  if (written && !inputs[*written].batch_dim) {
    vmapIncompatibleInplaceError(schema.name().c_str());
  }

  const bool has_scalars =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.is_batched_scalar(); });
  const auto type = has_scalars ? type_of_scalars(inputs) : std::nullopt;
  const auto result = written ? (*stack)[first + places[*written]] : IValue();
  for (const auto i : c10::irange(inputs.size())) {
    auto tensor = with_batch_in_front(inputs[i], rank);
    // A bool promotes nothing, and may be a mask that is asked to be one.
    if (type && i != written && inputs[i].is_batched_scalar() && tensor.scalar_type() != kBool) {
      tensor = tensor.to(*type);
    }
    (*stack)[first + places[i]] = std::move(tensor);
  }
  op.callBoxed(stack);
  if (written) {
    stack->back() = result;
    return;
  }
  for (const auto i : c10::irange(schema.returns().size())) {
    auto& value = (*stack)[first + i];
    value = makeBatched(value.toTensor(), 0, level);
  }
}

} // namespace

${registrations}

} // namespace at::functorch
