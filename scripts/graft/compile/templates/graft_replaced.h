// TORCH_LIBRARY_IMPL for kernels that replace those of the base: without PyTorch's warning that another kernel was there,
// and so that graft_replace can switch them off and on.
#pragma once

#ifdef GRAFT_LOADED
#include <torch/library.h> // whose macros do this for every kernel
#else

#include "graft_libraries.h"

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>

namespace {
namespace graft_replaced {

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

struct Kernels : GraftReplacement {
  Kernels(const char* space, c10::DispatchKey key, void (*define)(torch::Library&))
      : GraftReplacement{&Kernels::set, graft_replacements}, space(space), key(key), define(define) {
    graft_replacements = this;
    set(*this, true);
  }

  static void set(GraftReplacement& base, bool is_on) {
    auto& self = static_cast<Kernels&>(base);
    if (is_on == self.library.has_value()) {
      return;
    }
    if (!is_on) {
      self.library.reset(); // the dispatcher returns to the kernel that was there
      return;
    }
    Silent silent;
    c10::WarningUtils::WarningHandlerGuard guard(&silent);
    // The warning is shown once in a process, which this must not use up.
    c10::WarningUtils::WarnAlways always;
    self.library.emplace(torch::Library::IMPL, self.space, self.key, __FILE__, __LINE__);
    self.define(*self.library);
  }

  const char* space;
  c10::DispatchKey key;
  void (*define)(torch::Library&);
  std::optional<torch::Library> library;
};

} // namespace graft_replaced
} // namespace

#define GRAFT_REPLACE(ns, k, m, uid)                                                                    \
  static void C10_CONCATENATE(graft_define_##ns##_##k##_, uid)(torch::Library&);                         \
  static graft_replaced::Kernels C10_CONCATENATE(graft_kernels_##ns##_##k##_, uid)(                       \
      #ns, c10::DispatchKey::k, &C10_CONCATENATE(graft_define_##ns##_##k##_, uid));                        \
  void C10_CONCATENATE(graft_define_##ns##_##k##_, uid)([[maybe_unused]] torch::Library & m)

#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(ns, k, m) GRAFT_REPLACE(ns, k, m, C10_UID)

#endif
