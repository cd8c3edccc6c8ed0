// The Host for a machine that is reached through an agent.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/remote/messages.h"
#include "launcher/remote/subtree.h"

namespace hvd::launcher {

// Translates calls and events to messages. Its counterpart on the host is the agent's ReportingHost.
class AgentHost : public Host {
 public:
  // `number` identifies its agent, `number_in_job` this host for the listener.
  AgentHost(Subtree& subtree, HostListener& listener, int number, int number_in_job)
      : subtree_(subtree), listener_(listener), number_(number), number_in_job_(number_in_job) {}

  void start(const HostPlan& plan) override {
    for (const RankPlan& rank : plan.ranks) ranks_.insert(rank.numbers.rank);
    for (const RankPlan& server : plan.servers) ranks_.insert(server.numbers.rank);
    proto::ToAgent message;
    *message.mutable_start() = to_message(plan);
    send(std::move(message));
  }

  void signal_ranks(int signal) override { send_signal(signal, false); }
  void signal_all(int signal) override { send_signal(signal, true); }

  void write_input(int rank, std::string_view bytes) override {
    proto::ToAgent message;
    message.mutable_input()->set_rank(rank);
    message.mutable_input()->set_bytes(bytes.data(), bytes.size());
    send(std::move(message));
  }

  void hold(Stream stream, bool on) override {
    window(stream).held = on;
    if (!on) say_taken(stream);
  }

  void query_status(std::uint64_t query_id, bool with_stacks) override {
    proto::ToAgent message;
    message.mutable_query_status()->set_id(query_id);
    message.mutable_query_status()->set_with_stacks(with_stacks);
    send(std::move(message));
  }

  std::vector<pid_t> list_left() const override { return {}; }

  // Handles the agent's messages that concern its ranks.
  void received(const proto::FromAgent& message) {
    if (message.has_output()) return on_output(message.output());
    if (message.has_nothing_left()) return listener_.nothing_left(number_in_job_);
    if (message.has_statuses()) {
      std::vector<RankStatus> statuses;
      for (const proto::RankStatus& status : message.statuses().statuses()) {
        if (knows(status.rank())) statuses.push_back(from_message(status));
      }
      return listener_.statuses(number_in_job_, message.statuses().id(), std::move(statuses));
    }
    if (message.has_preempted()) return listener_.host_preempted(number_in_job_);
    if (message.has_initialized()) return listener_.initialized(number_in_job_);
    if (message.has_stalled()) return listener_.stalled(number_in_job_, message.stalled().on());
    if (message.has_warning()) return listener_.warning(message.warning().line());
    if (message.has_rank_started() && knows(message.rank_started().rank())) {
      listener_.rank_started(message.rank_started().rank(), message.rank_started().pid());
    } else if (message.has_rank_not_started() && knows(message.rank_not_started().rank())) {
      const proto::RankNotStarted& what = message.rank_not_started();
      listener_.rank_not_started(what.rank(), what.cause(), what.exit_code());
    } else if (message.has_input_consumed() && knows(message.input_consumed().rank())) {
      listener_.input_consumed(message.input_consumed().rank());
    } else if (message.has_rank_ended() && knows(message.rank_ended().rank())) {
      const proto::RankEnded& end = message.rank_ended();
      listener_.rank_ended(end.rank(), status_of(end), said_by(end));
    }
  }

 private:
  void send(proto::ToAgent message) {
    message.set_host(static_cast<std::uint32_t>(number_));
    subtree_.send(message);
  }

  void send_signal(int signal, bool everything) {
    proto::ToAgent message;
    message.mutable_signal()->set_signal(signal);
    message.mutable_signal()->set_everything(everything);
    send(std::move(message));
  }

  void on_output(const proto::Output& output) {
    if (!knows(output.rank())) return;
    const Stream stream = output.errors() ? Stream::errors : Stream::output;
    window(stream).taken += output.bytes().size();
    listener_.rank_wrote(output.rank(), stream, output.bytes());
    // Acknowledges a quarter of the window at a time, not every message.
    if (!window(stream).held && window(stream).taken >= kOutputWindow / 4) say_taken(stream);
  }

  bool knows(int rank) const { return ranks_.contains(rank); }

  struct FlowWindow {  // of one stream
    bool held = false;
    std::size_t taken = 0;  // bytes taken and not yet acknowledged
  };
  void say_taken(Stream stream) {
    std::size_t& taken = window(stream).taken;
    if (taken == 0) return;
    proto::ToAgent message;
    message.mutable_output_consumed()->set_errors(stream == Stream::errors);
    message.mutable_output_consumed()->set_bytes(taken);
    taken = 0;
    send(std::move(message));
  }

  FlowWindow& window(Stream stream) { return stream == Stream::output ? output_ : errors_; }

  Subtree& subtree_;
  HostListener& listener_;
  const int number_, number_in_job_;
  std::set<int> ranks_;  // and servers
  FlowWindow output_, errors_;
};

}  // namespace hvd::launcher
