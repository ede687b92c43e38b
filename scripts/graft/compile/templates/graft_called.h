// For calls of operators that other loads have, and may define again with another schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <string>

namespace graft {

[[noreturn]] inline void fail_gone(const std::string& name) {
  TORCH_CHECK(
      false,
      name,
      " has another schema since graft.load, or is gone: run the forward again, and compile, script or export again "
      "what calls it");
}

// Looks an operator up. Throws c10::Error if it is not there, or has another schema.
template <class Function>
c10::TypedOperatorHandle<Function> called(const char* name, const char* overload) {
  try {
    if (const auto found = c10::Dispatcher::singleton().findSchema({name, overload})) {
      return found->typed<Function>();
    }
  } catch (const c10::Error&) {
  }
  fail_gone(*overload ? std::string(name) + "." + overload : name);
}

} // namespace graft
