// PyTorch's parser of Python arguments and its conversions, declared without its headers, which take g++ eight seconds.
// python.cpp defines all of this with them.
#pragma once

#include <Python.h>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

// Units that use these include ATen/core/ivalue.h.
namespace c10 {
template <class T>
class List;
template <class T>
struct OptionalArray;
} // namespace c10

namespace torch::autograd {
class SavedVariable;
}

namespace graft {

// Torch's warnings during a call, which Python gets at its end.
class Warnings {
 public:
  Warnings();
  ~Warnings() noexcept(false);
  void set_in_exception();

 private:
  alignas(16) char handler_[128];
};

// Gives Python the exception that is being handled.
void set_python_error();
// Throws Python's error.
[[noreturn]] void throw_python_error();

class NoGil {
 public:
  NoGil() : thread_(PyEval_SaveThread()) {}
  NoGil(const NoGil&) = delete;
  ~NoGil() {
    PyEval_RestoreThread(thread_);
  }

 private:
  PyThreadState* thread_;
};

// The accessors of torch::PythonArgs that torchgen uses.
#define GRAFT_ACCESSORS(each)                                        \
  each(at::Tensor, tensor);                                          \
  each(std::optional<at::Tensor>, optionalTensor);                   \
  each(std::vector<at::Tensor>, tensorlist);                         \
  each(c10::List<std::optional<at::Tensor>>, list_of_optional_tensors); \
  each(at::Scalar, scalar);                                          \
  each(std::optional<at::Scalar>, scalarOptional);                   \
  each(std::vector<at::Scalar>, scalarlist);                         \
  each(int64_t, toInt64);                                            \
  each(std::optional<int64_t>, toInt64Optional);                     \
  each(std::vector<int64_t>, intlist);                               \
  each(c10::OptionalArray<int64_t>, intlistOptional);                \
  each(c10::SymInt, toSymInt);                                       \
  each(std::optional<c10::SymInt>, toSymIntOptional);                \
  each(std::vector<c10::SymInt>, symintlist);                        \
  each(c10::OptionalArray<c10::SymInt>, symintlistOptional);         \
  each(double, toDouble);                                            \
  each(std::optional<double>, toDoubleOptional);                     \
  each(std::vector<double>, doublelist);                             \
  each(c10::OptionalArray<double>, doublelistOptional);              \
  each(bool, toBool);                                                \
  each(std::optional<bool>, toBoolOptional);                         \
  each(std::string_view, stringView);                                \
  each(std::optional<std::string_view>, stringViewOptional);         \
  each(at::ScalarType, scalartype);                                  \
  each(std::optional<at::ScalarType>, scalartypeOptional);           \
  each(at::Layout, layout);                                          \
  each(std::optional<at::Layout>, layoutOptional);                   \
  each(at::Device, device);                                          \
  each(std::optional<at::Device>, deviceOptional);                   \
  each(at::MemoryFormat, memoryformat);                              \
  each(std::optional<at::MemoryFormat>, memoryformatOptional);       \
  each(std::optional<at::Generator>, generator);                     \
  each(at::Storage, storage);                                        \
  each(c10::Stream, stream);                                         \
  each(bool, isNone)
#define GRAFT_ACCESSORS_WITH_DEFAULT(each)              \
  each(at::ScalarType, scalartypeWithDefault);          \
  each(at::Layout, layoutWithDefault);                  \
  each(at::Device, deviceWithDefault);                  \
  each(bool, toBoolWithDefault)

class Parser;

// The arguments of a call: torch::PythonArgs.
class Args {
 public:
  Args(Parser& parser, PyObject* self, PyObject* args, PyObject* kwargs, PyObject** places);
  Args(const Args&) = delete;
  ~Args();

