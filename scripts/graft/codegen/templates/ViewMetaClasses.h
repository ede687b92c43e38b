#pragma once

// ${generated_comment}
// As upstream's template, which each source includes at most once; here sources share a translation unit.

#include <ATen/FunctionalStorageImpl.h>

namespace at {
namespace functionalization {

${view_meta_declarations}

} // namespace functionalization
} // namespace at
