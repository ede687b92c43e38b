// What the loads of this process have bound in torch._C. A function that is there keeps its identity, also if it gets
// its first argument: TorchScript, Dynamo and torch.overrides look it up by identity, and users hold it. Its definition
// is rewritten instead.

#include "graft_bindings.h"
#include "graft_loads.h"

#include <map>
#include <set>
#include <string>
#include <utility>

namespace graft {

namespace {

using Key = std::pair<PyObject*, std::string>; // the owner, which is never deleted, and the name

// What Python calls. It has chosen the pointer by the flags of the definition.
struct Content {
  PyMethodDef definition;
  vectorcallfunc call;
};

// How a name was before the first load that binds it.
struct Before {
  bool is_rewritten; // else a load has made the object
  Content content;
  PyObject* object; // null if there was none
};

using Names = std::map<Key, Before>;

// Never destroyed: Python may end later.
auto& bound = *new std::map<std::string, Names>;
// What loads have made, and nothing binds now. It is bound again with its name.
auto& unbound = *new std::map<Key, PyObject*>;
// Of the load that is being bound.
Names* earlier = nullptr;
Names* current = nullptr;
// What it rewrites, as it was; for an error.
Names* replaced = nullptr;
// The names that it leaves out.
std::set<std::string> left_out;

bool is_type(PyObject* owner) {
  return PyType_Check(owner);
}

PyObject* names_of(PyObject* owner) {
  return is_type(owner) ? reinterpret_cast<PyTypeObject*>(owner)->tp_dict : PyModule_GetDict(owner);
}

// Borrowed; null if there is none.
PyObject* found(const Key& key) {
  return PyDict_GetItemString(names_of(key.first), key.second.c_str());
}

// The function that an object is, or that a static method has, borrowed; null if it is neither function nor method.
PyObject* function_of(PyObject* object) {
  if (!object || Py_IS_TYPE(object, &PyMethodDescr_Type)) {
    return object;
  }
  if (!PyObject_TypeCheck(object, &PyStaticMethod_Type)) {
    return PyCFunction_Check(object) ? object : nullptr;
  }
  PyObject* function = PyObject_GetAttrString(object, "__func__");
  PyErr_Clear();
  Py_XDECREF(function); // the static method keeps it
  return function && PyCFunction_Check(function) ? function : nullptr;
}

PyMethodDef*& definition_of(PyObject* function) {
  return Py_IS_TYPE(function, &PyMethodDescr_Type) ? reinterpret_cast<PyMethodDescrObject*>(function)->d_method
                                                   : reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
}

vectorcallfunc& call_of(PyObject* function) {
  return Py_IS_TYPE(function, &PyMethodDescr_Type) ? reinterpret_cast<PyMethodDescrObject*>(function)->vectorcall
                                                   : reinterpret_cast<PyCFunctionObject*>(function)->vectorcall;
}

Content content_of(PyObject* function) {
  return {*definition_of(function), call_of(function)};
}

void write(PyObject* function, const Content& content) {
  auto& definition = *definition_of(function);
  definition.ml_meth = content.definition.ml_meth;
  definition.ml_flags = content.definition.ml_flags;
  definition.ml_doc = content.definition.ml_doc;
  call_of(function) = content.call;
}

// Makes a function or method call `now`, which may have other flags: another one, made of it, has the right pointer.
void write(PyObject* owner, PyObject* function, PyMethodDef& now) {
  PyObject* made = Py_IS_TYPE(function, &PyMethodDescr_Type)
      ? PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(owner), &now)
      : PyCFunction_NewEx(&now, nullptr, nullptr);
  check(made != nullptr);
  write(function, content_of(made));
  Py_DECREF(made);
}

PyObject* raise_gone(PyObject*, PyObject*, PyObject*) {
  PyErr_SetString(
      PyExc_RuntimeError, "graft.load had this operator, and was told to unload it, or it was edited since");
  return nullptr;
}

void restore(const Key& key, const Before& before) {
  auto [owner, name] = key;
  PyObject* function = function_of(found(key));
  if (before.is_rewritten) {
    if (function) {
      write(function, before.content);
    }
    return;
  }
  // Somebody may hold the function that a load has made.
  if (function) {
    static PyMethodDef gone = {
        "gone",
        reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(raise_gone)),
        METH_VARARGS | METH_KEYWORDS,
        nullptr};
    write(owner, function, gone);
    unbound.try_emplace(key, Py_NewRef(found(key)));
  }
  if (before.object) {
    PyDict_SetItemString(names_of(owner), name.c_str(), before.object);
  } else {
    PyDict_DelItemString(names_of(owner), name.c_str());
  }
  PyErr_Clear();
  if (is_type(owner)) {
    PyType_Modified(reinterpret_cast<PyTypeObject*>(owner));
  }
}

} // namespace

bool rewrite(PyObject* owner, PyMethodDef& now) {
  if (left_out.count(now.ml_name)) {
    return true;
  }
  const Key key{owner, now.ml_name};
  PyObject* there = found(key);
  PyObject* function = function_of(there);
  const Before before = function ? Before{true, content_of(function), nullptr} : Before{false, {}, Py_XNewRef(there)};
  if (const auto made = unbound.find(key); !there && made != unbound.end()) {
    check(PyDict_SetItemString(names_of(owner), now.ml_name, made->second) == 0);
    function = function_of(made->second);
  }
  const auto old = earlier->find(key);
  current->emplace(key, old != earlier->end() ? old->second : before);
  replaced->emplace(key, before);
  if (!function) {
    return false;
  }
  write(owner, function, now);
  return true;
}

} // namespace graft

using namespace graft;

// Adds the bindings of a library that graft_load has opened, as those of the load `name`, in place of its last ones, but
// for the names in the lines of `taken`. Without a path, the load has none any more. Returns false, with Python's error
// set, if something failed.
extern "C" GRAFT_SHARED bool graft_bind_load(
    const char* name,
    const char* path,
    const char* taken,
    PyObject* torch_c) {
  left_out = graft_loaded::lines(taken);
  Names before = std::move(bound[name]), now, undone;
  earlier = &before;
  current = &now;
  replaced = &undone;
  using Bind = bool (*)(PyObject*);
  auto* bind = *path ? reinterpret_cast<Bind>(graft_loaded::symbol(path, "graft_bind")) : nullptr;
  if (bind && !bind(torch_c)) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (const auto& [key, each] : undone) {
      restore(key, each);
    }
    PyErr_Restore(type, value, trace);
    bound[name] = std::move(before);
    return false;
  }
  for (const auto& [key, each] : before) {
    if (!now.count(key)) {
      restore(key, each);
    }
  }
  bound[name] = std::move(now);
  return true;
}

// Gives functions that the load `name` has rewritten the docstrings of before all loads, where its texts have added none.
extern "C" GRAFT_SHARED void graft_document_load(const char* name) {
  for (const auto& [key, before] : bound[name]) {
    PyObject* function = function_of(found(key));
    if (before.is_rewritten && function && !definition_of(function)->ml_doc) {
      definition_of(function)->ml_doc = before.content.definition.ml_doc;
    }
  }
}
