#include "launcher/plan/hosts.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "core/bootstrap/launch_environment.h"
#include "launcher/plan/host_resources.h"

namespace hvd::launcher {
namespace {

int parse_slots(std::string_view digits, std::string_view entry, const std::string& where) {
  if (const auto slots = number_within(digits, 1, kMaxSlots)) return *slots;
  throw InvalidArgument(where + ": \"" + std::string(entry) +
                        "\" does not end in a number of slots; write for instance localhost:4, or [::1]:4");
}

// Names are passed on the command line of ssh: they must not look like its options.
void check_name(std::string_view name, std::string_view entry, const std::string& where) {
  if (name.empty()) throw InvalidArgument(where + ": a host's name is missing; write for instance localhost:4");
  const auto is_odd = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (name.front() == '-' || std::ranges::any_of(name, is_odd)) {
    throw InvalidArgument(where + ": \"" + std::string(entry) + "\" is not a host's name");
  }
}

// `where` is the beginning of error messages.
HostSlots parse_host(std::string_view entry, const std::string& where) {
  std::string_view place = entry;
  HostSlots result;
  if (const auto at = place.find('@'); at < place.find(':')) {
    check_name(place.substr(0, at), entry, where);
    result.user = place.substr(0, at);
    place.remove_prefix(at + 1);
  }
  const auto bracket = place.starts_with('[') ? place.find(']') : std::string_view::npos;  // [2001:db8::1]:4
  const bool is_ipv6 = bracket != std::string_view::npos;
  const std::string_view name = is_ipv6 ? place.substr(1, bracket - 1) : place.substr(0, place.find(':'));
  place.remove_prefix(is_ipv6 ? bracket + 1 : name.size());
  check_name(name, entry, where);
  result.host = name;
  if (place.empty()) return result;
  if (!place.starts_with(':')) throw InvalidArgument(where + ": \"" + std::string(entry) + "\" is not a host's name");
  result.slots = parse_slots(place.substr(1), entry, where);
  return result;
}

// "a slots = 4 # four" and "a slots = 4 // four" become "a slots=4".
std::string without_comment_and_spaces(std::string_view line) {
  line = line.substr(0, std::min(line.find('#'), line.find("//")));
  std::string result;
  for (const char c : line) {
    const bool is_space = c == ' ' || c == '\t' || c == '\r';
    if (is_space && result.ends_with('=')) continue;
    if (c == '=') result.erase(result.find_last_not_of(" \t") + 1);
    result += c;
  }
  return result;
}

// Parses "slots=4" and the like, by all of Open MPI's names for them; returns false for other words.
bool parse_clause(std::string_view word, HostSlots& host, const std::string& where) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "slots" || name == "cpu" || name == "count") {
    host.slots = parse_slots(value, word, where);
  } else if (name == "max_slots" || name == "max-slots" || name == "slots_max" || name == "slots-max") {
    host.max_slots = parse_slots(value, word, where);
  } else if (name == "username" || name == "user") {  // Open MPI's name, and MPICH's
    check_name(value, word, where);
    host.user = value;
  } else {
    return false;
  }
  return true;
}

std::optional<int> sum(std::optional<int> a, std::optional<int> b) {
  return a && b ? std::optional(*a + *b) : a ? a : b;
}

// Adds a host, or its slots if the list has the host already. Throws InvalidArgument if there are too many.
void add_host(std::vector<HostSlots>& hosts, HostSlots host) {
  const auto known = std::ranges::find(hosts, host.host, &HostSlots::host);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
    return;
  }
  if (known->user != host.user) {
    throw InvalidArgument(host.host + " is named twice, to log in as \"" + known->user + "\" and \"" + host.user +
                          "\"");
  }
  // A repeated name without a number adds one slot.
  known->slots = known->slots.value_or(1) + host.slots.value_or(1);
  known->max_slots = sum(known->max_slots, host.max_slots);
  if (*known->slots > kMaxSlots)
    throw InvalidArgument(host.host + ": more than " + std::to_string(kMaxSlots) + " slots");
}

// 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

using ReadFile = std::function<std::string(const std::string& path)>;

const std::string* find(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() || it->second.empty() ? nullptr : &it->second;
}

std::optional<int> number(std::string_view text) { return number_within(text, 0, kMaxSlots); }

InvalidArgument not_understood(const std::string& name, std::string_view value) {
  return InvalidArgument(name + "=" + std::string(value) + " is not understood");
}

