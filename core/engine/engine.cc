#include "core/engine/engine.h"

#include <algorithm>
#include <cfenv>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/fusion/bucket_planner.h"

namespace hvd {

namespace {

// How long a rank whose data plane failed waits for the control plane to say who is to blame: the peer whose
// connection broke may itself only be leaving because of somebody else.
constexpr Duration kVerdictPatience = std::chrono::milliseconds(200);

// How long a leaving rank waits for the coordinator to acknowledge.
constexpr Duration kLeavePatience = std::chrono::seconds(5);

}  // namespace

Engine::Engine(const Parts& parts, std::unique_ptr<Executor> executor)
    : parts_(parts),
      negotiator_(parts.topology, parts.config, parts.channel, parts.metrics, parts.timeline),
      executor_(std::move(executor)),
      pending_(parts.metrics),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  leave();
  join();
}

Status Engine::submit(Submission& submission) {
  if (!queue_.push(submission)) return reason();
  parts_.channel.wake();
  return {};
}

void Engine::leave() {
  leaving_.store(true, std::memory_order_release);
  parts_.channel.wake();
}

void Engine::join() {
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  name_this_thread("hvd-engine");
  // The thread that called init() may flush denormals or round in its own way, and a new thread inherits that.
  std::fesetenv(FE_DFL_ENV);
  try {
    while (!ended_) run_round();
  } catch (...) {
    const Status own = current_exception_status();
    try {
      end(verdict(own));
    } catch (...) {
      end(own);
    }
  }
}

void Engine::run_round() {
  parts_.abort.check();
  bool progressed = false;
  // Messages first: the channel remembers this look, so that a submission after it ends the wait below.
  while (!ended_) {
    auto message = negotiator_.next(Clock::now());
    if (!message) break;
    apply(std::move(*message));
    progressed = true;
  }
  if (ended_ || take_submissions() || progressed) return;
  if (Clock::now() >= leave_deadline_) {
    return end(Status(StatusCode::shut_down, "this rank has shut hvd down; the coordinator did not answer"));
  }
  parts_.channel.wait(std::min(negotiator_.next_deadline(), leave_deadline_), !pending_.empty());
}

bool Engine::take_submissions() {
  std::vector<Submission> taken = queue_.take();
  const bool leave_now = leaving_.load(std::memory_order_acquire) && !left_;
  if (taken.empty() && !leave_now) return false;
  std::vector<const Request*> requests;
  for (Submission& submission : taken) {
    const Request& request = pending_.insert(std::move(submission)).request;
    if (parts_.timeline.active()) parts_.timeline.begin(request.name, negotiation_activity(request));
    requests.push_back(&request);
  }
  if (leave_now) {
    left_ = true;
    leave_deadline_ = deadline_after(kLeavePatience);
  }
  negotiator_.announce(requests, leave_now);
  return true;
}

void Engine::apply(CoordinatorMessage message) {
  for (const std::string& notice : message.notices) parts_.log.warning(notice);
  std::vector<std::shared_ptr<const Response>> executes;
  for (auto& entry : message.entries) {
    const bool is_new = entry.response.has_value();
    auto response = negotiator_.resolve(std::move(entry));
    if (response->kind != Response::Kind::execute) {
      perform(executes);
      finish(*response);
      if (ended_) return;
      continue;
    }
    if (is_new) {
      const Submission* own = pending_.find(response->request.process_set, response->request.name);
      negotiator_.remember(response, own != nullptr ? &own->request : nullptr);
    }
    executes.push_back(std::move(response));
  }
  perform(executes);
}

void Engine::perform(std::vector<std::shared_ptr<const Response>>& executes) {
  if (executes.empty()) return;
  negotiator_.settle(parts_.config.collective_timeout);
  std::vector<const Response*> pointers;
  for (const auto& response : executes) pointers.push_back(response.get());
  for (const Bucket& bucket : plan_buckets(pointers, parts_.config.fusion_threshold_bytes)) {
    executor_->run(bucket, parts_.global_set, pending_);
  }
  executes.clear();
}

void Engine::finish(const Response& response) {
  switch (response.kind) {
    case Response::Kind::execute: return;
    case Response::Kind::error:
      if (std::binary_search(response.ranks.begin(), response.ranks.end(), parts_.topology.rank)) {
        parts_.timeline.end(response.request.name);
        complete_pending(pending_, response.request.process_set, response.request.name, response.status);
      }
      return;
    case Response::Kind::all_joined:
      parts_.names.restart_numbers(response.request.process_set);
      if (Submission* join = pending_.find(response.request.process_set, kJoinName)) {
        parts_.timeline.end(kJoinName);
        join->work->last_joined = response.last_joined;
        complete_pending(pending_, response.request.process_set, kJoinName, Status());
      }
      return;
    case Response::Kind::shut_down:
      agreed_to_end_ = true;
      end(response.status);
      return;
  }
}

// The run failed here with `own`. Settles on one reason with the other ranks.
Status Engine::verdict(const Status& own) {
  if (!parts_.abort.raised() && own.code() == StatusCode::peer_lost) {
    const Deadline deadline = deadline_after(kVerdictPatience);
    while (!parts_.abort.raised() && Clock::now() < deadline) {
      while (parts_.channel.receive()) {
      }
      parts_.channel.wait(deadline, false);
    }
  }
  if (parts_.abort.raise(own)) {
    const std::string finder = parts_.topology.describe(parts_.topology.rank);
    const bool names_the_culprit = own.code() == StatusCode::peer_lost;
    parts_.channel.broadcast_abort(
        names_the_culprit ? own : Status(StatusCode::aborted, finder + " has given up the job: " + own.message()));
  }
  return parts_.abort.reason();
}

void Engine::end(const Status& reason) {
  ended_ = true;
  {
    std::lock_guard lock(reason_mutex_);
    reason_ = reason;
  }
  // Only now may submit() be refused: it then finds the reason.
  for (Submission& submission : queue_.close()) pending_.insert(std::move(submission));
  for (auto& submission : pending_.remove_all()) {
    const std::shared_ptr<Work> work = std::move(submission->work);
    submission.reset();
    work->complete(reason);
  }
}

Status Engine::reason() const {
  std::lock_guard lock(reason_mutex_);
  return reason_;
}

}  // namespace hvd
