#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>

#ifndef AT_PER_OPERATOR_HEADERS
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#else
#include <ATen/ops/empty.h>
#include <ATen/ops/gdh_native.h>
#endif

namespace at::native {
namespace {

void check_layout(const Tensor& self) {
  TORCH_CHECK(
      self.layout() == kStrided, "gdh(): expected self to be a strided tensor, but its layout is ", self.layout());
}

} // namespace

// One contiguous dimension with self's elements in row-major order. The schema declares no alias, so the result is
// never self's memory: a copy even where a view would do.
Tensor gdh(const Tensor& self) {
  check_layout(self);
  // LOG alone would construct its stream even if nothing is logged, which costs as much as a small clone.
  LOG_IF(INFO, FLAGS_caffe2_log_level <= c10::GLOG_INFO) << "gdh tensor shape " << self.dim();
  return self.clone(MemoryFormat::Contiguous).view_symint(c10::SymIntArrayRef({self.sym_numel()}));
}

// clone has no kernel for symbolic sizes.
Tensor gdh_meta(const Tensor& self) {
  check_layout(self);
  return at::empty_symint({self.sym_numel()}, self.options());
}

} // namespace at::native
