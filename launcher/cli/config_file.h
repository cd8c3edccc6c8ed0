// Parses Horovod's configuration file (--config-file): YAML whose keys correspond to options of horovodrun. Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct ConfigOptions {
  std::vector<std::string> options;       // as they would be typed
  std::vector<std::string> unknown_keys;  // "section.key"
};

// If `with_controller` is false, the key `controller` is ignored, because the command line has chosen one. `name` is
// the file's name in messages. Throws InvalidArgument if it is not YAML, has no sections, or has invalid values.
ConfigOptions read_config(const std::string& yaml, bool with_controller, const std::string& name);

}  // namespace hvd::launcher
