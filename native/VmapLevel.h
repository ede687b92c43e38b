#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace at::native {

// The level of vmap at which a batching rule runs. It does what torchgen's plumbing does for the rules in functorch/,
// whose headers take ten seconds to compile. While it exists, the dispatcher ignores the batching of this level.
class VmapLevel {
 public:
  // The arguments of an operator, of which only tensors matter.
  template <typename... Args>
  explicit VmapLevel(const Args&... arguments) : level_(current_level()) {
    (add(arguments), ...);
  }

  // The batch size; none if no argument is batched at this level, but at an outer one.
  const std::optional<c10::SymInt>& size() const {
    return size_;
  }

  // The tensor with its batch dimension in front; one that has none is expanded.
  Tensor unwrap(const Tensor& x) const {
    const auto [value, dim] = functorch::unwrapTensorAtLevel(x, level_);
    if (dim) {
      return value.movedim(*dim, 0);
    }
    c10::SymDimVector sizes(value.sym_sizes());
    sizes.insert(sizes.begin(), *size_);
    return value.expand_symint(sizes);
  }

  bool is_batched(const Tensor& x) const {
    return functorch::isBatchedAtLevel(x, level_);
  }

  // The inverse of unwrap; undefined tensors stay undefined.
  Tensor wrap(const Tensor& x) const {
    return x.defined() ? functorch::makeBatched(x, 0, level_) : x;
  }

 private:
  void add(const Tensor& x) {
    const auto [value, dim] = functorch::unwrapTensorAtLevel(x, level_);
    if (dim) {
      size_ = value.sym_size(*dim);
    }
  }

  void add(const std::optional<Tensor>& x) {
    add(x.value_or(Tensor()));
  }

  void add(c10::ArrayRef<c10::IValue> values) {
    for (const c10::IValue& value : values) {
      add(value.isTensor() ? value.toTensor() : Tensor());
    }
  }

  template <typename T>
  void add(const T& /*no tensor*/) {}

  static int64_t current_level() {
    const auto layer = functorch::maybeCurrentDynamicLayer();
    TORCH_INTERNAL_ASSERT(layer.has_value(), "a batching rule was called outside of vmap");
    return layer->layerId();
  }

  c10::impl::ExcludeDispatchKeyGuard guard_{DispatchKey::FuncTorchBatched};
  int64_t level_;
  std::optional<c10::SymInt> size_;
};

// Calls `rule` with the level of vmap, or `op` if no argument is batched at that level, but at an outer one.
template <auto rule, auto op>
struct BatchRule;

template <typename R, typename... Args, R (*rule)(const VmapLevel&, Args...), R (*op)(Args...)>
struct BatchRule<rule, op> {
  static R call(Args... arguments) {
    const VmapLevel level{arguments...};
    return level.size() ? rule(level, arguments...) : op(arguments...);
  }
};

} // namespace at::native
