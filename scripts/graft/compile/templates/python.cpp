// Defines graft_arguments.h with PyTorch's own headers, once for all operators.

#include "graft_nodes.h"

#include "graft_arguments.h"

#include <new>

namespace graft {

namespace {

template <class T, class Holder>
T& in(Holder& storage) {
  static_assert(sizeof(T) <= sizeof(Holder));
  return *reinterpret_cast<T*>(&storage);
}

} // namespace

Warnings::Warnings() {
  new (&in<torch::PyWarningHandler>(handler_)) torch::PyWarningHandler;
}

Warnings::~Warnings() noexcept(false) {
  in<torch::PyWarningHandler>(handler_).~PyWarningHandler();
}

void Warnings::set_in_exception() {
  in<torch::PyWarningHandler>(handler_).set_in_exception();
}

void set_python_error() {
  try {
    throw;
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
  }
}

void throw_python_error() {
  throw python_error();
}

Parser::Parser(const std::vector<std::string>& signatures, bool traceable)
    : parser_(new torch::PythonArgParser(signatures, traceable)) {}

Args::Args(Parser& parser, PyObject* self, PyObject* args, PyObject* kwargs, PyObject** places) {
  // It asks only whether there are enough places, as the caller has counted them.
  auto& enough = *reinterpret_cast<torch::ParsedArgs<1 << 16>*>(places);
  auto& theirs = *static_cast<torch::PythonArgParser*>(parser.parser_);
  auto* found = new (&in<torch::PythonArgs>(found_)) torch::PythonArgs(theirs.parse(self, args, kwargs, enough));
  idx = found->idx;
  this->args = found->args;
}

Args::~Args() {
  in<torch::PythonArgs>(found_).~PythonArgs();
}

bool Args::has_torch_function() {
  return in<torch::PythonArgs>(found_).has_torch_function();
}

#define GRAFT_DEFINE(type, name)                   \
  type Args::name(int place) {                     \
    return in<torch::PythonArgs>(found_).name(place); \
  }                                                \
  static_assert(true)
#define GRAFT_DEFINE_WITH_DEFAULT(type, name)                 \
  type Args::name(int place, type otherwise) {                \
    return in<torch::PythonArgs>(found_).name(place, otherwise); \
  }                                                           \
  static_assert(true)
GRAFT_ACCESSORS(GRAFT_DEFINE);
GRAFT_ACCESSORS_WITH_DEFAULT(GRAFT_DEFINE_WITH_DEFAULT);

namespace {

template <int N>
void copy(torch::PythonArgs& args, int place, at::Tensor* into, int count) {
  if constexpr (N > 0) {
    if (N != count) {
      return copy<N - 1>(args, place, into, count);
    }
    auto tensors = args.tensorlist_n<N>(place);
    std::move(tensors.begin(), tensors.end(), into);
  }
}

} // namespace

void Args::copy_tensors(int place, at::Tensor* into, int count) {
  copy<16>(in<torch::PythonArgs>(found_), place, into, count);
}

bool has_torch_function(PyObject* self) {
  return torch::has_torch_function(self);
}

PyObject* handle_torch_function(PyObject* self, const std::string& name) {
  return torch::handle_torch_function(self, name);
}

PyObject* handle_torch_function(
    Args& args,
    PyObject* self,
    PyObject* positional,
    PyObject* named,
    PyObject* owner,
    const char* module) {
  return torch::handle_torch_function(in<torch::PythonArgs>(args.found_), self, positional, named, owner, module);
}

const at::Tensor& unpack(PyObject* tensor) {
  return THPVariable_Unpack(tensor);
}

void maybe_initialize_device(const at::TensorOptions& options) {
  torch::utils::maybe_initialize_device(options);
}

#define GRAFT_WRAP(type)                        \
  PyObject* wrap(type value) {                  \
    return torch::autograd::utils::wrap(value); \
  }                                             \
  static_assert(true)
GRAFT_WRAP(bool);
GRAFT_WRAP(int64_t);
GRAFT_WRAP(double);
GRAFT_WRAP(c10::complex<double>);
GRAFT_WRAP(const at::Scalar&);
GRAFT_WRAP(const at::Tensor&);
GRAFT_WRAP(at::TensorList);
GRAFT_WRAP(at::IntArrayRef);
GRAFT_WRAP(at::ScalarType);
GRAFT_WRAP(at::Layout);
GRAFT_WRAP(at::QScheme);
GRAFT_WRAP(c10::Stream);

PyObject* wrap(at::Tensor&& tensor) {
  return torch::autograd::utils::wrap(std::move(tensor));
}

Object cast(const c10::SymInt& value) {
  return {py::cast(value).release().ptr()};
}

Object cast(const torch::autograd::SavedVariable& variable, Policy) {
  return {py::cast(variable, py::return_value_policy::reference).release().ptr()};
}

PyTypeObject* make_node_type(PyTypeObject& type, const char* name, PyGetSetDef* properties, PyMethodDef* methods) {
  using namespace torch::autograd;
  static PyGetSetDef defaults[] = {THP_FUNCTION_DEFAULT_PROPERTIES};
  auto& every = *new std::vector<PyGetSetDef>(std::begin(defaults), std::end(defaults)); // as long as the class
  for (auto* each = properties + 1; each->name; ++each) {
    every.push_back(*each);
  }
  every.push_back({});
  return _initFunctionPyTypeObject(type, name, every.data(), methods);
}

} // namespace graft
