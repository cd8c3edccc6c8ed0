#include "core/control/tree/tree_channel.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/mutex.h"
#include "core/bootstrap/rendezvous.h"
#include "core/control/tree/control_links.h"
#include "core/control/tree/control_region.h"
#include "core/control/tree/control_tree.h"
#include "core/net/shared_memory.h"

namespace hvd {

namespace {

class TreeChannel final : public ControlChannel {
 public:
  explicit TreeChannel(const TreeChannelOptions& options)
      : topology_(options.topology),
        tree_(make_control_tree(options.topology)),
        abort_(options.abort),
        metrics_(options.metrics),
        job_(options.job) {
    map_region(options);
    listener_ = abort_.add_listener([this] { wake(); });
    try {
      connect(options);
    } catch (...) {
      abort_.remove_listener(listener_);
      throw;
    }
  }
  ~TreeChannel() override { abort_.remove_listener(listener_); }

  void send(int to, Bytes payload) override {
    metrics_.control_messages.add();
    metrics_.control_bytes.add(payload.size());
    const auto it = std::find_if(mailboxes_.begin(), mailboxes_.end(), [&](const Mailbox& m) { return m.rank == to; });
    if (it == mailboxes_.end()) return links_->send(to, payload);
    const Bytes frame = make_frame(payload);
    it->outbox.insert(it->outbox.end(), frame.begin(), frame.end());
    flush(*it);
  }
  void flush(Deadline deadline) override {
    for (;;) {
      doorbell_seen_ = doorbell_->value.load(std::memory_order_acquire);
      if (flush_all()) return;
      if (Clock::now() >= deadline) {
        const auto full =
            std::find_if(mailboxes_.begin(), mailboxes_.end(), [](const auto& m) { return !m.outbox.empty(); });
        throw Error(Status(StatusCode::timeout,
                           "waited for " + topology_.describe(full->rank) + " to read what it was sent",
                           topology_.job_rank_of(full->rank)));
      }
      doorbell_->wait_change(doorbell_seen_, deadline, &abort_);
    }
  }
  std::optional<Message> receive() override {
    // Stored before checking: whatever comes after this check changes the doorbell and ends the next wait.
    doorbell_seen_ = doorbell_->value.load(std::memory_order_acquire);
    flush_all();
    for (Mailbox& mailbox : mailboxes_) {
      if (auto message = receive_from(mailbox)) return message;
    }
    const MutexLock lock(arrivals_mutex_);
    if (arrivals_.empty()) return std::nullopt;
    Message message = std::move(arrivals_.front());
    arrivals_.pop_front();
    return message;
  }
  void broadcast_abort(const Status& reason) override {
    if (job_ != nullptr) return job_->broadcast_abort(reason);
    links_->broadcast_abort(reason);
  }
  std::uint32_t doorbell_seen() const override { return doorbell_seen_; }
  void wait(std::uint32_t doorbell_seen, Deadline deadline, AdaptiveWait* spin) override {
    if (abort_.raised()) return;
    if (spin != nullptr) {
      spin->wait_change(*doorbell_, doorbell_seen, deadline, nullptr);
    } else {
      doorbell_->wait_change(doorbell_seen, deadline, nullptr);
    }
  }
  void wake() override { doorbell_->increment_and_wake(); }
  void request_break(std::uint64_t lock_number) override {
    note_break(lock_number);
    const bool all_share_memory = doorbells_.size() == static_cast<std::size_t>(topology_.size);
    if (links_ && !all_share_memory) links_->request_break(lock_number);
  }
  std::uint64_t break_requested() const override { return break_requested_->load(std::memory_order_acquire); }
  void close(Deadline deadline) override {
    try {
      flush(deadline);
    } catch (const Error&) {
      // Do not wait for a reader that is gone, or does not read.
    }
    if (links_) links_->close(deadline);
  }
  void abandon_in_child() noexcept override {
    if (links_) links_->abandon_in_child();
  }

 private:
  // A neighbour that is reached through shared memory.
  struct Mailbox {
    int rank = 0;
    ByteRing* out = nullptr;
    ByteRing* in = nullptr;
    Signal* doorbell = nullptr;  // the neighbour's
    FrameReader reader{};
    Bytes outbox{};        // frames, of which the ring has got the first `sent` bytes
    std::size_t sent = 0;  // 0 again, and the outbox empty, once it has got all
  };

