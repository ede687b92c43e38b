// TORCH_LIBRARY and its relatives for a library that `graft.load` brings into a running process. Nothing is registered
// while the library is opened: the blocks are recorded, and loads.cpp compares them with what the process has. What it
// registers reads the current kernel from a slot, so an edited kernel is exchanged by writing a pointer.
#pragma once

#include <c10/util/Metaprogramming.h>
#include <torch/library.h>

#include "graft_called.h"

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#define GRAFT_EXPORTED __attribute__((visibility("default")))

namespace graft_loaded {

// The kernel of an operator for one dispatch key. Slots are never deleted: any thread may be about to read one.
struct Slot {
  // Null after the operator's schema was changed, or the operator removed.
  std::atomic<void*> kernel;
  std::string name;

  void* get() const {
    void* found = kernel.load(std::memory_order_acquire);
    if (C10_UNLIKELY(!found)) {
      graft::fail_gone(name);
    }
    return found;
  }
};

struct Definition {
  std::string schema;
  std::vector<at::Tag> tags;
};

struct Kernel {
  std::string name; // of the operator; empty for a fallback
  std::optional<c10::DispatchKey> key;
  std::string type; // the function's, which an exchange keeps
  void* function; // for a slot
  std::function<torch::CppFunction(Slot&)> make;
};

// What is registered for a function: a call costs one load and one indirect call more.
template <class R, class... A>
struct Exchanged {
  Slot* slot;

  R operator()(A... arguments) const {
    return reinterpret_cast<R (*)(A...)>(slot->get())(std::forward<A>(arguments)...);
  }
};

// For a kernel without types. The slot has the boxed function.
struct ExchangedBoxed : c10::OperatorKernel {
  explicit ExchangedBoxed(Slot* slot) : slot(slot) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    static_cast<const c10::KernelFunction*>(slot->get())->callBoxed(op, keys, stack);
  }

  Slot* slot;
};

// Takes the place of torch::Library in a block. What is not defined here is in loads.cpp.
class GRAFT_EXPORTED Library {
 public:
  Library(const char* space, std::optional<c10::DispatchKey> key) : space(space), key_(key) {}

  template <class Schema>
  Library& def(
      const Schema& schema,
      const std::vector<at::Tag>& tags = {},
      torch::_RegisterOrVerify = torch::_RegisterOrVerify::REGISTER) & {
    definitions.push_back({text(schema), tags});
    return *this;
  }

  template <class Schema, class Function>
  std::enable_if_t<!std::is_convertible_v<Function, std::vector<at::Tag>>, Library&> def(
      const Schema& schema,
      Function&& function,
      const std::vector<at::Tag>& tags = {}) & {
    auto whole = text(schema);
    if constexpr (!std::is_same_v<std::decay_t<Function>, torch::CppFunction>) {
      if (whole.find('(') == std::string::npos) {
        whole += c10::toString(*inferred(function)); // its name is empty
      }
    }
    definitions.push_back({whole, tags});
    return impl(whole.substr(0, whole.find('(')).c_str(), std::forward<Function>(function));
  }

  template <class Name, class Function>
  Library& impl(
      Name name,
      Function&& function,
      torch::_RegisterOrVerify = torch::_RegisterOrVerify::REGISTER) & {
    add(text(name), std::forward<Function>(function));
    return *this;
  }

  template <class Name, class Function>
  Library& impl(Name name, c10::DispatchKey key, Function&& function) & {
    const auto own = std::exchange(key_, key);
    add(text(name), std::forward<Function>(function));
    key_ = own;
    return *this;
  }

  template <class Function>
  Library& fallback(Function&& function) & {
    add("", torch::CppFunction(std::forward<Function>(function)));
    return *this;
  }

  Library& set_python_module(const char*, const char* = "") & {
    return *this;
  }

  // Whether neither this library nor PyTorch has a kernel of the operator for one of these keys. What an earlier load
  // registered does not count.
  bool is_free(const char* name, const char* overload, std::initializer_list<c10::DispatchKey> keys) const;

  const char* const space;
  std::vector<Definition> definitions;
  std::vector<Kernel> kernels;

 private:
  static std::string text(const char* text) {
    return text;
  }
  static std::string text(const std::string& text) {
    return text;
  }
  static std::string text(const c10::FunctionSchema& schema) {
    return c10::toString(schema);
  }
  static std::string text(torch::detail::SelectiveStr<true> text) {
    return text.operator const char*();
  }

  template <class Function>
  static auto inferred(const Function&) {
    return c10::detail::inferFunctionSchemaFromFunctor<std::decay_t<Function>>();
  }
  template <class Function, Function* function>
  static auto inferred(c10::CompileTimeFunctionPointer<Function, function>) {
    return c10::detail::inferFunctionSchemaFromFunctor<Function*>();
  }

  template <class R, class... A>
  void add(const std::string& name, R (*function)(A...)) {
    kernels.push_back(
        {name, key_, typeid(R(A...)).name(), reinterpret_cast<void*>(function), [](Slot& slot) {
           return torch::CppFunction(Exchanged<R, A...>{&slot});
         }});
  }

  template <class Function, Function* function>
  void add(const std::string& name, c10::CompileTimeFunctionPointer<Function, function>) {
    add(name, function);
  }

  template <class Lambda>
  std::enable_if_t<c10::guts::is_functor<std::decay_t<Lambda>>::value> add(const std::string& name, Lambda&& lambda) {
    if constexpr (std::is_empty_v<std::decay_t<Lambda>>) {
      add(name, +lambda);
    } else {
      add(name, torch::CppFunction(std::forward<Lambda>(lambda)));
    }
  }

  void add(const std::string& name, torch::CppFunction function);

  std::optional<c10::DispatchKey> key_;
};

// A block of the library that is being opened.
struct GRAFT_EXPORTED Block {
  Block(const char* space, std::optional<c10::DispatchKey> key, void (*define)(Library&));

  const char* space;
  std::optional<c10::DispatchKey> key;
  void (*define)(Library&);
};

} // namespace graft_loaded

#define GRAFT_BLOCK(space, key, m, uid)                                        \
  static void C10_CONCATENATE(graft_define_, uid)(graft_loaded::Library&);     \
  static const graft_loaded::Block C10_CONCATENATE(graft_block_, uid)(         \
      space, key, &C10_CONCATENATE(graft_define_, uid));                       \
  void C10_CONCATENATE(graft_define_, uid)([[maybe_unused]] graft_loaded::Library & m)

#undef TORCH_LIBRARY
#define TORCH_LIBRARY(ns, m) GRAFT_BLOCK(#ns, std::nullopt, m, C10_UID)
#undef TORCH_LIBRARY_FRAGMENT
#define TORCH_LIBRARY_FRAGMENT(ns, m) GRAFT_BLOCK(#ns, std::nullopt, m, C10_UID)
#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(ns, k, m) GRAFT_BLOCK(#ns, c10::DispatchKey::k, m, C10_UID)
