// The control channel of real jobs, along the control tree: mailboxes in shared memory inside a host, connections
// between hosts, and along all edges a connection for failure detection (control_links.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/futex.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/control/tree/control_channel.h"
#include "core/control/tree/control_links.h"
#include "core/control/tree/control_tree.h"
#include "core/control/tree/mailbox.h"
#include "core/net/shared_memory.h"

namespace hvd {

class TreeChannel final : public ControlChannel {
 public:
  struct Options {
    const Topology& topology;
    Store& store;
    const JobKey& key;
    std::string local_host;  // address under which other ranks reach this host
    Duration lease = kDefaultLease;
    bool shared_memory = true;
    AbortFlag& abort;
    const Log& log;
    Metrics& metrics;
    Deadline deadline;
    // The channel of the whole job, if this one serves a subset: it detects failures and reports the job's end.
    ControlChannel* job = nullptr;
  };

  // All ranks must construct together.
  explicit TreeChannel(const Options& options);
  ~TreeChannel() override;

  void send(int to, Bytes payload) override;
  void flush(Deadline deadline) override;
  std::optional<Message> receive() override;
  void broadcast_abort(const Status& reason) override;
  std::uint32_t heard() const override { return heard_; }
  void wait(std::uint32_t heard, Deadline deadline, AdaptiveWait* busily) override;
  void wake() override;
  void request_break(std::uint64_t epoch) override;
  std::uint64_t break_requested() const override { return broken_->load(std::memory_order_acquire); }
  void close(Deadline deadline) override;
  void abandon_in_child() noexcept override;

 private:
  // A neighbour that is reached through shared memory.
  struct Mailbox {
    int rank = 0;
    ByteRing* out = nullptr;
    ByteRing* in = nullptr;
    Signal* doorbell = nullptr;  // the neighbour's
    FrameReader reader;
    Bytes outbox;  // bytes that did not fit into the ring yet
  };

  void note_break(std::uint64_t epoch);
  void open_window(const Options& options);
  void connect(const Options& options);
  static bool flush(Mailbox& mailbox);
  bool flush_all();
  std::optional<Message> receive_from(Mailbox& mailbox);

  const Topology& topology_;
  const ControlTree tree_;
  AbortFlag& abort_;
  Metrics& metrics_;
  std::optional<SharedMemory> memory_;
  Signal private_doorbell_;
  Signal* doorbell_ = &private_doorbell_;      // this rank's
  std::vector<Signal*> doorbells_{doorbell_};  // of all ranks that share memory with this one, itself included
  std::atomic<std::uint64_t> private_broken_{0};
  std::atomic<std::uint64_t>* broken_ = &private_broken_;
  std::uint32_t heard_ = 0;  // the doorbell's value before the last check of all sources
  std::vector<Mailbox> mailboxes_;

  Mutex arrivals_mutex_;
  std::deque<Message> arrivals_ GUARDED_BY(arrivals_mutex_);  // from the links thread

  ControlChannel* const job_;
  AbortFlag::ListenerId listener_ = 0;

  std::unique_ptr<ControlLinks> links_;  // last: its thread uses all of the above. Null: all neighbours have mailboxes
};

}  // namespace hvd