  // A request from another host may be older than what is known here.
  void note_break(std::uint64_t lock_number) {
    std::uint64_t known = break_requested_->load();
    while (known < lock_number && !break_requested_->compare_exchange_weak(known, lock_number)) {
    }
    for (Signal* doorbell : doorbells_) doorbell->increment_and_wake();
  }
  void map_region(const TreeChannelOptions& options) {
    const Topology& topology = options.topology;
    if (!options.shared_memory || topology.local_size == 1) return;

    memory_ = share_with_host(topology, options.store, options.key, "control",
                              {ControlRegion::bytes_for(topology.local_size)}, options.log, options.deadline);
    const ControlRegion region{reinterpret_cast<ControlRegion::PerRank*>(memory_->data())};
    doorbell_ = &region.at(topology.local_rank).doorbell;
    doorbells_.clear();
    for (int local = 0; local < topology.local_size; ++local) doorbells_.push_back(&region.at(local).doorbell);
    break_requested_ = &region.at(0).break_requested;
    const auto& neighbours = topology.hosts[static_cast<std::size_t>(topology.host())];
    if (topology.local_rank == 0) {
      for (int local = 1; local < topology.local_size; ++local) {
        auto& theirs = region.at(local);
        mailboxes_.push_back({.rank = neighbours[static_cast<std::size_t>(local)],
                              .out = &theirs.from_leader,
                              .in = &theirs.to_leader,
                              .doorbell = &theirs.doorbell});
      }
    } else {
      auto& own = region.at(topology.local_rank);
      mailboxes_.push_back(
          {.rank = tree_.parent, .out = &own.to_leader, .in = &own.from_leader, .doorbell = &region.at(0).doorbell});
    }
  }
  void connect(const TreeChannelOptions& options) {
    const bool by_mailbox = memory_ && topology_.hosts.size() == 1;
    if (job_ != nullptr && (by_mailbox || topology_.size == 1)) return;
    const auto on_message = [this](int from, Bytes payload) {
      {
        const MutexLock lock(arrivals_mutex_);
        arrivals_.push_back({from, std::move(payload)});
      }
      wake();
    };
    const auto on_break = [this](std::uint64_t lock_number) { note_break(lock_number); };
    ControlLinks::OnAbort on_abort;
    if (job_ != nullptr) on_abort = [job = job_](const Status& reason) { job->broadcast_abort(reason); };
    links_ = std::make_unique<ControlLinks>(options.topology, tree_, options.store, options.key, options.local_host,
                                            options.lease, options.abort, options.log, on_message, on_break, on_abort,
                                            options.deadline);
  }
  // True if everything was written.
  static bool flush(Mailbox& mailbox) {
    if (mailbox.outbox.empty()) return true;
    const auto rest = std::span<const std::byte>(mailbox.outbox).subspan(mailbox.sent);
    std::size_t sent = mailbox.out->write(rest);
    if (sent < rest.size()) {
      // Ask first, then try again: the reader may have made room in between without seeing the request.
      mailbox.out->request_wakeup();
      sent += mailbox.out->write(rest.subspan(sent));
    }
    mailbox.sent += sent;
    if (sent == rest.size()) {
      mailbox.outbox.clear();
      mailbox.sent = 0;
    }
    if (sent > 0) mailbox.doorbell->increment_and_wake();
    return mailbox.outbox.empty();
  }
  bool flush_all() {
    bool all = true;
    for (Mailbox& mailbox : mailboxes_) all = flush(mailbox) && all;
    return all;
  }
  std::optional<Message> receive_from(Mailbox& mailbox) {
    if (auto payload = mailbox.reader.next()) return Message{mailbox.rank, std::move(*payload)};
    if (!mailbox.in->read_into(mailbox.reader)) return std::nullopt;
    if (mailbox.in->take_wakeup_request()) mailbox.doorbell->increment_and_wake();
    if (auto payload = mailbox.reader.next()) return Message{mailbox.rank, std::move(*payload)};
    return std::nullopt;
  }

  const Topology& topology_;
  const ControlTree tree_;
  AbortFlag& abort_;
  Metrics& metrics_;
  std::optional<SharedMemory> memory_;
  Signal private_doorbell_;
  Signal* doorbell_ = &private_doorbell_;      // this rank's
  std::vector<Signal*> doorbells_{doorbell_};  // of all ranks that share memory with this one, itself included
  std::atomic<std::uint64_t> private_break_requested_{0};
  std::atomic<std::uint64_t>* break_requested_ = &private_break_requested_;
  std::uint32_t doorbell_seen_ = 0;  // the doorbell's value before the last check of all sources
  std::vector<Mailbox> mailboxes_;

  Mutex arrivals_mutex_;
  std::deque<Message> arrivals_ GUARDED_BY(arrivals_mutex_);  // from the links thread

  ControlChannel* const job_;
  AbortFlag::ListenerId listener_ = 0;

  std::unique_ptr<ControlLinks> links_;  // last: its thread uses all of the above. Null: all neighbours have mailboxes
};

}  // namespace

std::unique_ptr<ControlChannel> make_tree_channel(const TreeChannelOptions& options) {
  return std::make_unique<TreeChannel>(options);
}

}  // namespace hvd
