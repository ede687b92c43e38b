// What `graft.load` has loaded into this process: definitions and kernels, by the name of the load.
//
// A definition is never released while something may hold it: handles in C++, `OpOverload`, and TorchScript's nodes are
// pointers to it. If a schema changes, the old definition only loses its name, and its kernels raise an error.

#include "graft_libraries.h"
#include "graft_loaded.h"
#include "graft_loads.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>

// Tags of an operating system, which the loader ignores; scripts/graft/compile/initializers.py writes them.
constexpr ElfW(Sxword) GRAFT_INIT_ARRAY = 0x6fffe001, GRAFT_INIT_ARRAY_SIZE = 0x6fffe002;

namespace graft_loaded {
namespace {

// Names private members of PyTorch's classes, which an explicit instantiation may.
template <auto member, class Tag>
struct Private {
  friend constexpr auto get(Tag) {
    return member;
  }
};
struct Names {
  friend constexpr auto get(Names);
};
struct Entry {
  friend constexpr auto get(Entry);
};
struct Held {
  friend constexpr auto get(Held);
};
struct HeldKey {
  friend constexpr auto get(HeldKey);
};
template struct Private<&c10::Dispatcher::operatorLookupTable_, Names>;
template struct Private<&c10::OperatorHandle::operatorDef_, Entry>;
template struct Private<&torch::CppFunction::func_, Held>;
template struct Private<&torch::CppFunction::dispatch_key_, HeldKey>;

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

struct Defined {
  Definition definition;
  std::optional<torch::Library> library; // none if PyTorch or another package defines it
};

struct Registered {
  Kernel kernel;
  Slot* slot = nullptr;
  std::optional<torch::Library> library;
};

using Key = std::pair<std::string, std::optional<c10::DispatchKey>>;

struct Load {
  std::map<std::string, Defined> operators;
  std::map<Key, Registered> kernels;
  std::map<uintptr_t, GraftKernel> of_stubs; // by the member of the dispatch stub
};

// A library that was opened. It stays so, and may be loaded again after others.
struct Opened {
  void* handle = nullptr;
  std::vector<Block> blocks;
  std::vector<GraftKernel> of_stubs;
  std::exception_ptr error; // that its initializers threw
};

// What a library's blocks have, before it is compared with what there is.
struct Recorded {
  std::map<std::string, Definition> definitions;
  std::vector<std::string> order; // TorchScript and torch.ops try overloads in the order of their definitions
  std::vector<Kernel> kernels;
};

// None of these is ever destroyed: at the end of the process other threads may still call operators.
auto& mutex = *new std::recursive_mutex;
auto& loads = *new std::map<std::string, Load>;
// Registrations of retired definitions.
auto& retired = *new std::vector<Registered>;
// A library that was opened before the last definition was retired may have handles to it.
size_t retired_count = 0;
// By path.
auto& opened = *new std::map<std::string, Opened>;
// What members of dispatch stubs had before the first load that wrote them.
auto& stock_kernels = *new std::map<uintptr_t, void*>;
Opened* opening = nullptr;
Recorded* recorded = nullptr;

c10::OperatorName parsed(const std::string& name) {
  const auto dot = name.find('.');
  return dot == std::string::npos ? c10::OperatorName(name, "")
                                  : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
}

std::string qualified(const std::string& space, const std::string& name) {
  return name.empty() || name.find("::") != std::string::npos ? name : space + "::" + name;
}

std::string space_of(const std::string& name) {
  const auto end = name.find("::");
  return end == std::string::npos ? "_" : name.substr(0, end);
}

bool is_ours(const Key& key) {
  return std::any_of(loads.begin(), loads.end(), [&](const auto& each) { return each.second.kernels.count(key) != 0; });
}

Recorded record(const Opened& library) {
  Recorded found;
  recorded = &found;
  const auto end = std::shared_ptr<void>(nullptr, [](void*) { recorded = nullptr; });
  for (const auto& block : library.blocks) {
    Library written(block.space, block.key);
    block.define(written);
    for (auto& each : written.definitions) {
      const auto name = qualified(block.space, each.schema.substr(0, each.schema.find('(')));
      TORCH_CHECK(found.definitions.emplace(name, each).second, name, " is defined twice");
      found.order.push_back(name);
    }
    for (auto& each : written.kernels) {
      each.name = qualified(block.space, each.name);
      found.kernels.push_back(std::move(each));
    }
  }
  return found;
}

// What has been done, to be undone if something that follows fails.
class Undo {
 public:
  void add(std::function<void()> step) {
    steps_.push_back(std::move(step));
  }
  void clear() {
    steps_.clear();
  }
  ~Undo() {
    while (!steps_.empty()) {
      steps_.back()();
      steps_.pop_back();
    }
  }

