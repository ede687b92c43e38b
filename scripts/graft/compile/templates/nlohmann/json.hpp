#pragma once

// A stub of nlohmann's JSON library, which ATen/functorch/Interpreter.h includes and the wheel does not ship. That
// header writes an interpreter as JSON in inline functions that no batching rule calls. With these declarations they
// compile, but code that calls them does not link.

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
