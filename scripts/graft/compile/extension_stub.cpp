// Takes the place of an extension in a package for several torches: opens the extension for the torch of this process,
// when Python imports it, or when something else opens it (torch.ops.load_library). Uses no library: what it calls is
// in every process, in whatever version.

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

extern "C" {
__attribute__((weak)) extern void* PyExc_ImportError;
__attribute__((weak)) void PyErr_SetString(void* type, const char* text);
__attribute__((visibility("default"))) void* GRAFT_INIT();
}

namespace {

void* opened;
char said[4096];

void write_hex(const unsigned char* bytes, size_t count, char* text) {
  for (size_t i = 0; i < count; ++i) {
    text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
    text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
  }
  text[2 * count] = 0;
}

// Writes the build-id of libtorch_cpu.so into `text`, if this is that library.
int find_torch(dl_phdr_info* info, size_t, void* text) {
  const char* last = strrchr(info->dlpi_name, '/');
  if (strcmp(last ? last + 1 : info->dlpi_name, "libtorch_cpu.so") != 0)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE)
      continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    const char* end = at + part.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof(*note);
      const char* content = name + ((note->n_namesz + 3) & ~3u);
      if (note->n_type == NT_GNU_BUILD_ID && note->n_descsz <= 32 && strcmp(name, "GNU") == 0) {
        write_hex(reinterpret_cast<const unsigned char*>(content), note->n_descsz, static_cast<char*>(text));
        return 1;
      }
      at = content + ((note->n_descsz + 3) & ~3u);
    }
  }
  return 0;
}

void refuse(const char* why) {
  snprintf(said, sizeof(said), "%s: %s", GRAFT_PLACE, why);
  fprintf(stderr, "%s\n", said);
}

__attribute__((constructor)) void open_extension() {
  char torch[80] = "", path[4096];
  Dl_info own;
  dl_iterate_phdr(&find_torch, torch);
  if (!torch[0])
    return refuse("it belongs to a torch, and this process has none; import torch first");
  if (!dladdr(reinterpret_cast<void*>(&open_extension), &own) || !own.dli_fname)
    return refuse("the loader does not know where it lies");
  const char* last = strrchr(own.dli_fname, '/');
  const int length = last ? static_cast<int>(last + 1 - own.dli_fname) : 0;
  snprintf(path, sizeof(path), "%.*s%s%s/%s/%s", length, own.dli_fname, GRAFT_UP, GRAFT_EXTENSIONS, torch, GRAFT_PLACE);
  if (!strchr(path, '/'))
    return refuse("open it by a path");
  FILE* file = fopen(path, "rb");
  if (!file)
    return refuse(GRAFT_REFUSED);
  fclose(file);
  opened = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!opened)
    refuse(dlerror());
}

} // namespace

void* GRAFT_INIT() {
  using Init = void* (*)();
  const auto init = opened ? reinterpret_cast<Init>(dlsym(opened, GRAFT_INIT_NAME)) : nullptr;
  if (init)
    return init();
  if (opened)
    snprintf(said, sizeof(said), "dynamic module does not define module export function (%s)", GRAFT_INIT_NAME);
  PyErr_SetString(PyExc_ImportError, said);
  return nullptr;
}