 private:
  std::vector<std::function<void()>> steps_;
};

void define(const std::string& name, Defined& op) {
  op.library.emplace(torch::Library::FRAGMENT, space_of(name), std::nullopt, __FILE__, __LINE__);
  const auto& tags = op.definition.tags;
  op.library->def(op.definition.schema.c_str(), tags);
}

void register_kernel(Registered& one) {
  const auto& kernel = one.kernel;
  // Without PyTorch's warning that another kernel was there, which is shown once in a process.
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  c10::WarningUtils::WarnAlways always;
  one.library.emplace(torch::Library::IMPL, space_of(kernel.name), kernel.key, __FILE__, __LINE__);
  if (kernel.name.empty()) {
    one.library->fallback(kernel.make(*one.slot));
  } else {
    one.library->impl(kernel.name.c_str(), kernel.make(*one.slot));
  }
}

// Takes a definition's name away, and its kernels. What still holds it gets an error.
void retire(Load& load, const std::string& name, Undo& undo) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto handle = dispatcher.findSchemaOrThrow(parsed(name).name.c_str(), parsed(name).overload_name.c_str());
  ++retired_count;
  auto op = std::make_shared<Defined>(std::move(load.operators.at(name)));
  load.operators.erase(name);
  auto schema = handle.schema();
  // TorchScript forgets it. Its kernels keep the definition.
  op->library.reset();
  auto& entry = (handle.*get(Entry{}))->op;
  entry.registerSchema(std::move(schema), "graft.load", op->definition.tags);
  auto& names = dispatcher.*get(Names{});
  names.write([&](auto& table) { table.erase(parsed(name)); });
  undo.add([&load, name, op, handle] {
    (c10::Dispatcher::singleton().*get(Names{})).write([&](auto& table) { table.emplace(parsed(name), handle); });
    (handle.*get(Entry{}))->op.deregisterSchema();
    define(name, *op);
    load.operators.emplace(name, std::move(*op));
  });
}

// The last step: nothing can fail here.
void empty_slots(Load& load, const std::string& name) {
  for (auto each = load.kernels.begin(); each != load.kernels.end();) {
    if (each->first.first == name) {
      each->second.slot->kernel.store(nullptr, std::memory_order_release);
      retired.push_back(std::move(each->second));
      each = load.kernels.erase(each);
    } else {
      ++each;
    }
  }
}

// Returns whether another package defines the operator, with the same schema.
bool is_defined_elsewhere(const std::string& name, const Definition& definition) {
  const auto there = c10::Dispatcher::singleton().findSchema(parsed(name));
  if (!there) {
    return false;
  }
  for (const auto& [other, load] : loads) {
    const auto found = load.operators.find(name);
    TORCH_CHECK(
        found == load.operators.end() || !found->second.library, name, " is that of ", other, "; unload ", other);
  }
  const auto parenthesis = definition.schema.find('(');
  const auto schema = torch::jit::parseSchema(name + definition.schema.substr(parenthesis));
  TORCH_CHECK(there->schema() == schema, name, " is there already, with another schema: ", there->schema());
  return true;
}

void write_stub(const GraftKernel& kernel, void* chosen) {
  stock_kernels.emplace(kernel.member, *reinterpret_cast<void**>(kernel.member));
  *reinterpret_cast<void**>(kernel.member) = chosen;
  // The stub chooses again when it is called.
  __atomic_store_n(reinterpret_cast<void**>(kernel.stub), nullptr, __ATOMIC_RELEASE);
}

void exchange_stubs(Load& load, const std::vector<GraftKernel>& kernels) {
  std::map<uintptr_t, GraftKernel> now;
  for (const auto& kernel : kernels) {
    write_stub(kernel, *kernel.own);
    now.emplace(kernel.member, kernel);
  }
  for (const auto& [member, kernel] : load.of_stubs) {
    if (!now.count(member)) {
      write_stub(kernel, stock_kernels.at(member));
    }
  }
  load.of_stubs = std::move(now);
}

void exchange(const std::string& name, Recorded&& recorded, const std::vector<GraftKernel>& of_stubs) {
  auto& load = loads[name];
  Undo undo;
  std::vector<std::string> gone;
  for (const auto& [op, defined] : load.operators) {
    const auto now = recorded.definitions.find(op);
    const bool is_same = now != recorded.definitions.end() && now->second.schema == defined.definition.schema &&
        now->second.tags == defined.definition.tags;
    if (!is_same) {
      gone.push_back(op);
    }
  }
  std::vector<std::string> retired_now;
  for (const auto& op : gone) {
    if (load.operators.at(op).library) {
      retire(load, op, undo);
      retired_now.push_back(op);
    } else {
      // Another package's: without our kernels, its own are called again.
      undo.add([&load, op, definition = load.operators.at(op).definition] {
        load.operators.emplace(op, Defined{definition, std::nullopt});
      });
      load.operators.erase(op);
    }
  }
  const auto is_gone = [&](const std::string& op) { return std::find(gone.begin(), gone.end(), op) != gone.end(); };
  for (const auto& op : recorded.order) {
    const auto found = recorded.definitions.find(op);
    if (found == recorded.definitions.end() || load.operators.count(op)) { // taken by another load, or there already
      continue;
    }
    Defined defined{found->second, std::nullopt};
    if (!is_defined_elsewhere(op, defined.definition)) {
      define(op, defined);
    }
    load.operators.emplace(op, std::move(defined));
    undo.add([&load, op] { load.operators.erase(op); });
  }
  // Registered now; those that are exchanged are written at the end, all at once.
  std::map<Key, Registered> fresh;
  std::vector<std::pair<Registered*, Kernel>> exchanged;
  std::map<Key, bool> kept;
  for (auto& kernel : recorded.kernels) {
    const Key key{kernel.name, kernel.key};
    const auto there = load.kernels.find(key);
    kept[key] = true;
    if (there != load.kernels.end() && !is_gone(kernel.name) && there->second.kernel.type == kernel.type) {
      exchanged.emplace_back(&there->second, std::move(kernel));
      continue;
    }
    Registered one{std::move(kernel), nullptr, std::nullopt};
    one.slot = new Slot{{one.kernel.function}, one.kernel.name};
    register_kernel(one);
    fresh.insert_or_assign(key, std::move(one));
  }
  undo.clear();
  exchange_stubs(load, of_stubs);
  for (auto& [registered, kernel] : exchanged) {
    registered->slot->kernel.store(kernel.function, std::memory_order_release);
    registered->kernel = std::move(kernel);
  }
  for (const auto& op : retired_now) {
    empty_slots(load, op);
  }
  for (auto each = load.kernels.begin(); each != load.kernels.end();) {
    each = kept.count(each->first) ? std::next(each) : load.kernels.erase(each);
  }
  for (auto& [key, one] : fresh) {
    load.kernels.insert_or_assign(key, std::move(one));
  }
}

void open_new(const std::string& path, Opened& library);
void run_initializers(const link_map& library);

const Opened& open(const std::string& path) {
  const auto [there, is_new] = opened.try_emplace(path);
  auto& library = there->second;
  if (is_new) {
    opening = &library;
    try {
      open_new(path, library);
    } catch (...) {
      library.error = std::current_exception();
    }
    opening = nullptr;
  }
  if (const auto error = library.error) {
    if (!library.handle) {
      opened.erase(there); // another try may succeed; where initializers threw, they must not run again
    }
    std::rethrow_exception(error);
  }
  return library;
}

void open_new(const std::string& path, Opened& library) {
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library.handle, dlerror());
  link_map* map = nullptr;
  TORCH_CHECK(dlinfo(library.handle, RTLD_DI_LINKMAP, &map) == 0, dlerror());
  run_initializers(*map);
}

