// The generated table of what trampolines.cpp binds in the base's libraries.
#pragma once

#include <cstddef>
#include <cstdint>

// At least the size of the processor's pages.
#ifdef __x86_64__
#define GRAFT_PAGE 4096
#else
#define GRAFT_PAGE 65536
#endif

#define GRAFT_HIDDEN extern "C" __attribute__((visibility("hidden")))

// A function of a library: its slot, and its address relative to the library's load address.
struct GraftSlot {
  unsigned index;
  uint64_t value;
};

// A kernel that this library registers for a dispatch stub of the base, one of the static members DEFAULT etc. of
// at::native::DispatchStub. The addresses are those of the base's member and stub: relative to the library, until bound.
struct GraftKernel {
  uintptr_t member;
  uintptr_t stub; // its first field is the chosen kernel, or null
  void* const* own;
  void* stock; // the base's kernel
};

// A dispatch stub that both libraries define. Ours starts as a copy: what the base registered for other devices is its,
// too.
struct GraftStub {
  uintptr_t stock;
  void** own;
  size_t size;
};

// A variable that gets the kernel in a member of a stub of the base, whose address is as in GraftKernel.
struct GraftStock {
  uintptr_t member;
  void** own;
};

struct GraftLibrary {
  const char* name;
  const char* build_id;
  const GraftSlot* slots;
  size_t slot_count;
  GraftKernel* kernels;
  size_t kernel_count;
  const GraftStub* stubs;
  size_t stub_count;
  GraftStock* stock;
  size_t stock_count;
};

// What this library registered in place of kernels of the base in the dispatch table.
struct GraftReplacement {
  void (*set)(GraftReplacement& self, bool is_on);
  GraftReplacement* next;
};

// Ends with a library without a name.
GRAFT_HIDDEN const GraftLibrary graft_libraries[];
// They have pages of their own, which are read-only once they are filled.
GRAFT_HIDDEN void* graft_slots[];
GRAFT_HIDDEN const size_t graft_slots_size;
GRAFT_HIDDEN const bool graft_is_python_extension;
GRAFT_HIDDEN GraftReplacement* graft_replacements;
// Fills the slots of functions that not every processor can run, and replaces kernels that this one cannot.
GRAFT_HIDDEN void graft_choose_for_processor();

// Switches all that this library replaces: to the base's, to its own, or dispatch stubs to a kernel that only throws, by
// which tests find what calls them.
enum GraftKernels { GRAFT_STOCK, GRAFT_OWN, GRAFT_FAILING };
extern "C" __attribute__((visibility("default"))) void graft_replace(GraftKernels kernels);
