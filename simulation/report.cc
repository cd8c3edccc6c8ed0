#include "simulation/report.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace hvd::simulation {

namespace {

double us(Duration duration) { return 1e6 * seconds(duration); }

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

long long whole(std::int64_t value) { return value; }

nlohmann::json to_json(const Phase& phase) {
  const Round& round = phase.round;
  return {{"name", phase.name},
          {"time_us", us(round.time)},
          {"network_time_us", us(phase.network_time)},
          {"requests", round.requests},
          {"hits", round.hits},
          {"buckets", round.buckets},
          {"request_bytes", round.request_bytes},
          {"response_bytes", round.response_bytes},
          {"max_messages", round.max.messages},
          {"rank_0_messages", round.root.messages},
          {"max_bytes", round.max.bytes},
          {"max_local_messages", round.max.local_messages},
          {"messages", round.messages}};
}

nlohmann::json to_json(const Experiment& experiment) {
  nlohmann::json phases = nlohmann::json::array();
  for (const Phase& phase : experiment.phases) phases.push_back(to_json(phase));
  nlohmann::json all = {{"ranks", experiment.ranks},
                        {"hosts", experiment.hosts},
                        {"max_neighbours", experiment.max_neighbours},
                        {"phases", phases},
                        {"horovod",
                         {{"pause_us", us(kHorovodPause)},
                          {"requests_us", us(experiment.horovod.requests)},
                          {"star_of_bits_us", us(experiment.horovod.star_of_bits)},
                          {"tree_of_bits_us", us(experiment.horovod.tree_of_bits)}}}};
  if (const auto& loss = experiment.loss) {
    all["loss"] = {
        {"rank", loss->rank}, {"informed", loss->informed}, {"first_us", us(loss->first)}, {"last_us", us(loss->last)}};
  }
  return all;
}

nlohmann::json job_json(const Settings& settings) {
  const Job& job = settings.job;
  return {{"program", "hvd simulate"},
          {"ranks_per_host", job.ranks_per_host},
          {"tensors", job.operations.size()},
          {"radix", kControlRadix},
          {"seed", job.seed},
          {"latency_us", us(job.network.between_hosts.latency)},
          {"overhead_us", us(job.network.between_hosts.overhead)},
          {"bandwidth_gbit", job.network.between_hosts.gbit},
          {"jitter_us", us(job.network.jitter)},
          {"drop", job.network.drop}};
}

}  // namespace

std::string heading(const Settings& settings) {
  const Job& job = settings.job;
  const LinkParameters& far = job.network.between_hosts;
  const LinkParameters& near = job.network.within_host;
  std::string text =
      print("# hvd simulate: %zu tensors, %d ranks on a host, a tree of radix %d between hosts, seed %llu\n",
            job.operations.size(), job.ranks_per_host, kControlRadix, static_cast<unsigned long long>(job.seed));
  text += print("# between hosts: %g us of latency, %g us of overhead at each end, %g Gbit/s", us(far.latency),
                us(far.overhead), far.gbit);
  if (job.network.jitter > Duration::zero()) text += print(", %g us of jitter", us(job.network.jitter));
  if (job.network.drop > 0) text += print(", %g of messages lost", job.network.drop);
  return text + print("\n# inside a host: %g us, %g us, %g Gbit/s\n", us(near.latency), us(near.overhead), near.gbit);
}