// Runs what the loader does not: scripts/graft/compile renames the array in the library's dynamic section. An exception
// in the loader would end the process.
void run_initializers(const link_map& library) {
  using Initializer = void (*)(int, char**, char**);
  const Initializer* first = nullptr;
  size_t size = 0;
  for (const auto* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == GRAFT_INIT_ARRAY) {
      first = reinterpret_cast<const Initializer*>(library.l_addr + entry->d_un.d_ptr);
    } else if (entry->d_tag == GRAFT_INIT_ARRAY_SIZE) {
      size = entry->d_un.d_val / sizeof(Initializer);
    }
  }
  for (size_t i = 0; i < size; ++i) {
    first[i](0, nullptr, nullptr);
  }
}

std::string error;

template <class Step>
const char* caught(const Step& step) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  try {
    step();
    return nullptr;
  } catch (const c10::Error& exception) {
    error = exception.what_without_backtrace();
  } catch (const std::exception& exception) {
    error = exception.what();
  } catch (...) {
    error = "a static initializer threw something that is no std::exception";
  }
  return error.c_str();
}

} // namespace

Block::Block(const char* space, std::optional<c10::DispatchKey> key, void (*define)(Library&))
    : space(space), key(key), define(define) {
  opening->blocks.push_back(*this);
}

void* symbol(const std::string& path, const char* name) {
  const auto library = opened.find(path);
  return library == opened.end() ? nullptr : dlsym(library->second.handle, name);
}

