// Defines symbols of newer C and C++ libraries, so that libraries built with a new compiler run wherever the official
// wheel does. They are hidden: nothing outside this library sees them.

#include <functional>
#include <new>

extern "C" {
// glibc 2.32. libstdc++ reads it to decide whether reference counts need atomic operations; 0 (yes) is always correct.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

namespace std {
// GLIBCXX_3.4.29.
__attribute__((visibility("hidden"))) void __throw_bad_array_new_length() {
  throw bad_array_new_length();
}
} // namespace std