std::string table(const Experiment& experiment) {
  std::string text =
      print("\n%d ranks on %d hosts; messages between hosts, sent in a round by\n", experiment.ranks, experiment.hosts);
  text += print("%-8s %12s %12s %10s %8s %10s %14s %14s\n", "round", "time us", "network us", "a node", "rank 0", "all",
                "a node's bytes", "in its host");
  for (const Phase& phase : experiment.phases) {
    const Round& round = phase.round;
    text += print("%-8s %12.1f %12.1f %10lld %8lld %10lld %14lld %14lld\n", phase.name.c_str(), us(round.time),
                  us(phase.network_time), whole(round.max.messages), whole(round.root.messages), whole(round.messages),
                  whole(round.max.bytes), whole(round.max.local_messages));
  }
  const HorovodRound& horovod = experiment.horovod;
  text += print("Horovod, by formulas: new %.1f us; cached %.1f us as a star, %.1f us by recursive doubling;\n",
                us(horovod.requests), us(horovod.star_of_bits), us(horovod.tree_of_bits));
  text += print("each after a pause of %.0f us on average\n", us(kHorovodPause));
  if (const auto& loss = experiment.loss) {
    text += print("rank %d dies: %d ranks learn of it, the first after %.1f us, the last after %.1f us\n", loss->rank,
                  loss->informed, us(loss->first), us(loss->last));
  }
  return text;
}

std::string curve_table(const std::vector<Experiment>& experiments) {
  std::string text = "\nTime of a round in us; in brackets without the processors' time. Horovod without its pause.\n";
  text += print("%8s %22s %22s %10s %9s %14s %14s %14s\n", "ranks", "new", "cached", "locked", "messages",
                "Horovod new", "cached: star", "doubling");
  for (const Experiment& experiment : experiments) {
    text += print("%8d", experiment.ranks);
    for (std::size_t i = 0; i < 2; ++i) {
      const Phase& phase = experiment.phases[i];
      text += print(" %10.1f (%9.1f)", us(phase.round.time), us(phase.network_time));
    }
    text += experiment.phases.size() > 2 ? print(" %10.1f", us(experiment.phases[2].round.time)) : print(" %10s", "-");
    text += print(" %9lld %14.1f %14.1f %14.1f\n", whole(experiment.phases[0].round.max.messages),
                  us(experiment.horovod.requests), us(experiment.horovod.star_of_bits),
                  us(experiment.horovod.tree_of_bits));
  }
  return text;
}

std::string calibration_table(const Calibration& calibration) {
  std::string text = print("\nWork, in nanoseconds, fitted to %d virtual ranks\n", calibration.fitted_ranks);
  text += print("%-12s %12s %12s %12s %12s\n", "", "a message", "a request", "a hit", "a byte");
  for (std::size_t work = 0; work < kWorks; ++work) {
    const Cost& cost = calibration.costs[work];
    text +=
        print("%-12s %12.1f %12.1f %12.2f %12.3f\n", kWorkNames[work], cost.message, cost.request, cost.hit, cost.byte);
  }
  text += print("\n%8s %-8s %14s %14s %18s %18s\n", "ranks", "round", "measured us", "predicted us", "work measured us",
                "work predicted us");
  for (const Comparison& row : calibration.comparisons) {
    text += print("%8d %-8s %14.1f %14.1f %18.1f %18.1f\n", row.ranks, row.round, us(row.measured), us(row.predicted),
                  us(row.measured_work), us(row.predicted_work));
  }
  return text;
}

std::string json_text(const Settings& settings, const std::vector<Experiment>& experiments) {
  nlohmann::json all = job_json(settings);
  all["jobs"] = nlohmann::json::array();
  for (const Experiment& experiment : experiments) all["jobs"].push_back(to_json(experiment));
  return all.dump(1) + '\n';
}

std::string json_text(const Settings& settings, const Calibration& calibration) {
  nlohmann::json all = job_json(settings);
  for (std::size_t work = 0; work < kWorks; ++work) {
    const Cost& cost = calibration.costs[work];
    all["costs_ns"][kWorkNames[work]] = {
        {"message", cost.message}, {"request", cost.request}, {"hit", cost.hit}, {"byte", cost.byte}};
  }
  all["comparisons"] = nlohmann::json::array();
  for (const Comparison& row : calibration.comparisons) {
    all["comparisons"].push_back({{"ranks", row.ranks},
                                  {"round", row.round},
                                  {"measured_us", us(row.measured)},
                                  {"predicted_us", us(row.predicted)},
                                  {"measured_work_us", us(row.measured_work)},
                                  {"predicted_work_us", us(row.predicted_work)}});
  }
  return all.dump(1) + '\n';
}

}  // namespace hvd::simulation
