// The table of options of horovodrun, Open MPI's mpirun, MPICH's mpiexec (Hydra) and torchrun, and how hvdrun treats
// each. The parser uses this table, and its documentation is generated from it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Bits of OtherOption::known_to.
inline constexpr unsigned kHorovodrun = 1, kMpirun4 = 2, kMpirun5 = 4, kHydra = 8, kTorchrun = 16;
inline constexpr unsigned kMpirun = kMpirun4 | kMpirun5;

enum class Treatment {
  same,       // hvdrun has an option of this name with the same meaning
  different,  // hvdrun has an option of this name with another meaning
  alias,      // translated to other options of hvdrun
  no_effect,  // accepted, with a note that it has no effect
  refused,    // an error with the reason
};

struct OtherOption {
  std::string_view name;  // as in its launcher's manual, with its dashes
  unsigned known_to;
  Treatment treatment;
  int values;             // how many arguments follow it
  std::string_view text;  // alias: hvdrun's options, each one word with its value ({}: the value, {MiB}: the value in
                          // MiB converted to bytes); else a remark
};

// Finds an option by name; leading dashes do not matter: -npernode is --npernode. Returns the first of several.
std::span<const OtherOption> other_options();
const OtherOption* find_other_option(std::string_view name);

// Returns hvdrun's options for an alias, one per element. Throws InvalidArgument if the value must be a number.
std::vector<std::string> expand_alias(const OtherOption& option, const std::string& value);

// Whether one of `launchers` has an option of this name with the same meaning as hvdrun's.
bool is_known_to(unsigned launchers, std::string_view name);

// The text of docs/launcher-options.md.
std::string other_options_document();

}  // namespace hvd::launcher
