// Texts generated from the tables of options: the shells' completion scripts, and docs/launcher-options.md, which
// hvdrun --other-options prints. Pure.
#include "launcher/cli/command_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "launcher/cli/other_options.h"

namespace hvd::launcher {
namespace {

// The kind of an option's value.
enum class ValueKind { none, file, directory, words, anything };

struct CompletedOption {
  std::vector<std::string> names;  // all names, as typed
  ValueKind kind = ValueKind::none;
  std::string words;   // the possible values, for ValueKind::words
  int arguments = 0;   // the number of arguments that follow it
  std::string text{};  // description; empty: accepted, but not offered
};

// Derives the kind from the value's name in --help: FILE, DIR, local|ssh, none|UNIT, ...
void set_kind(const std::string& value, CompletedOption& option) {
  const bool has_choices = value.find('|') != std::string::npos;
  option.kind = value == "FILE"  ? ValueKind::file
                : value == "DIR" ? ValueKind::directory
                                 : (has_choices ? ValueKind::words : ValueKind::anything);
  if (option.kind != ValueKind::words) return;
  std::string words = value;
  if (const auto unit = words.find("UNIT"); unit != std::string::npos)
    words.replace(unit, 4, "core|hwthread|numa|socket");
  for (const auto& part : std::views::split(words, '|')) {
    const std::string word(part.begin(), part.end());  // N and RANK are placeholders for numbers
    if (std::isupper(static_cast<unsigned char>(word.front())) == 0)
      option.words += (option.words.empty() ? "" : " ") + word;
  }
}

std::vector<CompletedOption> completed_options(const CLI::App& app) {
  std::vector<CompletedOption> options;
  for (const CLI::Option* own : app.get_options()) {
    CompletedOption& option = options.emplace_back();
    for (const std::string& name : own->get_snames()) option.names.push_back("-" + name);
    for (const std::string& name : own->get_lnames()) {
      option.names.push_back("--" + name);
      option.names.push_back("-" + name);
    }
    if (!own->get_group().empty()) option.text = own->get_description();
    if (own->get_expected_min() == 0) continue;
    set_kind(own->get_option_text(), option);
    option.arguments = own->get_option_text() == "NAME VALUE" ? 2 : 1;
  }
  for (const OtherOption& other : other_options()) {
    if (other.treatment == Treatment::same || other.treatment == Treatment::different) continue;
    const std::string name(other.name.substr(other.name.find_first_not_of('-')));
    CompletedOption& option = options.emplace_back();
    option.names = {"--" + name, "-" + name};
    option.arguments = other.values;
    option.kind = other.values > 0 ? ValueKind::anything : ValueKind::none;
  }
  return options;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// The options that --help shows, with the dashes that they have there.
std::string offered(const std::vector<CompletedOption>& options) {
  std::vector<std::string> names{"-np"};
  for (const CompletedOption& option : options) {
    if (option.text.empty()) continue;
    for (const std::string& name : option.names) {
      if (name.starts_with("--") || name.size() == 2) names.push_back(name);
    }
  }
  return joined(names, " ");
}

std::string bash_script(const std::vector<CompletedOption>& options) {
  std::vector<std::string> one, two;
  std::string values;
  for (const CompletedOption& option : options) {
    if (option.arguments == 0) continue;
    auto& names = option.arguments == 1 ? one : two;
    names.insert(names.end(), option.names.begin(), option.names.end());
    const std::string pattern = "      " + joined(option.names, "|") + ") ";
    if (option.kind == ValueKind::file) values += pattern + "COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n";
    if (option.kind == ValueKind::directory) values += pattern + "COMPREPLY=($(compgen -d -- \"$cur\")) ;;\n";
    if (option.kind == ValueKind::words) {
      values += pattern + "COMPREPLY=($(compgen -W '" + option.words + "' -- \"$cur\")) ;;\n";
    }
  }
  return R"(# hvdrun's options in bash: source <(hvdrun --completion bash)
_hvdrun() {
  local cur=${COMP_WORDS[COMP_CWORD]} option= i=1
  COMPREPLY=()
  [[ $cur != = ]] || cur=
  # Past whole options, up to the one that is being typed or to the program.
  while ((i < COMP_CWORD)); do
    option=${COMP_WORDS[i]}
    case $option in
)"
         "      " +
         joined(one, "|") + R"() i=$((i + 2)) ;;
      )" +
         joined(two, "|") + R"() i=$((i + 3)) ;;
      =|:) i=$((i + 2)) ;; # readline takes -x A=1 and -H host:4 apart
      --) i=$((i + 1)); break ;;
      -*) i=$((i + 1)) ;;
      *) break ;;
    esac
    [[ ${COMP_WORDS[i - 1]} != = ]] || i=$((i + 1)) # and --np=4
  done
  if ((i > COMP_CWORD)); then
    case $option in
)" + values +
         R"(    esac
  elif ((i < COMP_CWORD)); then
    if declare -F _command_offset > /dev/null; then
      _command_offset "$i"
    else
      COMPREPLY=($(compgen -f -- "$cur"))
    fi
  elif [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W ')" +
         offered(options) + R"(' -- "$cur"))
  else
    COMPREPLY=($(compgen -c -- "$cur") $(compgen -f -- "$cur"))
  fi
}
complete -o filenames -F _hvdrun hvdrun
)";
}

