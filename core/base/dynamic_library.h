// A library that is opened at run time, and its functions by name.
//
// Never closed: what it has started (threads, handlers at exit) may outlive whoever opened it.
#pragma once

#include <string>

namespace hvd {

class DynamicLibrary {
 public:
  // Throws Unsupported with the loader's own words.
  static DynamicLibrary open(const std::string& name);
  // One that is in this process already; without a handle if it is not.
  static DynamicLibrary loaded(const std::string& name);

  explicit operator bool() const { return handle_ != nullptr; }
  // As it was asked for.
  const std::string& name() const { return name_; }
  // The file in which `symbol` lies, as far as the loader knows; else the name.
  std::string file_of(const void* symbol) const;

  // Null if there is none.
  void* find(const char* symbol) const;

  // The function `symbol`. Throws Unsupported that names it.
  template <typename Function>
  void require(Function*& slot, const char* symbol) const {
    slot = reinterpret_cast<Function*>(find_required(symbol));
  }
  // The same of one that not every version has: null.
  template <typename Function>
  void accept(Function*& slot, const char* symbol) const {
    slot = reinterpret_cast<Function*>(find(symbol));
  }

 private:
  DynamicLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  void* find_required(const char* symbol) const;

  std::string name_;
  void* handle_;
};

}  // namespace hvd
