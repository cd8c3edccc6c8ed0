#include "core/base/thread.h"

#include <pthread.h>

#include <string>

namespace hvd {

void name_this_thread(std::string_view name) {
  const std::string text(name.substr(0, 15));
  pthread_setname_np(pthread_self(), text.c_str());
}

}  // namespace hvd
