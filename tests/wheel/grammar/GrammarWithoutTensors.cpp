// Operators that take no tensor.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/gr_is_word_native.h>
#include <ATen/ops/gr_restart_native.h>
#include <ATen/ops/gr_start_native.h>
#include <ATen/ops/gr_started_native.h>
#include <ATen/ops/gr_steps_composed_native.h>
#include <ATen/ops/gr_steps_native.h>

#include <atomic>

namespace at::native {

namespace {
std::atomic<int64_t> started{0};
}

void gr_start(int64_t n) {
  started = n;
}

void gr_restart() {
  started = 1;
}

int64_t gr_started() {
  return started;
}

bool gr_is_word(std::string_view s) {
  return !s.empty() && s.find(' ') == std::string_view::npos;
}

Tensor gr_steps(int64_t n) {
  return at::arange(n);
}

Tensor gr_steps_composed() {
  return at::arange(3);
}

} // namespace at::native
