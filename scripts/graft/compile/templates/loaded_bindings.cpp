// What the loads of this process have bound in torch._C. A function that is there keeps its identity: TorchScript,
// Dynamo and torch.overrides look it up by identity, and users hold it. Its definition is rewritten instead.

#include "graft_bindings.h"
#include "graft_loads.h"

#include <map>
#include <string>
#include <utility>

namespace graft {

namespace {

using Key = std::pair<PyObject*, std::string>; // the owner, which is never deleted, and the name

// How a name was before the first load that binds it.
struct Before {
  PyMethodDef* definition; // the rewritten one; null if an object was set instead
  PyMethodDef content;
  PyObject* object; // null if there was none
};

using Names = std::map<Key, Before>;

// Never destroyed: Python may end later.
auto& bound = *new std::map<std::string, Names>;
// Of the load that is being bound.
Names* earlier = nullptr;
Names* current = nullptr;
// What it rewrites, as it was; for an error.
Names* replaced = nullptr;

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

PyMethodDef* definition_of(PyObject* object) {
  if (!object) {
    return nullptr;
  }
  if (Py_IS_TYPE(object, &PyMethodDescr_Type)) {
    return reinterpret_cast<PyMethodDescrObject*>(object)->d_method;
  }
  PyObject* function = Py_NewRef(object);
  if (PyObject_TypeCheck(object, &PyStaticMethod_Type)) {
    Py_DECREF(function);
    function = PyObject_GetAttrString(object, "__func__");
  }
  auto* definition = function && PyCFunction_Check(function) ? reinterpret_cast<PyCFunctionObject*>(function)->m_ml : nullptr;
  Py_XDECREF(function); // the static method keeps it
  PyErr_Clear();
  return definition;
}

PyObject* raise_gone(PyObject*, PyObject*, PyObject*) {
  PyErr_SetString(PyExc_RuntimeError, "graft.load had this operator, and was told to unload it, or it was edited since");
  return nullptr;
}

void restore(const Key& key, const Before& before) {
  auto [owner, name] = key;
  if (before.definition) {
    before.definition->ml_meth = before.content.ml_meth;
    before.definition->ml_doc = before.content.ml_doc;
    return;
  }
  // Somebody may hold the function that a load has made.
  if (auto* own = definition_of(found(key))) {
    own->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(raise_gone));
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

bool rewrite(PyObject* owner, const PyMethodDef& now) {
  const Key key{owner, now.ml_name};
  PyObject* there = found(key);
  auto* definition = definition_of(there);
  const auto old = earlier->find(key);
  const bool can_take = definition && (definition->ml_flags & ~METH_STATIC) == (now.ml_flags & ~METH_STATIC);
  if (!can_take) {
    if (old != earlier->end() && old->second.definition) {
      restore(key, old->second); // what it had before all loads, for unload
    }
    current->emplace(key, old != earlier->end() && !old->second.definition ? old->second : Before{nullptr, {}, Py_XNewRef(there)});
    replaced->emplace(key, Before{nullptr, {}, Py_XNewRef(there)});
    return false;
  }
  current->emplace(key, old != earlier->end() ? old->second : Before{definition, *definition, nullptr});
  replaced->emplace(key, Before{definition, *definition, nullptr});
  definition->ml_meth = now.ml_meth;
  definition->ml_doc = now.ml_doc;
  return true;
}

} // namespace graft

using namespace graft;

// Adds the bindings of a library that graft_load has opened, as those of the load `name`, in place of its last ones.
// Without a path, the load has none any more. Returns false, with Python's error set, if something failed.
extern "C" GRAFT_SHARED bool graft_bind_load(const char* name, const char* path, PyObject* torch_c) {
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
