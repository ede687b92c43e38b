// Upstream's own policies are listed in ATen/autocast_mode.h and registered in ATen/autocast_mode.cpp.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::autocast {
namespace {

${registrations}

} // namespace
} // namespace at::autocast
