#include "parameters/update_functions.h"

#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"

namespace hvd {

namespace {

struct UpdateFunctions {
  Mutex mutex;
  std::map<std::string, UpdateFunction> by_name GUARDED_BY(mutex);
};

UpdateFunctions& update_functions() {
  static auto* const functions = new UpdateFunctions;  // servers may still run when the process ends
  return *functions;
}

}  // namespace

void register_update(const std::string& name, UpdateFunction function) {
  UpdateFunctions& functions = update_functions();
  const MutexLock lock(functions.mutex);
  functions.by_name[name] = std::move(function);
}

UpdateFunction find_update(const std::string& name) {
  UpdateFunctions& functions = update_functions();
  const MutexLock lock(functions.mutex);
  const auto found = functions.by_name.find(name);
  if (found == functions.by_name.end()) {
    throw InvalidArgument("no update '" + name +
                          "' is registered in this server: register it before hvd.init(), in every process");
  }
  return found->second;
}

}  // namespace hvd
