#include "core/bootstrap/tcp_store.h"

#include <array>
#include <charconv>

#include "core/base/error.h"

namespace hvd {

namespace {

// set and add are answered immediately; a server that takes longer counts as lost.
constexpr Duration kAnswerTime = std::chrono::seconds(30);
constexpr std::size_t kReadBytes = 16 * 1024;

std::string describe(const StoreRequest& request) {
  switch (request.operation) {
    case StoreOperation::set: return "setting the key '" + request.key + "' in the store";
    case StoreOperation::get: return "waiting for the key '" + request.key + "' in the store";
    case StoreOperation::add: return "adding to the key '" + request.key + "' in the store";
  }
  return "asking the store";
}

}  // namespace

TcpStore::TcpStore(const Address& address, const JobKey& key, int rank, Deadline deadline)
    : name_("the job's store at " + address.to_string()),
      socket_(connect_authenticated(address, key, Purpose::store, rank, deadline)),
      reader_(kMaxStoreFrameBytes) {
  local_host_ = socket_.local_host();
}

void TcpStore::set(const std::string& key, const std::string& value) {
  check_store_key(key);
  check_store_value(key, value);
  ask({.operation = StoreOperation::set, .key = key, .value = value}, deadline_after(kAnswerTime));
}

std::string TcpStore::get(const std::string& key, Deadline deadline) {
  check_store_key(key);
  return ask({.operation = StoreOperation::get, .key = key}, deadline);
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) {
  check_store_key(key);
  const std::string text =
      ask({.operation = StoreOperation::add, .key = key, .amount = amount}, deadline_after(kAnswerTime));
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) throw Internal(name_ + " answered with no number");
  return value;
}

std::string TcpStore::ask(StoreRequest request, Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    const auto is_free = [this]() REQUIRES(mutex_) { return !busy_; };
    if (!free_.wait_until(mutex_, deadline, is_free)) throw Timeout(describe(request));
    busy_ = true;
  }
  struct Release {
    TcpStore& store;
    ~Release() {
      {
        const MutexLock lock(store.mutex_);
        store.busy_ = false;
      }
      store.free_.notify_one();
    }
  } release{*this};

  if (!socket_) throw PeerLost("the connection to " + name_ + " was lost earlier");
  request.id = ++last_id_;
  StoreAnswer answer = exchange(request, deadline);
  if (answer.code != StatusCode::ok) throw Error(answer.code, answer.text);
  return std::move(answer.text);
}

StoreAnswer TcpStore::exchange(const StoreRequest& request, Deadline deadline) {
  try {
    send(request, deadline);
    return receive(request, deadline);
  } catch (const Timeout&) {
    throw;  // the answer may still come, and is skipped then
  } catch (...) {
    socket_.close();
    throw;
  }
}

void TcpStore::send(const StoreRequest& request, Deadline deadline) {
  try {
    socket_.send_all(make_frame(encode_store_request(request)), deadline, name_);
  } catch (const Timeout&) {
    socket_.close();  // part of the frame may have been sent: nothing can follow it
    throw Timeout(describe(request) + " (" + name_ + " takes no bytes)");
  }
}

StoreAnswer TcpStore::receive(const StoreRequest& request, Deadline deadline) {
  std::array<std::byte, kReadBytes> piece;
  for (;;) {
    while (auto message = reader_.next()) {
      StoreAnswer answer = parse_store_answer(*message);
      if (answer.id == request.id) return answer;  // others are late answers to gets that were given up
    }
    const auto count = socket_.receive_some(piece);
    if (!count) throw PeerLost(name_ + " closed the connection");
    reader_.feed(std::span(piece).first(*count));
    if (*count == 0 && !wait_ready(socket_.fd(), false, deadline)) throw Timeout(describe(request));
  }
}

}  // namespace hvd
