#include "launcher/remote/agent_host.h"

#include <algorithm>

#include "core/base/error.h"
#include "launcher/remote/messages.h"

namespace hvd::launcher {
namespace {

JobEnding said_by(const proto::RankEnded& end) {
  using Kind = JobEnding::Kind;
  if (end.has_cause()) return {.kind = Kind::local_failure, .cause = printable(end.cause())};
  if (end.has_culprit()) return {.kind = Kind::consequence, .culprit = end.culprit()};
  return {.in_job = end.in_job()};
}

}  // namespace

void AgentHost::start(const HostPlan& plan) {
  for (const RankPlan& rank : plan.ranks) ranks_.push_back(rank.place.rank);
  proto::ToAgent message;
  *message.mutable_start() = to_message(plan);
  send(std::move(message));
}

void AgentHost::send(proto::ToAgent message) {
  message.set_host(static_cast<std::uint32_t>(number_));
  subtree_.send(message);
}

void AgentHost::send_signal(int signal, bool everything) {
  proto::ToAgent message;
  message.mutable_signal()->set_signal(signal);
  message.mutable_signal()->set_everything(everything);
  send(std::move(message));
}

void AgentHost::write_input(int rank, std::string_view bytes) {
  proto::ToAgent message;
  message.mutable_input()->set_rank(rank);
  message.mutable_input()->set_bytes(bytes.data(), bytes.size());
  send(std::move(message));
}

void AgentHost::hold(Stream stream, bool on) {
  window(stream).held = on;
  if (!on) say_taken(stream);
}

void AgentHost::query_status(std::uint64_t question, bool with_stacks) {
  proto::ToAgent message;
  message.mutable_query_status()->set_id(question);
  message.mutable_query_status()->set_with_stacks(with_stacks);
  send(std::move(message));
}

bool AgentHost::knows(int rank) const { return std::binary_search(ranks_.begin(), ranks_.end(), rank); }

void AgentHost::received(const proto::FromAgent& message) {
  if (message.has_output()) return on_output(message.output());
  if (message.has_nothing_left()) return listener_.nothing_left(number_in_job_);
  if (message.has_statuses()) return on_statuses(message.statuses());
  if (message.has_initialized()) return listener_.initialized(number_in_job_);
  if (message.has_stalled()) return listener_.stalled(number_in_job_, message.stalled().on());
  if (message.has_complaint()) return listener_.complaint(message.complaint().line());
  if (message.has_rank_started() && knows(message.rank_started().rank())) {
    listener_.rank_started(message.rank_started().rank(), message.rank_started().pid());
  } else if (message.has_rank_not_started() && knows(message.rank_not_started().rank())) {
    const proto::RankNotStarted& what = message.rank_not_started();
    listener_.rank_not_started(what.rank(), what.cause(), what.exit_code());
  } else if (message.has_input_taken() && knows(message.input_taken().rank())) {
    listener_.input_taken(message.input_taken().rank());
  } else if (message.has_rank_ended() && knows(message.rank_ended().rank())) {
    const proto::RankEnded& end = message.rank_ended();
    listener_.rank_ended(end.rank(),
                         {.by_signal = end.by_signal(), .value = end.value(), .core_dumped = end.core_dumped()},
                         said_by(end));
  }
}

// Malformed statuses are left out.
void AgentHost::on_statuses(const proto::RankStatuses& message) {
  std::vector<RankStatus> statuses;
  for (const std::string& bytes : message.statuses()) {
    try {
      statuses.push_back(decode_rank_status(bytes));
    } catch (const Error&) {
      continue;
    }
    if (!knows(statuses.back().rank)) statuses.pop_back();
  }
  listener_.statuses(number_in_job_, message.id(), std::move(statuses));
}

void AgentHost::on_output(const proto::Output& output) {
  if (!knows(output.rank())) return;
  const Stream stream = output.errors() ? Stream::errors : Stream::output;
  window(stream).taken += output.bytes().size();
  listener_.rank_wrote(output.rank(), stream, output.bytes());
  // Acknowledges a quarter of the window at a time, not every message.
  if (!window(stream).held && window(stream).taken >= kOutputWindow / 4) say_taken(stream);
}

void AgentHost::say_taken(Stream stream) {
  std::size_t& taken = window(stream).taken;
  if (taken == 0) return;
  proto::ToAgent message;
  message.mutable_output_taken()->set_errors(stream == Stream::errors);
  message.mutable_output_taken()->set_bytes(taken);
  taken = 0;
  send(std::move(message));
}

}  // namespace hvd::launcher
