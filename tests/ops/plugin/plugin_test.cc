#include "ops/plugin/plugin.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::testing {

TEST_CASE("plugin library: what is none says why") {
  CHECK_THROWS_WITH(PluginLibrary("/nowhere/plugin.so"),
                    Catch::Matchers::Contains("the plugin /nowhere/plugin.so is not available") &&
                        Catch::Matchers::Contains("cannot open shared object file"));
  CHECK_THROWS_WITH(PluginLibrary("libm.so.6"), Catch::Matchers::Contains("it has no function hvd_plugin_get"));
}

}  // namespace hvd::testing
