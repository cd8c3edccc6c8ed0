#include "ops/plugin/plugin_transport.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"

namespace hvd {

namespace {

// How long a rank that leaves waits, so that its peers receive what it has sent.
constexpr Duration kFlushTimeout = std::chrono::seconds(2);
// Polling interval for libraries without a descriptor to sleep on.
constexpr Duration kNap = std::chrono::microseconds(50);
constexpr int kLooksPerClock = 16;

// Different messages between two ranks have different labels, for as long as both can be pending.
std::uint64_t label_of(const Tag& tag) {
  return (tag.sequence * 0x9e3779b97f4a7c15U) ^ (std::uint64_t{tag.process_set} << 40) ^ tag.step;
}

}  // namespace

PluginTransport::PluginTransport(std::shared_ptr<PluginCommunicator> group, const Topology& topology,
                                 const WaitPolicy& policy, const AbortFlag& abort)
    : group_(std::move(group)), topology_(topology), policy_(policy), abort_(abort) {}

PluginTransport::~PluginTransport() {
  const Deadline deadline = deadline_after(kFlushTimeout);
  try {
    std::vector<RequestId> sends;
    for (const auto& [request, posted] : posted_) {
      if (posted.sent) sends.push_back(request);
    }
    for (const RequestId request : sends) wait(request, deadline);
  } catch (const Error&) {
    group_->set_failed();
  }
  if (!posted_.empty()) group_->set_failed();
}

Transport::RequestId PluginTransport::keep(const Posted& posted) {
  posted_.emplace(++last_, posted);
  return last_;
}

Transport::RequestId PluginTransport::post_send(int peer, Tag tag, std::span<const std::byte> bytes) {
  Posted posted{.peer = peer, .tag = tag, .sent = true};
  group_->library().check(group_->library().table().transport->post_send(
      group_->opened(), peer, label_of(tag), bytes.data(), bytes.size(), &posted.operation));
  return keep(posted);
}

Transport::RequestId PluginTransport::post_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  Posted posted{.peer = peer, .tag = tag};
  group_->library().check(group_->library().table().transport->post_receive(
      group_->opened(), peer, label_of(tag), bytes.data(), bytes.size(), &posted.operation));
  return keep(posted);
}

bool PluginTransport::test(RequestId request) {
  const auto found = posted_.find(request);
  if (found == posted_.end()) return true;
  int done = 0;
  const hvd_status status = group_->library().table().transport->test(group_->opened(), found->second.operation, &done);
  if (done == 0 && status == HVD_OK) return false;
  const Posted posted = found->second;
  posted_.erase(found);
  if (status == HVD_OK) return true;
  try {
    group_->library().check(status);
  } catch (const Error& error) {
    throw Error(error.code(), describe(posted) + ": " + error.what());
  }
  return true;
}

std::string PluginTransport::describe(const Posted& posted) const {
  return (posted.sent ? "sending to " : "receiving from ") + topology_.describe(posted.peer) + " (call " +
         std::to_string(posted.tag.sequence) + ", step " + std::to_string(posted.tag.step) + ")";
}

void PluginTransport::wait(RequestId request, Deadline deadline) {
  if (wait_until(request, deadline)) return;
  throw Timeout(describe(posted_.at(request)));
}

bool PluginTransport::wait_until(RequestId request, TimePoint until) {
  if (test(request)) return true;
  const TimePoint began = Clock::now();
  TimePoint now = began;
  int yields = 0;
  while (now < until) {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (test(request)) return true;
      cpu_relax();
    }
    abort_.check();
    now = Clock::now();
    if (now - began < policy_.spin) continue;
    if (yields++ < policy_.yields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::min<Duration>(kNap, until - now));
    }
  }
  return false;
}

}  // namespace hvd
