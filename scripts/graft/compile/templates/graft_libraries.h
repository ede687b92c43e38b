// The generated table of the functions that trampolines.cpp binds.
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

struct GraftLibrary {
  const char* name;
  const char* build_id;
  const GraftSlot* slots;
  size_t slot_count;
};

// Ends with a library without a name.
GRAFT_HIDDEN const GraftLibrary graft_libraries[];
// They have pages of their own, which are read-only once they are filled.
GRAFT_HIDDEN void* graft_slots[];
GRAFT_HIDDEN const size_t graft_slots_size;
GRAFT_HIDDEN const bool graft_is_python_extension;