  bool has_torch_function();
#define GRAFT_DECLARE(type, name) type name(int place)
#define GRAFT_DECLARE_WITH_DEFAULT(type, name) type name(int place, type otherwise)
  GRAFT_ACCESSORS(GRAFT_DECLARE);
  GRAFT_ACCESSORS_WITH_DEFAULT(GRAFT_DECLARE_WITH_DEFAULT);
#undef GRAFT_DECLARE
#undef GRAFT_DECLARE_WITH_DEFAULT
  template <int N>
  std::array<at::Tensor, N> tensorlist_n(int place) {
    static_assert(N <= 16); // what python.cpp has
    std::array<at::Tensor, N> tensors;
    copy_tensors(place, tensors.data(), N);
    return tensors;
  }

  // The signature that fits, and the arguments in its order.
  int idx;
  PyObject** args;

 private:
  friend PyObject* handle_torch_function(Args&, PyObject*, PyObject*, PyObject*, PyObject*, const char*);
  void copy_tensors(int place, at::Tensor* into, int count);
  alignas(16) char found_[96];
};

template <int N>
struct Places {
  PyObject* args[N] = {};
};

class Parser {
 public:
  Parser(const std::vector<std::string>& signatures, bool traceable);

  template <int N>
  Args parse(PyObject* self, PyObject* args, PyObject* kwargs, Places<N>& places) {
    return {*this, self, args, kwargs, places.args};
  }

 private:
  friend Args;
  void* parser_; // never deleted
};

bool has_torch_function(PyObject* self);
PyObject* handle_torch_function(PyObject* self, const std::string& name);
PyObject* handle_torch_function(
    Args& args,
    PyObject* self,
    PyObject* positional,
    PyObject* named,
    PyObject* owner,
    const char* module);

const at::Tensor& unpack(PyObject* tensor);
void maybe_initialize_device(const at::TensorOptions& options);

PyObject* wrap(bool value);
PyObject* wrap(int64_t value);
PyObject* wrap(double value);
PyObject* wrap(c10::complex<double> value);
PyObject* wrap(const at::Scalar& value);
PyObject* wrap(const at::Tensor& tensor);
PyObject* wrap(at::Tensor&& tensor);
PyObject* wrap(at::TensorList tensors);
PyObject* wrap(at::IntArrayRef values);
PyObject* wrap(at::ScalarType type);
PyObject* wrap(at::Layout layout);
PyObject* wrap(at::QScheme scheme);
PyObject* wrap(c10::Stream stream);
PyObject* wrap(void* pointer) = delete; // else it is a bool

template <class... Ts>
PyObject* wrap_into(PyObject* results, void (*set)(PyObject*, Py_ssize_t, PyObject*), std::tuple<Ts...>& values) {
  if (!results) {
    throw_python_error();
  }
  Py_ssize_t place = 0;
  try {
    std::apply([&](auto&... each) { (set(results, place++, wrap(std::move(each))), ...); }, values);
  } catch (...) {
    Py_DECREF(results);
    throw;
  }
  return results;
}

template <class... Ts>
PyObject* wrap(std::tuple<Ts...> values) {
  const auto set = [](PyObject* results, Py_ssize_t place, PyObject* value) { PyTuple_SetItem(results, place, value); };
  return wrap_into(PyTuple_New(sizeof...(Ts)), set, values);
}

template <class... Ts>
PyObject* wrap(PyTypeObject* type, std::tuple<Ts...> values) {
  return wrap_into(PyStructSequence_New(type), PyStructSequence_SetItem, values);
}

// What pybind11::cast returns.
struct Object {
  PyObject* pointer;

  Object release() const {
    return *this;
  }
  PyObject* ptr() const {
    return pointer;
  }
};

enum class Policy { reference };

Object cast(const c10::SymInt& value);
Object cast(const torch::autograd::SavedVariable& variable, Policy policy);

// Makes the class of an autograd node, with PyTorch's own properties besides `properties`.
PyTypeObject* make_node_type(PyTypeObject& type, const char* name, PyGetSetDef* properties, PyMethodDef* methods);

} // namespace graft
