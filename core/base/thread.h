// The calling thread's name, as ps -L and debuggers show it (15 bytes).
#pragma once

#include <string_view>

namespace hvd {

void name_this_thread(std::string_view name);

}  // namespace hvd
