#include "launcher/job/run_here.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/log.h"
#include "core/bootstrap/job_failure.h"
#include "core/bootstrap/store_origin.h"
#include "core/bootstrap/store_sessions.h"
#include "core/net/authentication.h"
#include "launcher/job/local_host.h"
#include "launcher/loop/throw_errno.h"
#include "launcher/plan/reserved_port.h"

namespace hvd::launcher {
namespace {

FileDescriptor local_input() {
  FileDescriptor twin(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
  if (!twin) throw_errno("cannot pass standard input on");
  return twin;
}

}  // namespace

int run_here(JobPlan plan, HostPlan host, SignalSource& signals, Keeper& keeper) {
  EventLoop loop;
  const Log log("hvdrun", plan.verbose ? LogLevel::info : LogLevel::warning);
  StoreOrigin store;
  StoreSessions sessions(JobKey::from_hex(host.rendezvous.job_key_hex), "127.0.0.1", store, log);
  loop.watch(sessions.fd(), EPOLLIN, [&] { sessions.serve_now(); });
  host.rendezvous.store = sessions.address().to_string();
  const ReservedPort master;
  host.rendezvous.master_address = "127.0.0.1";
  host.rendezvous.master_port = std::to_string(master.number());
  const auto readers =
      std::count_if(host.ranks.begin(), host.ranks.end(), [](const RankPlan& rank) { return rank.reads_input; });
  plan.feeds_input = readers > 1 || (readers == 1 && isatty(STDIN_FILENO) == 1);
  FileDescriptor input;
  if (readers == 1 && !plan.feeds_input) input = local_input();
  Job job(std::move(plan), loop, signals);
  JobHosts hosts;
  auto here = std::make_unique<LocalHost>(loop, signals, keeper, job.listener(), 0, std::move(input));
  LocalHost& local = *here;
  hosts.plans.push_back(std::move(host));
  hosts.hosts.push_back(std::move(here));
  hosts.collect_children = [&] { local.collect([](pid_t, ExitStatus) {}); };
  hosts.pause = [](bool) {};
  hosts.set_failure = [&](const std::string& cause) { set_job_failure(store, cause); };
  return job.run(std::move(hosts));
}

}  // namespace hvd::launcher
