// What the parts of the library that all loads of a process share call of each other.
#pragma once

#include <set>
#include <sstream>
#include <string>

namespace graft_loaded {

// The names in a text, one in each line.
inline std::set<std::string> lines(const char* text) {
  std::set<std::string> found;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    found.insert(line);
  }
  return found;
}

// The address of a symbol of a library that is open; null if it has none of this name.
void* symbol(const std::string& path, const char* name);

} // namespace graft_loaded
