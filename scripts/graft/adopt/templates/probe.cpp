// Says what the dispatcher knows of an operator: its schema, and the C++ signatures that kernels were registered with.
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace {

// No kernel has this type: the dispatcher's error names the right one.
struct Unlikely {};

template <typename Signature>
std::string signature_of(const c10::OperatorHandle& op) {
  try {
    op.typed<Signature>();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const std::string mark = "correct signature:";
    const auto start = text.find(mark);
    if (start == std::string::npos) {
      return "";
    }
    const auto first = text.find_first_not_of(' ', start + mark.size());
    return text.substr(first, text.find('\n', first) - first);
  }
  return "";
}

} // namespace

// Returns four lines; the text is valid until the next call.
extern "C" __attribute__((visibility("default"))) const char* graft_describe(const char* name, const char* overload) {
  static std::string answer;
  const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!op) {
    answer = "\n\n\n";
    return answer.c_str();
  }
  const auto& schema = op->schema();
  answer = c10::toString(schema) + "\n" + c10::toString(schema.aliasAnalysis()) + "\n" +
      signature_of<void(Unlikely)>(*op) + "\n" + signature_of<void(Unlikely, c10::SymInt)>(*op);
  return answer.c_str();
}
