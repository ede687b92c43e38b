// Where sources find PyTorch's header of this name. In a library for `graft.load`, registrations are recorded.
#pragma once

#include_next <torch/library.h>

#ifdef GRAFT_LOADED
#include "graft_loaded.h"
#endif
