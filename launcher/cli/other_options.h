// The options of horovodrun, Open MPI's mpirun, MPICH's mpiexec (Hydra) and torchrun, and what hvdrun makes of each.
// The parser goes by this table, and the document of it is printed from it. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Bits of OtherOption::known_to.
inline constexpr unsigned kHorovodrun = 1, kMpirun4 = 2, kMpirun5 = 4, kHydra = 8, kTorchrun = 16;
inline constexpr unsigned kMpirun = kMpirun4 | kMpirun5;

enum class Treatment {
  same,       // hvdrun has an option of this name that means this
  different,  // hvdrun has an option of this name that means something else
  alias,      // it stands for other options of hvdrun
  no_effect,  // accepted, and a line says that it changes nothing
  refused,    // an error says why
};

struct OtherOption {
  std::string_view name;  // as its launcher's manual writes it, with its dashes
  unsigned known_to;
  Treatment treatment;
  int values;             // how many arguments follow it
  std::string_view text;  // alias: hvdrun's options, each a word with its value; {} is the value, {MiB} that many MiB
                          // in bytes; else a remark
};

// By name, without regard to dashes at its beginning: -npernode is --npernode. Of several options of the name the
// first.
std::span<const OtherOption> other_options();
const OtherOption* find_other_option(std::string_view name);

// hvdrun's options, one an element, for an alias. Throws InvalidArgument for a value that is not a number where it must
// be.
std::vector<std::string> expand_alias(const OtherOption& option, const std::string& value);

// Whether one of those that `launchers` names has an option of this name that means what hvdrun's means.
bool is_known_to(unsigned launchers, std::string_view name);

// docs/launcher-options.md.
std::string other_options_document();

}  // namespace hvd::launcher
