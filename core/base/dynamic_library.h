// A shared library that is opened at run time, with lookup of its functions by name.
//
// Never closed: threads and exit handlers that the library has started may outlive this object.
#pragma once

#include <string>

namespace hvd {

class DynamicLibrary {
 public:
  // Throws Unsupported with the loader's message.
  static DynamicLibrary open(const std::string& name);
  // A library that is loaded in this process already; without a handle if it is not.
  static DynamicLibrary loaded(const std::string& name);

  explicit operator bool() const { return handle_ != nullptr; }
  // The name as it was requested.
  const std::string& name() const { return name_; }
  // The file that contains `symbol`, if the loader knows it; else the name.
  std::string file_of(const void* symbol) const;

  // Null if the library has no such symbol.
  void* find(const char* symbol) const;

  // Looks up the function `symbol`. Throws Unsupported that names it if it is missing.
  template <typename Function>
  void require(Function*& slot, const char* symbol) const {
    slot = reinterpret_cast<Function*>(find_required(symbol));
  }
  // The same for a function that not every version has: null if it is missing.
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
