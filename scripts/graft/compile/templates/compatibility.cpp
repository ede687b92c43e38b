// Defines symbols of newer C and C++ libraries, so that libraries built with a new compiler run wherever the official
// wheel does. They are hidden: nothing outside this library sees them.

#include <new>

#define GRAFT_HIDDEN extern "C" __attribute__((visibility("hidden")))

// glibc 2.32. libstdc++ reads it to decide whether reference counts need atomic operations; 0 (yes) is always correct.
GRAFT_HIDDEN char __libc_single_threaded;
char __libc_single_threaded = 0;

// GLIBCXX_3.4.29: std::__throw_bad_array_new_length(), under another name, since <new> makes everything in std visible.
GRAFT_HIDDEN void graft_throw_bad_array_new_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void graft_throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}
