#include "launcher/host.h"

namespace hvd::launcher {

Environment with_exports(const ProgramPlan& program) {
  Environment environment = program.environment;
  for (const auto& [name, value] : program.exports) environment[name] = value;
  return environment;
}

}  // namespace hvd::launcher
