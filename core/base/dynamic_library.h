// A shared library that is opened at run time, with lookup of its functions by name.
//
// Never closed: threads and exit handlers that the library has started may outlive this object.
#pragma once

#include <dlfcn.h>

#include <string>
#include <utility>

#include "core/base/error.h"

namespace hvd {

class DynamicLibrary {
 public:
  // Throws Unsupported with the loader's message.
  static DynamicLibrary open(const std::string& name) {
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return {name, handle};
    const char* const why = dlerror();
    throw Unsupported(why != nullptr ? why : name + " cannot be opened");
  }
  // A library that is loaded in this process already; without a handle if it is not.
  static DynamicLibrary loaded(const std::string& name) {
    return {name, dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)};
  }

  explicit operator bool() const { return handle_ != nullptr; }
  // The name as it was requested.
  const std::string& name() const { return name_; }
  // The file that contains `symbol`, if the loader knows it; else the name.
  std::string file_of(const void* symbol) const {
    Dl_info info{};
    return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : name_;
  }

  // A function of the library, which becomes a pointer of the type that it is assigned to.
  class Symbol {
   public:
    explicit Symbol(void* address) : address_(address) {}
    template <typename Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address_);
    }

   private:
    void* address_;
  };
  // Throws Unsupported that names the symbol if the library has none.
  Symbol require(const char* symbol) const {
    if (void* const found = dlsym(handle_, symbol)) return Symbol(found);
    throw Unsupported(name_ + " has no " + symbol + "; it is too old, or something else");
  }
  // Null if it has none: not every version does.
  Symbol find(const char* symbol) const { return Symbol(dlsym(handle_, symbol)); }

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}

  std::string name_;
  void* handle_;
};

}  // namespace hvd
