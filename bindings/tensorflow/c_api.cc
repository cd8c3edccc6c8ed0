#include "bindings/tensorflow/c_api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace hvd::tf {

namespace {

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  const auto keep = [](dl_phdr_info* info, std::size_t, void* to) {
    if (info->dlpi_name != nullptr) static_cast<std::vector<std::string>*>(to)->emplace_back(info->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(keep, &paths);
  return paths;
}

// The TensorFlow library that contains the C API differs between versions.
void* open_tensorflow() {
  const std::vector<std::string> paths = loaded_libraries();
  for (const char* part : {"libtensorflow_framework", "libtensorflow_cc", "_pywrap_tensorflow"}) {
    for (const std::string& path : paths) {
      if (path.find(part) == std::string::npos) continue;
      void* const library = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY | RTLD_LOCAL);
      if (library == nullptr) continue;
      if (dlsym(library, "TF_NewAsyncKernelBuilder") != nullptr) return library;
      dlclose(library);
    }
  }
  return nullptr;
}

// Done (operation.cc) requires that TensorFlow uses the std::function of libstdc++.
bool needs_libstdcxx(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return false;
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): ELF has no pointers
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  }
  for (const ElfW(Dyn)* entry = map->l_ld; strings != nullptr && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_NEEDED && std::string_view(strings + entry->d_un.d_val) == "libstdc++.so.6") return true;
  }
  return false;
}

template <typename Function>
bool find(void* library, const char* symbol, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function == nullptr) problem = std::string("this TensorFlow has no ") + symbol;
  return function != nullptr;
}

}  // namespace

bool find_c_api(CApi& api, std::string& problem) {
  void* const library = open_tensorflow();  // never closed: kernels stay registered until exit
  if (library == nullptr) {
    problem = "no TensorFlow of 2.13 or later is loaded in this process";
    return false;
  }
  if (!needs_libstdcxx(library)) {
    problem = "this TensorFlow was not built with libstdc++, whose std::function hvd has to copy";
    return false;
  }
#define HVD_TF_FIND(name, ...) \
  if (!find(library, "TF_" #name, api.name, problem)) return false;
  HVD_TF_FUNCTIONS(HVD_TF_FIND)
#undef HVD_TF_FIND
  return true;
}

}  // namespace hvd::tf
