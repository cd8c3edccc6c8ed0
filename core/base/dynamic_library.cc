#include "core/base/dynamic_library.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace hvd {

DynamicLibrary DynamicLibrary::open(const std::string& name) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return {name, handle};
  const char* const why = dlerror();
  throw Unsupported(why != nullptr ? why : name + " cannot be opened");
}

DynamicLibrary DynamicLibrary::loaded(const std::string& name) {
  return {name, dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)};
}

void* DynamicLibrary::find(const char* symbol) const { return dlsym(handle_, symbol); }

void* DynamicLibrary::find_required(const char* symbol) const {
  if (void* const found = find(symbol)) return found;
  throw Unsupported(name_ + " has no " + symbol + "; it is too old, or something else");
}

std::string DynamicLibrary::file_of(const void* symbol) const {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : name_;
}

}  // namespace hvd
