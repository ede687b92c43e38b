// The generated table of the functions that trampolines.cpp binds.
#pragma once

#include <cstddef>
#include <cstdint>

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
GRAFT_HIDDEN void* graft_slots[];
GRAFT_HIDDEN const bool graft_is_python_extension;
