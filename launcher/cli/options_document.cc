// Generates docs/launcher-options.md, which hvdrun --other-options prints.
#include <algorithm>
#include <utility>

#include "launcher/cli/other_options.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kIntroduction = R"(# Options of other launchers

What hvdrun makes of each option of horovodrun (0.28), Open MPI's mpirun (4.1 and 5.0), MPICH's mpiexec (Hydra 4) and
torchrun (PyTorch 2). Generated from the table in `launcher/cli/other_options.cc`, which the parser itself goes by, with
`hvdrun --other-options`.

- *same*: hvdrun has this option. `hvdrun --help` says what it does.
- *stands for*: hvdrun has other words for it.
- *no effect*: accepted; a line on standard error says why nothing changes. `--quiet` leaves that line out.
- *refused*: an error says why, and what to write instead.

Long options may have one dash or two, `_` may stand for `-` within them, and a value may follow in the next argument or
behind `=`. Under `--mpi` what mpirun or mpiexec knows goes to it as it was typed.

| Option | Of | With hvdrun |
|---|---|---|
)";

std::string launchers_of(unsigned known_to) {
  constexpr std::pair<unsigned, std::string_view> kNames[] = {{kHorovodrun, "horovodrun"}, {kMpirun, "mpirun"},
                                                              {kMpirun4, "mpirun 4.1"},    {kMpirun5, "mpirun 5"},
                                                              {kHydra, "mpiexec"},         {kTorchrun, "torchrun"}};
  std::string text;
  for (const auto& [bits, name] : kNames) {
    if ((known_to & bits) != bits) continue;
    known_to &= ~bits;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

// Formats "--genv=A=1 -N{}" as it would be typed: "`--genv A=1 -N VALUE`".
std::string as_typed(std::string_view alias) {
  std::string text;
  bool is_name = true;
  for (const char c : alias) {
    if (is_name && c == '{' && text.back() != ' ') text += ' ';  // -N{}
    if (c == '=' && is_name) {
      text += ' ';
      is_name = false;
    } else {
      text += c;
    }
    if (c == ' ') is_name = true;
  }
  for (const std::string_view place : {"{MiB}", "{}"}) {
    if (const auto found = text.find(place); found != std::string::npos) {
      text.replace(found, place.size(), place == "{}" ? "VALUE" : "BYTES");
    }
  }
  return "`" + text + "`";
}

std::string treatment_of(const OtherOption& option) {
  std::string remark(option.text);
  switch (option.treatment) {
    case Treatment::same: return "same" + (remark.empty() ? "" : ": " + remark);
    case Treatment::different: return "different: " + remark;
    case Treatment::alias: return "stands for " + as_typed(option.text);
    case Treatment::no_effect: return "no effect: " + remark;
    case Treatment::refused: return "refused: " + remark;
  }
  return remark;
}

}  // namespace

std::string other_options_document() {
  const auto all = other_options();
  std::vector<OtherOption> sorted(all.begin(), all.end());
  const auto letters = [](const OtherOption& option) { return option.name.substr(option.name.find_first_not_of('-')); };
  std::ranges::stable_sort(sorted, {}, letters);
  std::string text(kIntroduction);
  for (const OtherOption& option : sorted) {
    text += "| `" + std::string(option.name) + "` | " + launchers_of(option.known_to) + " | " + treatment_of(option) +
            " |\n";
  }
  return text;
}

}  // namespace hvd::launcher
