#include "ops/plugin/plugin_backend.h"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/tensor/tensor.h"

namespace hvd {

namespace {

// How long a call may take to end after the job was aborted.
constexpr Duration kStopTimeout = std::chrono::seconds(1);

// A call in the form of hvd_plugin.h; refers to the CollectiveCall.
struct PlainCall {
  explicit PlainCall(const CollectiveCall& call) {
    pieces.reserve(call.pieces.size());
    for (const Piece& piece : call.pieces) pieces.push_back({piece.input, piece.output, piece.elements});
    for (const auto& row : call.counts) counts.insert(counts.end(), row.begin(), row.end());
    plain = {.struct_size = sizeof plain,
             .collective = static_cast<std::int32_t>(call.collective),
             .dtype = static_cast<std::int32_t>(call.dtype),
             .reduce_op = static_cast<std::int32_t>(call.op),
             .root = call.root,
             .prescale = call.prescale,
             .postscale = call.postscale,
             .device = call.device,
             .reserved = 0,
             .sequence = call.sequence,
             .count = pieces.size(),
             .pieces = pieces.data(),
             .counts = counts.empty() ? nullptr : counts.data()};
  }

  std::vector<hvd_plugin_piece> pieces;
  std::vector<std::int64_t> counts;
  hvd_plugin_call plain{};
};

// Polling interval for libraries without a descriptor to sleep on.
constexpr Duration kPollInterval = std::chrono::microseconds(50);
constexpr int kPollsPerClockRead = 16;

// Two messages between two ranks that can be pending at the same time have different labels.
std::uint64_t label_of(const Tag& tag) {
  return (tag.sequence * 0x9e3779b97f4a7c15U) ^ (std::uint64_t{tag.process_set} << 40) ^ tag.step;
}

class PluginBackend final : public Backend {
 public:
  PluginBackend(std::shared_ptr<PluginCommunicator> communicator, std::vector<Backend*> others,
                const WaitPolicy& policy, const AbortFlag& abort, Duration timeout)
      : communicator_(std::move(communicator)),
        others_(std::move(others)),
        abort_(abort),
        timeout_(timeout),
        thread_("hvd " + std::string(communicator_->library().name()), policy) {
    communicator_->set_delegate([this](const hvd_plugin_call& call) { delegate(call); });
  }

  ~PluginBackend() override {
    communicator_->set_delegate(nullptr);
    if (thread_.lost()) PluginCommunicator::abandon(communicator_);
  }

  const char* name() const override { return communicator_->library().name(); }
  // hvd_plugin.h has no streams and events of accelerators.
  int score(const CollectiveCall& call) const override {
    if (call.device != kCpuDevice) return 0;
    const PlainCall plain(call);
    return communicator_->library().table().score(communicator_->opened(), &plain.plain);
  }

  // The thread gets copies: it may still be in the call after the caller has stopped waiting.
  void run(const CollectiveCall& call) override {
    const auto plain = std::make_shared<PlainCall>(call);
    running_ = &call;
    try {
      thread_.run([communicator = communicator_, plain] { communicator->run(plain->plain); }, deadline_after(timeout_),
                  abort_,
                  "waiting for a collective of " + std::string(name()) + ", call " + std::to_string(call.sequence) +
                      " of process set " + std::to_string(call.set->id));
    } catch (...) {
      communicator_->set_failed();
      if (thread_.lost()) communicator_->set_delegate(nullptr);
      throw;
    }
  }

 private:
  // The plugin may have changed memory and factors only.
  void delegate(const hvd_plugin_call& plain) const {
    CollectiveCall call = *running_;
    if (plain.count != call.pieces.size()) {
      throw InvalidArgument(std::string(name()) + " has handed on " + std::to_string(plain.count) +
                            " tensors of a call of " + std::to_string(call.pieces.size()));
    }
    for (std::size_t i = 0; i < plain.count; ++i) {
      call.pieces[i] = {plain.pieces[i].input, plain.pieces[i].output, plain.pieces[i].elements};
    }
    call.prescale = plain.prescale;
    call.postscale = plain.postscale;
    select_backend(others_, call).run(call);
  }

  const std::shared_ptr<PluginCommunicator> communicator_;
  const std::vector<Backend*> others_;
  const AbortFlag& abort_;
  const Duration timeout_;
  const CollectiveCall* running_ = nullptr;
  WatchedThread thread_;
};

class PluginTransport final : public Transport {
 public:
  PluginTransport(std::shared_ptr<PluginCommunicator> communicator, const Topology& topology, const WaitPolicy& policy,
                  const AbortFlag& abort)
      : communicator_(std::move(communicator)), topology_(topology), policy_(policy), abort_(abort) {}

  ~PluginTransport() override {
    const Deadline deadline = deadline_after(kTransportFlushTime);
    try {
      std::vector<RequestId> sends;
      for (const auto& [request, posted] : posted_) {
        if (posted.sent) sends.push_back(request);
      }
      for (const RequestId request : sends) wait(request, deadline);
    } catch (const Error&) {
      communicator_->set_failed();
    }
    if (!posted_.empty()) communicator_->set_failed();
  }

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    Posted posted{.peer = peer, .tag = tag, .sent = true};
    communicator_->library().check(communicator_->library().table().transport->post_send(
        communicator_->opened(), peer, label_of(tag), bytes.data(), bytes.size(), &posted.operation));
    return keep(posted);
  }

  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override {
    Posted posted{.peer = peer, .tag = tag};
    communicator_->library().check(communicator_->library().table().transport->post_receive(
        communicator_->opened(), peer, label_of(tag), bytes.data(), bytes.size(), &posted.operation));
    return keep(posted);
  }

