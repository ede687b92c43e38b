// Stands in for symbols of newer C and C++ libraries, so that what is built with a new compiler runs where the
// official wheel does. Hidden: nothing outside this library sees these.

#include <functional>
#include <new>

extern "C" {
// glibc 2.32. libstdc++ asks it whether it may count references without atomic operations; "no" is always right.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

namespace std {
// GLIBCXX_3.4.29.
__attribute__((visibility("hidden"))) void __throw_bad_array_new_length() {
  throw bad_array_new_length();
}
} // namespace std
