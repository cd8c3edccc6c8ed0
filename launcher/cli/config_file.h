// Horovod's configuration file, which --config-file names: YAML whose keys stand for options of horovodrun. Pure.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct ConfigOptions {
  std::vector<std::string> options;       // as they would be typed
  std::vector<std::string> unknown_keys;  // "section.key"
};

// `with_controller` false: the key of that name is left out, for who has chosen on the command line. `name` is what the
// file is called in messages. Throws InvalidArgument for what is not YAML, not made of sections, or has no sense.
ConfigOptions read_config(const std::string& yaml, bool with_controller, const std::string& name);

}  // namespace hvd::launcher
