// FBGEMM's headers name registers of asmjit, which wheels lack. Code that calls FBGEMM's functions needs no more of it.
#pragma once

#define ASMJIT_LIBRARY_MAKE_VERSION(major, minor, patch) ((major) << 16 | (minor) << 8 | (patch))
#define ASMJIT_LIBRARY_VERSION 0

namespace asmjit::x86 {
class Xmm;
class Ymm;
class Zmm;
} // namespace asmjit::x86