// Expands "4(x2),3": four on each of two nodes, three on the next.
std::vector<int> expand_counts(const char* name, std::string_view text) {
  std::vector<int> counts;
  for (std::string_view part : split_outside_brackets(text)) {
    int nodes = 1;
    if (const auto open = part.find("(x"); open != std::string_view::npos && part.ends_with(')')) {
      nodes = number(part.substr(open + 2, part.size() - open - 3)).value_or(0);
      part = part.substr(0, open);
    }
    const auto count = number(part);
    if (!count || *count < 1 || nodes < 1 || counts.size() + static_cast<std::size_t>(nodes) > kMaxSlots) {
      throw not_understood(name, text);
    }
    counts.insert(counts.end(), static_cast<std::size_t>(nodes), *count);
  }
  return counts;
}

std::optional<Allocation> slurm(const Environment& environment) {
  const std::string* const nodelist = find(environment, "SLURM_JOB_NODELIST");
  if (nodelist == nullptr) return std::nullopt;
  const char* const counted =
      find(environment, "SLURM_TASKS_PER_NODE") != nullptr ? "SLURM_TASKS_PER_NODE" : "SLURM_JOB_CPUS_PER_NODE";
  Allocation result{.is_slurms = true, .source = "Slurm's allocation (SLURM_JOB_NODELIST)", .hosts = {}};
  const std::vector<std::string> names = expand_nodelist(*nodelist);
  const std::string* const text = find(environment, counted);
  const std::vector<int> counts = text == nullptr ? std::vector<int>{} : expand_counts(counted, *text);
  if (text != nullptr && counts.size() != names.size()) {
    throw InvalidArgument(std::string(counted) + " is of " + std::to_string(counts.size()) +
                          " nodes, but SLURM_JOB_NODELIST names " + std::to_string(names.size()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    result.hosts.push_back({.host = names[i], .slots = counts.empty() ? std::nullopt : std::optional(counts[i])});
  }
  return result;
}

// One slot for each occurrence of a host.
std::vector<HostSlots> hosts_of_words(const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream words(text);
  for (std::string host; words >> host;) add_host(hosts, {.host = host, .slots = 1});
  return hosts;
}

// Parses "node1 4 node2 4".
std::vector<HostSlots> hosts_of_pairs(const char* name, const std::string& text) {
  std::vector<HostSlots> hosts;
  std::istringstream words(text);
  for (std::string host, slots; words >> host;) {
    const auto count = words >> slots ? number(slots) : std::nullopt;
    if (!count || *count < 1) throw not_understood(name, text);
    add_host(hosts, {.host = host, .slots = count});
  }
  return hosts;
}

std::optional<Allocation> lsf(const Environment& environment, const ReadFile& read_file) {
  if (find(environment, "LSB_JOBID") == nullptr) return std::nullopt;
  Allocation result{.source = "", .hosts = {}};
  if (const std::string* const path = find(environment, "LSB_DJOB_RANKFILE")) {
    result.source = "LSF's allocation (LSB_DJOB_RANKFILE)";
    result.hosts = hosts_of_words(read_file(*path));
  } else if (const std::string* const pairs = find(environment, "LSB_MCPU_HOSTS")) {
    result.source = "LSF's allocation (LSB_MCPU_HOSTS)";
    result.hosts = hosts_of_pairs("LSB_MCPU_HOSTS", *pairs);
  } else if (const std::string* const names = find(environment, "LSB_HOSTS")) {
    result.source = "LSF's allocation (LSB_HOSTS)";
    result.hosts = hosts_of_words(*names);
  }
  if (result.hosts.empty()) return std::nullopt;
  // On systems with jsrun (CSM), the first host is the launch node: it has one slot, for the job's script, and may be a
  // different kind of machine. On other systems it is a host like the others.
  const bool has_launch_node = find(environment, "CSM_ALLOCATION_ID") != nullptr && result.hosts.size() > 1;
  if (has_launch_node) result.hosts.erase(result.hosts.begin());
  return result;
}

// The file has one line per slot or, on some systems, one per host; hosts have PBS_NUM_PPN slots then.
std::optional<Allocation> pbs(const Environment& environment, const ReadFile& read_file) {
  const std::string* const path = find(environment, "PBS_NODEFILE");
  if (path == nullptr) return std::nullopt;
  Allocation result{.source = "PBS's allocation (PBS_NODEFILE)", .hosts = {}};
  result.hosts = hosts_of_words(read_file(*path));
  if (result.hosts.empty()) throw InvalidArgument(result.source + ": " + *path + " names no host");
  const std::string* const per_node = find(environment, "PBS_NUM_PPN");
  const bool each_once = std::ranges::all_of(result.hosts, [](const HostSlots& host) { return host.slots == 1; });
  if (per_node == nullptr || !each_once) return result;
  const auto slots = number(*per_node);
  if (!slots || *slots < 1) throw not_understood("PBS_NUM_PPN", *per_node);
  for (HostSlots& host : result.hosts) host.slots = slots;
  return result;
}

// In a launcher's pod, Kubernetes's mpi-operator sets the variables in which each MPI's launcher looks for its hostfile
// (/etc/mpi/hostfile): Open MPI's, Intel MPI's, MPICH's.
std::optional<Allocation> default_hostfile(const Environment& environment, const ReadFile& read_file) {
  for (const char* const name : {"OMPI_MCA_orte_default_hostfile", "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"}) {
    const std::string* const path = find(environment, name);
    if (path == nullptr) continue;
    return Allocation{.source = "the hostfile " + *path + " (" + name + ")",
                      .hosts = parse_hostfile(read_file(*path), *path)};
  }
  return std::nullopt;
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text, std::optional<int> without_number, const std::string& where) {
  std::vector<HostSlots> result;
  while (true) {
    const auto comma = text.find(',');
    HostSlots host = parse_host(text.substr(0, comma), where);
    if (!host.slots) host.slots = without_number;
    add_host(result, std::move(host));
    if (comma == std::string_view::npos) return result;
    text.remove_prefix(comma + 1);
  }
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // as editors of Windows write it
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostSlots> result;
  int number = 0;
  for (std::istringstream lines{std::string(text)}; !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    ++number;
    std::istringstream words(without_comment_and_spaces(line));
    std::string entry;
    if (!(words >> entry)) continue;
    const std::string where = "line " + std::to_string(number) + " of " + name;
    HostSlots host = parse_host(entry, where);
    for (std::string word; words >> word;) {
      if (parse_clause(word, host, where)) continue;
      throw InvalidArgument(where + ": \"" + word + "\" is not understood; write for instance node1 slots=4");
    }
    if (host.max_slots && host.max_slots < host.slots.value_or(1)) {
      throw InvalidArgument(where + ": more slots than max_slots");
    }
    add_host(result, std::move(host));
  }
  if (result.empty()) throw InvalidArgument(name + " names no host");
  return result;
}

std::vector<HostSlots> choose_hosts(std::vector<HostSlots> chosen, const std::vector<HostSlots>& of_file,
                                    const std::string& name) {
  for (HostSlots& host : chosen) {
    const auto in_file = std::ranges::find(of_file, host.host, &HostSlots::host);
    if (in_file == of_file.end()) throw InvalidArgument("-H " + host.host + ": " + name + " does not name this host");
    host.max_slots = in_file->max_slots;
    if (host.user.empty()) host.user = in_file->user;
  }
  return chosen;
}

bool is_this_host(std::string_view host, const LocalNames& own, const std::vector<std::string>& resolved) {
  const std::string_view hostname = own.hostname;
  const auto is_local = [&](std::string_view address) {
    return is_loopback(address) || std::ranges::find(own.addresses, address) != own.addresses.end();
  };
  return host == "localhost" || host == hostname || host == hostname.substr(0, hostname.find('.')) || is_local(host) ||
         std::ranges::any_of(resolved, is_local);
}

std::vector<HostSlots> with_local_host_once(const std::vector<HostSlots>& hosts, const std::vector<bool>& is_local) {
  std::vector<HostSlots> result;
  std::string own_name;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostSlots host = hosts[i];
    if (is_local[i]) {
      if (own_name.empty()) own_name = host.host;
      host.host = own_name;
      host.user.clear();  // there is no login
    }
    add_host(result, std::move(host));
  }
  return result;
}

std::optional<Allocation> read_allocation(const Environment& environment, const ReadFile& read_file) {
  if (auto allocation = slurm(environment)) return allocation;
  if (auto allocation = lsf(environment, read_file)) return allocation;
  if (auto allocation = pbs(environment, read_file)) return allocation;
  return default_hostfile(environment, read_file);
}

}  // namespace hvd::launcher
