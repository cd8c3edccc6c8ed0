#include "core/negotiation/star_channel.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/rendezvous/share_with_host.h"

namespace hvd {

StarChannel::StarChannel(const Options& options)
    : topology_(options.topology), abort_(options.abort), metrics_(options.metrics), job_(options.job) {
  open_window(options);
  listener_ = abort_.add_listener([this] { wake(); });
  try {
    connect(options);
  } catch (...) {
    abort_.remove_listener(listener_);
    throw;
  }
}

StarChannel::~StarChannel() { abort_.remove_listener(listener_); }

void StarChannel::connect(const Options& options) {
  const bool by_mailbox = memory_ && topology_.hosts.size() == 1;
  if (job_ != nullptr && (by_mailbox || topology_.size == 1)) return;
  const auto on_message = [this](int from, Bytes payload) {
    {
      std::lock_guard lock(arrivals_mutex_);
      arrivals_.push_back({from, std::move(payload)});
    }
    wake();
  };
  links_ = std::make_unique<ControlLinks>(options.topology, options.store, options.key, options.own_host, options.abort,
                                          options.log, on_message, options.deadline);
}

void StarChannel::open_window(const Options& options) {
  const Topology& topology = options.topology;
  const bool with_coordinator = topology.host() == topology.host_of[0];
  if (!options.shared_memory || topology.local_size == 1 || !with_coordinator) return;

  memory_ = share_with_host(topology, options.store, options.key, "control",
                            ControlWindow::bytes_for(topology.local_size), options.log, options.deadline);
  const ControlWindow window{reinterpret_cast<ControlWindow::PerRank*>(memory_->data())};
  doorbell_ = &window.at(topology.local_rank).doorbell;
  for (int local = 0; local < topology.local_size; ++local) doorbells_.push_back(&window.at(local).doorbell);
  broken_ = &window.at(0).broken;
  const auto& neighbours = topology.hosts[static_cast<std::size_t>(topology.host())];
  if (topology.rank == 0) {
    for (int local = 1; local < topology.local_size; ++local) {
      auto& theirs = window.at(local);
      mailboxes_.push_back({.rank = neighbours[static_cast<std::size_t>(local)],
                            .out = &theirs.from_coordinator,
                            .in = &theirs.to_coordinator,
                            .doorbell = &theirs.doorbell,
                            .reader = FrameReader(),
                            .outbox = {}});
    }
  } else {
    auto& own = window.at(topology.local_rank);
    mailboxes_.push_back({.rank = 0,
                          .out = &own.to_coordinator,
                          .in = &own.from_coordinator,
                          .doorbell = &window.at(0).doorbell,
                          .reader = FrameReader(),
                          .outbox = {}});
  }
}

void StarChannel::send(int to, Bytes payload) {
  metrics_.control_messages.add();
  metrics_.control_bytes.add(payload.size());
  const auto it = std::find_if(mailboxes_.begin(), mailboxes_.end(), [&](const Mailbox& m) { return m.rank == to; });
  if (it == mailboxes_.end()) return links_->send(to, payload);
  const Bytes frame = make_frame(payload);
  it->outbox.insert(it->outbox.end(), frame.begin(), frame.end());
  flush(*it);
}

// True if everything went out.
bool StarChannel::flush(Mailbox& mailbox) {
  if (mailbox.outbox.empty()) return true;
  std::size_t sent = mailbox.out->write(mailbox.outbox);
  if (sent < mailbox.outbox.size()) {
    // Ask first, then try again: the reader may have made room in between and not have seen the question.
    mailbox.out->ask_for_room();
    sent += mailbox.out->write(std::span<const std::byte>(mailbox.outbox).subspan(sent));
  }
  mailbox.outbox.erase(mailbox.outbox.begin(), mailbox.outbox.begin() + static_cast<std::ptrdiff_t>(sent));
  if (sent > 0) mailbox.doorbell->increment_and_wake();
  return mailbox.outbox.empty();
}

bool StarChannel::flush_all() {
  bool all = true;
  for (Mailbox& mailbox : mailboxes_) all = flush(mailbox) && all;
  return all;
}

void StarChannel::flush(Deadline deadline) {
  for (;;) {
    heard_ = doorbell_->value.load(std::memory_order_acquire);
    if (flush_all()) return;
    if (Clock::now() >= deadline) {
      const auto full =
          std::find_if(mailboxes_.begin(), mailboxes_.end(), [](const auto& m) { return !m.outbox.empty(); });
      throw Timeout("waited for " + topology_.describe(full->rank) + " to read what the coordinator sent");
    }
    doorbell_->wait_change(heard_, deadline, &abort_);
  }
}

std::optional<ControlChannel::Message> StarChannel::receive_from(Mailbox& mailbox) {
  if (auto payload = mailbox.reader.next()) return Message{mailbox.rank, std::move(*payload)};
  if (!mailbox.in->read_into(mailbox.reader)) return std::nullopt;
  if (mailbox.in->room_was_asked_for()) mailbox.doorbell->increment_and_wake();
  if (auto payload = mailbox.reader.next()) return Message{mailbox.rank, std::move(*payload)};
  return std::nullopt;
}

std::optional<ControlChannel::Message> StarChannel::receive() {
  // Remembered before looking: whatever comes after this look changes the doorbell and ends the next wait.
  heard_ = doorbell_->value.load(std::memory_order_acquire);
  flush_all();
  for (Mailbox& mailbox : mailboxes_) {
    if (auto message = receive_from(mailbox)) return message;
  }
  std::lock_guard lock(arrivals_mutex_);
  if (arrivals_.empty()) return std::nullopt;
  Message message = std::move(arrivals_.front());
  arrivals_.pop_front();
  return message;
}

void StarChannel::broadcast_abort(const Status& reason) {
  if (job_ != nullptr) return job_->broadcast_abort(reason);
  links_->broadcast_abort(reason);
}

void StarChannel::wait(std::uint32_t heard, Deadline deadline, AdaptiveWait* busily) {
  if (abort_.raised()) return;
  if (busily != nullptr) {
    busily->wait_change(*doorbell_, heard, deadline, nullptr);
  } else {
    doorbell_->wait_change(heard, deadline, nullptr);
  }
}

void StarChannel::wake() { doorbell_->increment_and_wake(); }

void StarChannel::request_break(std::uint64_t epoch) {
  broken_->store(epoch, std::memory_order_release);
  for (Signal* doorbell : doorbells_) doorbell->increment_and_wake();
}

void StarChannel::close(Deadline deadline) {
  try {
    flush(deadline);
  } catch (const Error&) {
    // A reader that is gone, or does not read, is not worth waiting for.
  }
  if (links_) links_->close(deadline);
}

void StarChannel::abandon_in_child() noexcept {
  if (links_) links_->abandon_in_child();
}

}  // namespace hvd