// Escapes text for a single-quoted word of _arguments, in which colons and brackets are special.
std::string quoted_for_zsh(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\'') result += "'\\'";
    if (c == ':' || c == '[' || c == ']') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(const CompletedOption& option) {
  switch (option.kind) {
    case ValueKind::none: return "";
    case ValueKind::file: return ":file:_files";
    case ValueKind::directory: return ":folder:_files -/";
    case ValueKind::words: return ":value:(" + option.words + ")";
    case ValueKind::anything: break;
  }
  return option.arguments == 2 ? ":name: :value: " : ":value: ";
}

std::string zsh_script(const std::vector<CompletedOption>& options) {
  std::string text =
      "#compdef hvdrun\n# hvdrun's options in zsh: hvdrun --completion zsh > a folder of $fpath/_hvdrun\n_arguments -S "
      "\\\n";
  text += "  '-np[Number of processes]:N: ' \\\n";
  for (const CompletedOption& option : options) {
    if (option.text.empty()) continue;
    for (const std::string& name : option.names) {
      if (!name.starts_with("--") && name.size() != 2) continue;
      text += "  '*" + name + "[" + quoted_for_zsh(option.text) + "]" + zsh_action(option) + "' \\\n";
    }
  }
  return text + "  '(-)1:program:_command_names -e' \\\n  '*::arguments:_normal'\n";
}

constexpr std::string_view kIntroduction = R"(# Options of other launchers

What hvdrun makes of each option of horovodrun (0.28), Open MPI's mpirun (4.1 and 5.0), MPICH's mpiexec (Hydra 4) and
torchrun (PyTorch 2). Generated from the table in `launcher/cli/other_options.cc`, which the parser uses, with
`hvdrun --other-options`.

- *same*: hvdrun has this option. `hvdrun --help` says what it does.
- *stands for*: hvdrun translates it into the option that follows.
- *no effect*: accepted; a line on standard error says why nothing changes. `--quiet` leaves that line out.
- *different*: hvdrun gives this name to another option.
- *refused*: an error says why, and what to write instead.

Long options may have one dash or two, `_` may stand for `-` within them, and a value may follow in the next argument or
behind `=`. With `--mpi`, options that mpirun or mpiexec knows are passed to it as typed.

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
  std::string text(option.text);
  switch (option.treatment) {
    case Treatment::same: return "same" + (text.empty() ? "" : ": " + text);
    case Treatment::different: return "different: " + text;
    case Treatment::alias: return "stands for " + as_typed(option.text);
    case Treatment::no_effect: return "no effect: " + text;
    case Treatment::refused: return "refused: " + text;
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const CLI::App& app) {
  const std::vector<CompletedOption> options = completed_options(app);
  if (shell == "bash") return bash_script(options);
  if (shell == "zsh") return zsh_script(options);
  throw InvalidArgument("--completion " + shell + ": bash or zsh");
}

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
