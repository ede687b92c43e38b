// See core.h.
#pragma once

#include <asmjit/core.h>
