// What the parts of the library that all loads of a process share call of each other.
#pragma once

#include <string>

namespace graft_loaded {

// The address of a symbol of a library that is open; null if it has none of this name.
void* symbol(const std::string& path, const char* name);

} // namespace graft_loaded
