// Binds functions that the base's libraries define but do not export.
//
// The official libraries hide most symbols, but their symbol tables still contain the address of each function. A slot
// holds this address, plus the library's load address; it is filled when this library is loaded. A trampoline jumps to
// the address in its slot. This is correct only for the file that the addresses were read from, so its build-id is
// compared first. The functions are listed in a table generated for each library (graft/compile/trampolines.py).
//
// A dispatch stub of the base gets our kernels in the same way: the table has the addresses of the pointers to write.

#include "graft_libraries.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

extern "C" __attribute__((visibility("hidden"))) const char* graft_binding_error();
#ifdef GRAFT_LOADED
extern "C" void graft_offer(const GraftLibrary* libraries); // in loads.cpp
#endif

namespace {

// Created on first use: this runs before the initializers of this library's other objects.
std::string& error() {
  static std::string text;
  return text;
}

std::string build_id_of(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& header = object.dlpi_phdr[i];
    if (header.p_type != PT_NOTE) {
      continue;
    }
    const char* note = reinterpret_cast<const char*>(object.dlpi_addr + header.p_vaddr);
    const char* end = note + header.p_memsz;
    const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) fields;
      std::memcpy(&fields, note, sizeof(fields));
      const char* name = note + sizeof(fields);
      const char* data = name + padded(fields.n_namesz);
      if (fields.n_type == NT_GNU_BUILD_ID && fields.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        std::string digits;
        for (size_t byte = 0; byte < fields.n_descsz; ++byte) {
          char pair[3];
          std::snprintf(pair, sizeof(pair), "%02x", static_cast<unsigned char>(data[byte]));
          digits += pair;
        }
        return digits;
      }
      note = data + padded(fields.n_descsz);
    }
  }
  return "none";
}

// The loader keeps one object per soname, so the name alone identifies the loaded library.
int bind_if_named(dl_phdr_info* object, size_t, void* wanted) {
  const auto& library = *static_cast<const GraftLibrary*>(wanted);
  const char* slash = std::strrchr(object->dlpi_name, '/');
  if (std::strcmp(slash ? slash + 1 : object->dlpi_name, library.name) != 0) {
    return 0;
  }
  const std::string found = build_id_of(*object);
  if (found != library.build_id) {
    error() = std::string("this torch was grafted onto a ") + library.name + " with build-id " + library.build_id +
        ", but the one loaded is " + object->dlpi_name + " with build-id " + found +
        ". Files of two torch packages are mixed: uninstall torch, delete the rest of its folder, and install " +
        "the wheel again. If LD_LIBRARY_PATH or LD_PRELOAD names another torch, unset it";
    return 1;
  }
  for (size_t i = 0; i < library.slot_count; ++i) {
    graft_slots[library.slots[i].index] = reinterpret_cast<void*>(object->dlpi_addr + library.slots[i].value);
  }
  for (size_t i = 0; i < library.kernel_count; ++i) {
    auto& kernel = library.kernels[i];
    kernel.member += object->dlpi_addr;
    kernel.stub += object->dlpi_addr;
    kernel.stock = *reinterpret_cast<void**>(kernel.member);
  }
  for (size_t i = 0; i < library.stub_count; ++i) {
    const auto& stub = library.stubs[i];
    std::memcpy(stub.own, reinterpret_cast<void*>(object->dlpi_addr + stub.stock), stub.size);
    *stub.own = nullptr; // its kernel for CPUs is to be chosen
  }
  for (size_t i = 0; i < library.stock_count; ++i) {
    auto& each = library.stock[i];
    each.member += object->dlpi_addr;
    *each.own = *reinterpret_cast<void**>(each.member);
  }
  return 1;
}

#ifndef GRAFT_LOADED
[[noreturn]] void fail() {
  throw std::runtime_error("a replaced kernel was called");
}

// See graft_replace, which other libraries have, too.
void replace(GraftKernels kernels) {
  for (const auto* library = graft_libraries; library->name; ++library) {
    for (size_t i = 0; i < library->kernel_count; ++i) {
      const auto& kernel = library->kernels[i];
      void* chosen = kernels == GRAFT_STOCK ? kernel.stock : *kernel.own;
      *reinterpret_cast<void**>(kernel.member) = kernels == GRAFT_FAILING ? reinterpret_cast<void*>(fail) : chosen;
      // The stub chooses again when it is called.
      __atomic_store_n(reinterpret_cast<void**>(kernel.stub), nullptr, __ATOMIC_RELEASE);
    }
  }
  for (auto* each = graft_replacements; each; each = each->next) {
    each->set(*each, kernels != GRAFT_STOCK);
  }
}
#endif

#ifndef GRAFT_LOADED
// Where this library is loaded, and another file of the same build.
struct Copies {
  uintptr_t base;
  std::string own;
  std::string build_id;
  std::string other;
};

// Not with dladdr, which only glibc 2.34 has in its main library.
int read_own(dl_phdr_info* object, size_t, void* found) {
  auto& copies = *static_cast<Copies*>(found);
  const auto address = reinterpret_cast<uintptr_t>(graft_libraries);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    const auto start = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && start <= address && address < start + header.p_memsz) {
      copies = {object->dlpi_addr, object->dlpi_name, build_id_of(*object), ""};
      return 1;
    }
  }
  return 0;
}

int find_other(dl_phdr_info* object, size_t, void* found) {
  auto& copies = *static_cast<Copies*>(found);
  if (object->dlpi_addr == copies.base || build_id_of(*object) != copies.build_id) {
    return 0;
  }
  copies.other = object->dlpi_name;
  return 1;
}

// Ends the process as the dispatcher would, which gets the same operators twice; but says which files these are of.
void require_no_copy() {
  Copies copies{};
  if (dl_iterate_phdr(read_own, &copies) && copies.build_id != "none" && dl_iterate_phdr(find_other, &copies)) {
    std::fprintf(
        stderr,
        "torch: %s cannot be loaded: it is a copy of %s, which is loaded and has registered these operators.\n",
        copies.own.c_str(),
        copies.other.c_str());
    _exit(1);
  }
}
#endif

// Runs before every other initializer: these register operators, and may call the functions bound here.
__attribute__((constructor(101))) void bind_slots() {
#ifndef GRAFT_LOADED
  require_no_copy();
#endif
  for (const auto* library = graft_libraries; library->name; ++library) {
    if (dl_iterate_phdr(bind_if_named, const_cast<GraftLibrary*>(library)) == 0) {
      error() = std::string(library->name) + " is not loaded, but this torch was grafted onto it";
    }
    if (error().empty()) {
      continue;
    }
#ifdef GRAFT_LOADED
    throw std::runtime_error(error()); // loads.cpp calls this
#endif
    if (graft_is_python_extension) {
      return; // its init function raises ImportError
    }
    // The library is loaded before any code could catch an exception.
    std::fprintf(stderr, "torch: %s.\n", error().c_str());
    _exit(1);
  }
  graft_choose_for_processor();
  mprotect(graft_slots, graft_slots_size, PROT_READ);
#ifdef GRAFT_LOADED
  graft_offer(graft_libraries);
#else
  replace(GRAFT_OWN);
#endif
}

} // namespace

#ifndef GRAFT_LOADED
GraftReplacement* graft_replacements = nullptr;

void graft_replace(GraftKernels kernels) {
  replace(kernels);
}
#endif

const char* graft_binding_error() {
  return error().empty() ? nullptr : error().c_str();
}
