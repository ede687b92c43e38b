// ${generated_comment}
// As upstream's template, but for the namespace of the helpers: see RegisterDispatchDefinitions.ini.

#include <ATen/Config.h>
#include <ATen/DeviceGuard.h>
#include <ATen/Dispatch.h>
#include <ATen/Tensor.h>
#include <ATen/Utils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/native/Resize.h>
#include <c10/core/Allocator.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/ExclusivelyOwned.h>
#include <c10/util/Half.h>
#include <torch/library.h>
$extra_cuda_headers
$external_backend_headers
$dispatch_headers
$ops_headers

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace at {
namespace {
namespace ${file_stem} {

$dispatch_helpers

} // namespace ${file_stem}
} // anonymous namespace
} // namespace at

$dispatch_definitions
