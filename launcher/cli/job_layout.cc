#include "launcher/cli/job_layout.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "core/bootstrap/launch_environment.h"
#include "launcher/plan/binding.h"

namespace hvd::launcher {
namespace {

int number_of(JobLayout& layout, const HostSlots& host, bool here) {
  for (std::size_t i = 0; i < layout.hosts.size(); ++i) {
    if (layout.hosts[i].host == host.host || (here && layout.is_here[i])) return static_cast<int>(i);
  }
  layout.hosts.push_back(host);
  layout.is_here.push_back(here);
  return static_cast<int>(layout.hosts.size()) - 1;
}

// The hosts that remain after --nolocal and --nnodes.
std::vector<HostSlots> chosen(std::vector<HostSlots> hosts, const std::set<std::string>& own, const CommandLine& line) {
  if (line.placement.no_local) std::erase_if(hosts, [&](const HostSlots& host) { return own.contains(host.host); });
  if (hosts.empty()) throw InvalidArgument("--nolocal: there is no other host; name some with -H");
  if (!line.placement.nodes) return hosts;
  const auto nodes = static_cast<std::size_t>(*line.placement.nodes);
  if (nodes > hosts.size()) {
    throw InvalidArgument("--nnodes " + std::to_string(nodes) + ": there " +
                          (hosts.size() == 1 ? "is one host" : "are " + std::to_string(hosts.size()) + " hosts") +
                          "; name more with -H host1,host2,... or --hostfile");
  }
  hosts.resize(nodes);
  return hosts;
}

void add_pool(JobLayout& layout, const std::vector<HostSlots>& hosts, const CommandLine& line,
              const LayoutInput& input) {
  std::vector<bool> own;  // resolved once: the resolver may be slow
  std::set<std::string> local_names;
  for (const HostSlots& host : hosts) {
    own.push_back(input.is_here(host.host));
    if (own.back()) local_names.insert(host.host);
  }
  JobLayout::Pool pool;
  for (HostSlots& host : chosen(with_local_host_once(hosts, own), local_names, line)) {
    pool.hosts.push_back(number_of(layout, host, local_names.contains(host.host)));
    pool.slots.push_back(std::move(host));
  }
  layout.pools.push_back(std::move(pool));
}

// Whether the slots of this host limit the job although no hosts are named: if --nooversubscribe is given, or if the
// number of slots is given and the number of processes is not.
bool counts_local_slots(const CommandLine& line) {
  const bool wants_all = std::ranges::any_of(line.programs, [](const ProgramLine& p) { return !p.num_proc; });
  return line.placement.no_oversubscribe ||
         (wants_all && line.placement.slots_per_host && !line.placement.ranks_per_host);
}

// Whether an allocation of this machine alone gives the number of ranks: if no option does, and, of an elastic job, if
// it has a slot for each rank that the job begins with.
bool takes_number_from(const Allocation& allocation, const CommandLine& line) {
  const bool wants_all = std::ranges::any_of(line.programs, [](const ProgramLine& p) { return !p.num_proc; });
  const PlacementOptions& placement = line.placement;
  if (!wants_all || placement.slots_per_host || placement.ranks_per_host || placement.binding.per_unit > 0)
    return false;
  long slots = 0;
  for (const HostSlots& host : allocation.hosts) slots += host.slots.value_or(kMaxSlots);
  return !line.job.elastic || slots >= line.job.elastic->num_proc;
}

// Whether srun can start the agents of hosts that are named: all of them are in Slurm's allocation, by the same names.
bool are_in_slurms_allocation(const std::vector<HostSlots>& hosts, const LayoutInput& input) {
  const auto list = input.environment.find("SLURM_JOB_NODELIST");
  if (list == input.environment.end() || list->second.empty()) return false;
  std::vector<std::string> nodes;
  try {
    nodes = expand_nodelist(list->second);
  } catch (const InvalidArgument&) {
    return false;  // it is not needed
  }
  const std::set<std::string> names(nodes.begin(), nodes.end());
  return std::ranges::all_of(hosts,
                             [&](const HostSlots& host) { return host.user.empty() && names.contains(host.host); });
}

// Called if no program names hosts.
void add_default_pool(JobLayout& layout, const CommandLine& line, const LayoutInput& input) {
  std::optional<Allocation> allocation;
  if (line.start.by != StartedBy::local) {
    allocation = read_allocation(input.environment, input.read_file);
  }
  const bool several = allocation && std::any_of(allocation->hosts.begin(), allocation->hosts.end(),
                                                 [&](const HostSlots& host) { return !input.is_here(host.host); });
  if (!several && !(allocation && takes_number_from(*allocation, line))) {
    const bool limited = counts_local_slots(line);
    const std::optional<int> slots = limited ? std::nullopt : std::optional(1);
    add_pool(layout, {HostSlots{.host = input.hostname, .slots = slots}}, line, input);
    layout.pools.back().limited = limited;
    return;
  }
  layout.hosts_from = allocation->source;
  layout.by_slurm = allocation->is_slurms;
  add_pool(layout, allocation->hosts, line, input);
}

// The capacity of each host of the pool: its slots, and its units that ppr counts.
HostPool capacities(const JobLayout::Pool& pool, const CommandLine& line, const std::vector<HostDescription>& facts) {
  HostPool result;
  result.limited = pool.limited;
  for (std::size_t i = 0; i < pool.hosts.size(); ++i) {
    const HostResources& resources = facts[static_cast<std::size_t>(pool.hosts[i])].resources;
    result.hosts.push_back({.host = pool.hosts[i],
                            .slots = slots_of(pool.slots[i], slots_rule(line.placement), resources),
                            .max_slots = pool.slots[i].max_slots,
                            .units = count_units(resources.cpus, line.placement.binding.map_by)});
  }
  return result;
}

void bind(HostPlan& plan, const CommandLine& line, const HostDescription& facts) {
  const int ranks = static_cast<int>(plan.ranks.size());
  const std::vector<std::vector<int>> cpus = bind_ranks(ranks, line.placement.binding, facts.resources.cpus);
  for (std::size_t i = 0; i < plan.ranks.size(); ++i) {
    if (!cpus.empty()) plan.ranks[i].cpus = cpus[i];
    if (cpus.empty()) plan.ranks[i].cpus = line.placement.cpu_set;
    if (!line.placement.gpus_per_rank) continue;
    const std::vector<int> gpus =
        gpus_of_rank(*line.placement.gpus_per_rank, static_cast<int>(i), ranks, facts.resources.gpus, plan.name);
    plan.ranks[i].visible_gpus = visible_devices(gpus, facts.visible_gpus);
  }
}

// The CPUs that no rank is bound to; if there are none, or ranks are not bound, those that all may use.
std::vector<int> cpus_of_servers(const HostPlan& plan, const std::vector<int>& cpu_set, const std::vector<Cpu>& cpus) {
  std::set<int> taken;
  for (const RankPlan& rank : plan.ranks) taken.insert(rank.cpus.begin(), rank.cpus.end());
  std::vector<int> spare;
  for (const Cpu& cpu : cpus) {
    if (!taken.empty() && !taken.contains(cpu.number)) spare.push_back(cpu.number);
  }
  std::ranges::sort(spare);
  return spare.empty() ? cpu_set : spare;
}

// Deals the servers to the hosts in turn. They run the first program, and take no slots.
void add_servers(std::vector<HostPlan>& plans, const CommandLine& line, int ranks,
                 const std::vector<HostDescription>& facts) {
  for (HostPlan& plan : plans) plan.servers_of_job = line.job.servers;
  for (int server = 0; server < line.job.servers; ++server) {
    const std::size_t host = static_cast<std::size_t>(server) % plans.size();
    HostPlan& plan = plans[host];
    RankPlan& entry = plan.servers.emplace_back(RankPlan{.numbers = {.rank = ranks + server, .size = ranks}});
    entry.numbers.local_size = static_cast<int>(plan.ranks.size());
    entry.server = server;
    entry.cpus = cpus_of_servers(plan, line.placement.cpu_set, facts[host].resources.cpus);
  }
}

}  // namespace

bool JobLayout::all_here() const {
  return std::all_of(is_here.begin(), is_here.end(), [](bool here) { return here; });
}

SlotsRule slots_rule(const PlacementOptions& placement) {
  if (placement.slots_per_host) return *placement.slots_per_host;
  if (placement.ranks_per_host) return {.each = SlotsRule::Each::fixed, .number = *placement.ranks_per_host};
  return {};
}

JobLayout lay_out(const CommandLine& line, const LayoutInput& input) {
  JobLayout layout;
  for (const ProgramLine& program : line.programs) {
    std::vector<HostSlots> of_file;
    if (!program.hostfile.empty()) of_file = parse_hostfile(input.read_file(program.hostfile), program.hostfile);
    if (!program.hosts.empty()) {
      layout.hosts_from = "-H";
      // As mpirun, one slot for a host without a number, unless an option says how many.
      const PlacementOptions& placement = line.placement;
      const int without_number = placement.ranks_per_host.value_or(1);
      std::vector<HostSlots> hosts =
          parse_hosts(program.hosts, placement.slots_per_host ? std::nullopt : std::optional(without_number));
      if (!of_file.empty()) hosts = choose_hosts(std::move(hosts), of_file, program.hostfile);
      add_pool(layout, hosts, line, input);
    } else if (!of_file.empty()) {
      layout.hosts_from = "--hostfile";
      add_pool(layout, of_file, line, input);
    } else if (layout.pools.empty()) {
      add_default_pool(layout, line, input);
    }
    layout.pool_of.push_back(static_cast<int>(layout.pools.size()) - 1);
  }
  layout.by_slurm = layout.by_slurm || are_in_slurms_allocation(layout.hosts, input);
  return layout;
}

std::vector<HostPlan> plan_hosts(const JobLayout& layout, const CommandLine& line, std::vector<HostDescription> facts,
                                 const std::vector<ProgramPlan>& programs) {
  for (std::size_t host = 0; host < facts.size(); ++host) {
    std::vector<Cpu>& cpus = facts[host].resources.cpus;
    cpus = cpus_within(cpus, line.placement.cpu_set, layout.hosts[host].host);
  }
  std::vector<HostPool> pools;
  for (const JobLayout::Pool& pool : layout.pools) pools.push_back(capacities(pool, line, facts));
  std::vector<ProgramSlots> wanted;
  for (std::size_t i = 0; i < line.programs.size(); ++i) {
    wanted.push_back({.num_proc = line.programs[i].num_proc, .pool = layout.pool_of[i]});
  }
  std::vector<HostPlan> plans;
  std::vector<std::string> names;
  for (const HostSlots& host : layout.hosts) {
    names.push_back(host.host);
    HostPlan& plan = plans.emplace_back();
    plan.name = plan.rendezvous.hostname = host.host;
    plan.programs = programs;
    plan.merge_errors = line.job.output.merge_errors;
    plan.verbose = line.job.verbose;
  }
  const std::vector<PlacedRank> placed =
      place_ranks(wanted, pools, names, line.placement.binding, line.placement.oversubscribe);
  if (line.input_rank && *line.input_rank >= static_cast<int>(placed.size())) {
    throw InvalidArgument("--stdin " + std::to_string(*line.input_rank) + ": there are only " +
                          std::to_string(placed.size()) + " ranks");
  }
  for (const PlacedRank& rank : placed) {
    RankPlan entry{.numbers = rank.numbers, .program = static_cast<std::size_t>(rank.program)};
    entry.reads_input = line.input_to_all || rank.numbers.rank == line.input_rank;
    plans[static_cast<std::size_t>(rank.host)].ranks.push_back(std::move(entry));
  }
  for (std::size_t host = 0; host < plans.size(); ++host) bind(plans[host], line, facts[host]);
  add_servers(plans, line, static_cast<int>(placed.size()), facts);
  return plans;
}

}  // namespace hvd::launcher