  void wait(RequestId request, Deadline deadline) override {
    if (wait_until(request, deadline)) return;
    throw Timeout(describe(posted_.at(request)));
  }

  bool wait_until(RequestId request, TimePoint until) override {
    if (test(request)) return true;
    const TimePoint began = Clock::now();
    TimePoint now = began;
    int yields = 0;
    while (now < until) {
      for (int i = 0; i < kPollsPerClockRead; ++i) {
        if (test(request)) return true;
        cpu_relax();
      }
      abort_.check();
      now = Clock::now();
      if (now - began < policy_.spin) continue;
      if (yields++ < policy_.yields) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(std::min<Duration>(kPollInterval, until - now));
      }
    }
    return false;
  }

 private:
  struct Posted {
    void* operation = nullptr;
    int peer = 0;
    Tag tag;
    bool sent = false;
  };

  RequestId keep(const Posted& posted) {
    posted_.emplace(++last_, posted);
    return last_;
  }

  // Returns true once the request's operation is complete; the request is then released.
  bool test(RequestId request) {
    const auto found = posted_.find(request);
    if (found == posted_.end()) return true;
    int done = 0;
    const hvd_status status =
        communicator_->library().table().transport->test(communicator_->opened(), found->second.operation, &done);
    if (done == 0 && status == HVD_OK) return false;
    const Posted posted = found->second;
    posted_.erase(found);
    if (status == HVD_OK) return true;
    try {
      communicator_->library().check(status);
    } catch (const Error& error) {
      throw Error(error.code(), describe(posted) + ": " + error.what());
    }
    return true;
  }

  std::string describe(const Posted& posted) const {
    return (posted.sent ? "sending to " : "receiving from ") + topology_.describe(posted.peer) + " (call " +
           std::to_string(posted.tag.sequence) + ", step " + std::to_string(posted.tag.step) + ")";
  }

  const std::shared_ptr<PluginCommunicator> communicator_;
  const Topology& topology_;
  const WaitPolicy policy_;
  const AbortFlag& abort_;
  std::unordered_map<RequestId, Posted> posted_;
  RequestId last_ = 0;
};

}  // namespace

struct WatchedThread::Shared {
  explicit Shared(const WaitPolicy& policy) : waiting(policy), serving(policy) {}

  Signal begun;  // number of calls so far
  Signal ended;
  std::function<void()> work;  // of the last call; empty: the thread must end
  Status result;
  AdaptiveWait waiting;  // of the caller
  AdaptiveWait serving;  // of the thread
  std::thread thread;
};

WatchedThread::WatchedThread(std::string_view name, const WaitPolicy& policy)
    : shared_(std::make_shared<Shared>(policy)) {
  shared_->thread = start_thread(name, [shared = shared_] { serve(shared); });
}

WatchedThread::~WatchedThread() {
  if (lost_) {
    shared_->thread.detach();
    return;
  }
  shared_->work = nullptr;
  shared_->begun.increment_and_wake();
  shared_->thread.join();
}

void WatchedThread::serve(const std::shared_ptr<Shared>& shared) {
  for (std::uint32_t calls = 0;; ++calls) {
    while (shared->serving.wait_change(shared->begun, calls, Deadline::max(), nullptr) == calls) continue;
    if (!shared->work) return;
    try {
      shared->work();
      shared->result = Status();
    } catch (...) {
      shared->result = current_exception_status();
    }
    shared->ended.increment_and_wake();
  }
}

void WatchedThread::run(const std::function<void()>& work, Deadline deadline, const AbortFlag& abort,
                        const std::string& what) {
  const std::uint32_t before = shared_->ended.value.load(std::memory_order_relaxed);
  shared_->work = work;
  shared_->begun.increment_and_wake();
  try {
    if (shared_->waiting.wait_change(shared_->ended, before, deadline, &abort) == before) {
      lost_ = true;
      throw Timeout(what);
    }
  } catch (const Timeout&) {
    throw;
  } catch (const Error&) {
    lost_ = shared_->ended.wait_change(before, deadline_after(kStopTimeout), nullptr) == before;
    throw;
  }
  if (!shared_->result.ok()) throw Error(shared_->result);
}

std::unique_ptr<Backend> make_plugin_backend(std::shared_ptr<PluginCommunicator> communicator,
                                             std::vector<Backend*> others, const WaitPolicy& policy,
                                             const AbortFlag& abort, Duration timeout) {
  return std::make_unique<PluginBackend>(std::move(communicator), std::move(others), policy, abort, timeout);
}

std::shared_ptr<Transport> make_plugin_transport(std::shared_ptr<PluginCommunicator> communicator,
                                                 const Topology& topology, const WaitPolicy& policy,
                                                 const AbortFlag& abort) {
  return std::make_shared<PluginTransport>(std::move(communicator), topology, policy, abort);
}

}  // namespace hvd
