#pragma once

// In the place of nlohmann's JSON library, which ATen/functorch/Interpreter.h includes and the wheel does not ship. The
// header writes an interpreter as JSON in inline functions that no batching rule calls: with these declarations they
// compile, and whoever calls them fails to link.

#include <string>

namespace nlohmann {

class json {
 public:
  json();
  template <typename T>
  explicit json(const T& value);
  static json parse(const std::string& text);
  template <typename T>
  T get() const;
  std::string dump() const;
};

} // namespace nlohmann
