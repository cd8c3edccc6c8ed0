// The Host for a machine that is reached through an agent: translates calls and events to messages. Main thread only.
#pragma once

#include "launcher/job/host.h"
#include "launcher/remote/subtree.h"

namespace hvd::launcher {

class AgentHost : public Host {
 public:
  // `number` identifies its agent, `number_in_job` this host for the listener.
  AgentHost(Subtree& subtree, HostListener& listener, int number, int number_in_job)
      : subtree_(subtree), listener_(listener), number_(number), number_in_job_(number_in_job) {}

  void start(const HostPlan& plan) override;
  void signal_ranks(int signal) override { send_signal(signal, false); }
  void signal_all(int signal) override { send_signal(signal, true); }
  void write_input(int rank, std::string_view bytes) override;
  void hold(Stream stream, bool on) override;
  void query_status(std::uint64_t question, bool with_stacks) override;
  std::vector<pid_t> list_left() const override { return {}; }

  // Handles the agent's messages that concern its ranks.
  void received(const proto::FromAgent& message);

 private:
  void send(proto::ToAgent message);
  void send_signal(int signal, bool everything);
  void on_output(const proto::Output& output);
  void on_statuses(const proto::RankStatuses& message);
  bool knows(int rank) const;

  struct FlowWindow {  // of one stream
    bool held = false;
    std::size_t taken = 0;  // bytes taken and not yet acknowledged
  };
  void say_taken(Stream stream);
  FlowWindow& window(Stream stream) { return stream == Stream::output ? output_ : errors_; }

  Subtree& subtree_;
  HostListener& listener_;
  const int number_, number_in_job_;
  std::vector<int> ranks_;  // ascending
  FlowWindow output_, errors_;
};

// The bytes of each stream that an agent sends without an acknowledgement: so much of the ranks' output may be buffered
// in hvdrun for each host if hvdrun's own reader is slow.
inline constexpr std::size_t kOutputWindow = std::size_t{1} << 20;

}  // namespace hvd::launcher
