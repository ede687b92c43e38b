// Under vmap an operator that is composed of others is decomposed; upstream registers each by hand
// (aten/src/ATen/functorch/BatchRulesDecompositions.cpp).
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
${headers}

namespace at {

${registrations}

} // namespace at