void Library::add(const std::string& name, torch::CppFunction function) {
  const auto key = function.*get(HeldKey{});
  auto* held = new c10::KernelFunction(std::move(function.*get(Held{})));
  if (held->isFallthrough()) {
    kernels.push_back(
        {name, key ? key : key_, "fallthrough", held, [](Slot&) { return torch::CppFunction::makeFallthrough(); }});
    return;
  }
  kernels.push_back({name, key ? key : key_, "boxed", held, [](Slot& slot) {
                       return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<ExchangedBoxed>(&slot));
                     }});
}

bool Library::is_free(const char* name, const char* overload, std::initializer_list<c10::DispatchKey> keys) const {
  const auto whole = qualified(space, *overload ? std::string(name) + "." + overload : std::string(name));
  const auto op = c10::Dispatcher::singleton().findOp(parsed(whole));
  return std::all_of(keys.begin(), keys.end(), [&](c10::DispatchKey key) {
    const bool is_recorded = std::any_of(recorded->kernels.begin(), recorded->kernels.end(), [&](const Kernel& each) {
      return each.name == whole && each.key == key;
    });
    return !is_recorded && (!op || !op->hasKernelForDispatchKey(key) || is_ours({whole, key}));
  });
}

} // namespace graft_loaded

using namespace graft_loaded;

// Called by a library that is being opened, for its kernels of dispatch stubs of the base.
extern "C" GRAFT_EXPORTED void graft_offer(const GraftLibrary* libraries) {
  for (const auto* library = libraries; library->name; ++library) {
    opening->of_stubs.insert(
        opening->of_stubs.end(), library->kernels, library->kernels + library->kernel_count);
    for (size_t i = 0; i < library->stock_count; ++i) {
      const auto found = stock_kernels.find(library->stock[i].member);
      if (found != stock_kernels.end()) {
        *library->stock[i].own = found->second; // not the one of an earlier load
      }
    }
  }
}

namespace {

[[noreturn]] void fail() {
  throw std::runtime_error("a replaced kernel was called");
}

// Switches what a load registered for operators that it does not define.
void replace(Load& load, bool is_on) {
  for (auto& [key, one] : load.kernels) {
    const auto op = load.operators.find(key.first);
    const bool is_own = op != load.operators.end() && op->second.library;
    if (is_own || one.library.has_value() == is_on) {
      continue;
    }
    if (is_on) {
      register_kernel(one);
    } else {
      one.library.reset(); // the dispatcher returns to the kernel that was there
    }
  }
}

// What graft_replace was last called with.
GraftKernels chosen = GRAFT_OWN;

void choose(Load& load) {
  for (auto& [member, kernel] : load.of_stubs) {
    void* function = chosen == GRAFT_STOCK ? stock_kernels.at(member) : *kernel.own;
    write_stub(kernel, chosen == GRAFT_FAILING ? reinterpret_cast<void*>(fail) : function);
  }
  replace(load, chosen != GRAFT_STOCK);
}

} // namespace

// Opens the library at `path` and makes what it registers that of the load `name`, in place of its last ones, but for the
// operators in the lines of `taken`. Returns an error, or null.
extern "C" GRAFT_EXPORTED const char* graft_load(const char* name, const char* path, const char* taken) {
  return caught([&] {
    const auto& library = open(path);
    auto found = record(library);
    for (const auto& op : lines(taken)) {
      found.definitions.erase(op);
      const auto is_of = [&](const Kernel& kernel) { return kernel.name == op; };
      found.kernels.erase(
          std::remove_if(found.kernels.begin(), found.kernels.end(), is_of), found.kernels.end());
    }
    exchange(name, std::move(found), library.of_stubs);
    if (chosen != GRAFT_OWN) {
      choose(loads.at(name));
    }
  });
}

// Returns the names of the operators of a load, each ends in a newline; also those that its sources define themselves.
extern "C" GRAFT_EXPORTED const char* graft_operators(const char* name) {
  static auto& names = *new std::string;
  caught([&] {
    names.clear();
    for (const auto& [op, defined] : loads[name].operators) {
      names += op + "\n";
    }
  });
  return names.c_str();
}

// Returns the number of definitions that were retired.
extern "C" GRAFT_EXPORTED size_t graft_retired() {
  return retired_count;
}

extern "C" GRAFT_EXPORTED const char* graft_unload(const char* name) {
  return caught([&] {
    exchange(name, {}, {});
    loads.erase(name);
  });
}

// As the other deliveries' function of this name, for all loads.
void graft_replace(GraftKernels kernels) {
  caught([&] {
    chosen = kernels;
    for (auto& [name, load] : loads) {
      choose(load);
    }
  });
}
