#include "core/bootstrap/store.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/text.h"
#include "core/bootstrap/store_origin.h"
#include "core/bootstrap/store_protocol.h"
#include "core/net/frame.h"

namespace hvd {

namespace {

// For set and add: normally immediate. After this time the request fails with Timeout; whether it took effect is
// unknown.
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

std::string epoch_prefix(int epoch) { return "epoch/" + std::to_string(epoch) + "/"; }

class Store::Map {
 public:
  virtual ~Map() = default;
  // Returns the text of the answer (store_protocol.h); a get waits for it until the deadline.
  virtual std::string ask(StoreRequest request, Deadline deadline) = 0;
};

class Store::LocalMap : public Map {
 public:
  std::string ask(StoreRequest request, Deadline deadline) override {
    const MutexLock lock(mutex_);
    switch (request.operation) {
      case StoreOperation::set:
        table_.set(request.key, std::move(request.value));
        changed_.notify_all();
        return "";
      case StoreOperation::add: return std::to_string(table_.add(request.key, request.amount));
      case StoreOperation::get: break;
    }
    const auto is_set = [&]() REQUIRES(mutex_) { return table_.find(request.key) != nullptr; };
    if (!changed_.wait_until(mutex_, deadline, is_set)) throw Timeout(describe(request));
    return *table_.find(request.key);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  StoreTable table_ GUARDED_BY(mutex_);
};

class Store::RemoteMap : public Map {
 public:
  RemoteMap(const Address& address, Socket socket)
      : name_("the job's store at " + address.to_string()), socket_(std::move(socket)), reader_(kMaxStoreFrameBytes) {}

  std::string ask(StoreRequest request, Deadline deadline) override {
    const Turn turn(*this, request, deadline);
    if (!socket_) throw PeerLost("the connection to " + name_ + " was lost earlier");
    request.id = ++last_id_;
    StoreAnswer answer = exchange(request, deadline);
    if (answer.code != StatusCode::ok) throw Error(answer.code, answer.text);
    return std::move(answer.text);
  }

 private:
  // Gives one thread at a time the connection.
  class Turn {
   public:
    Turn(RemoteMap& map, const StoreRequest& request, Deadline deadline) : map_(map) {
      const MutexLock lock(map_.mutex_);
      const auto is_free = [&map]() REQUIRES(map.mutex_) { return !map.busy_; };
      if (!map_.free_.wait_until(map_.mutex_, deadline, is_free)) throw Timeout(describe(request));
      map_.busy_ = true;
    }
    ~Turn() {
      const MutexLock lock(map_.mutex_);
      map_.busy_ = false;
      map_.free_.notify_one();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    RemoteMap& map_;
  };

  StoreAnswer exchange(const StoreRequest& request, Deadline deadline) {
    try {
      send(request, deadline);
      return receive(request, deadline);
    } catch (const Timeout&) {
      throw;  // whether it took effect is unknown; the answer may still come, and is skipped then
    } catch (...) {
      socket_.close();
      throw;
    }
  }

  void send(const StoreRequest& request, Deadline deadline) {
    try {
      socket_.send_all(make_frame(encode_store_request(request)), deadline, name_);
    } catch (const Timeout&) {
      socket_.close();  // part of the frame may have been sent: nothing can follow it
      throw Timeout(describe(request) + " (" + name_ + " takes no bytes)");
    }
  }

  StoreAnswer receive(const StoreRequest& request, Deadline deadline) {
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

  const std::string name_;
  Mutex mutex_;
  CondVar free_;
  bool busy_ GUARDED_BY(mutex_) = false;  // the thread whose turn it is owns what follows
  Socket socket_;
  FrameReader reader_;
  std::uint32_t last_id_ = 0;
};

Store::Store() : Store(std::make_shared<LocalMap>(), "127.0.0.1") {}

Store::Store(std::shared_ptr<Map> map, std::string local_host)
    : map_(std::move(map)), local_host_(std::move(local_host)) {}

Store Store::connect(const Address& address, const JobKey& key, int rank, Deadline deadline) {
  Socket socket = connect_authenticated(address, key, Purpose::store, rank, deadline);
  std::string local_host = socket.local_host();
  return Store(std::make_shared<RemoteMap>(address, std::move(socket)), std::move(local_host));
}

Store Store::with_prefix(const std::string& prefix) const {
  Store store = *this;
  store.prefix_ += prefix;
  return store;
}

Store Store::with_alarm(Alarm alarm) const {
  Store store = *this;
  store.alarm_ = [earlier = alarm_, alarm = std::move(alarm)] {
    if (earlier) earlier();
    alarm();
  };
  return store;
}

void Store::set(const std::string& key, std::string value) const {
  StoreRequest request{.operation = StoreOperation::set, .key = prefix_ + key, .value = std::move(value)};
  check_store_key(request.key);
  check_store_value(request.key, request.value);
  map_->ask(std::move(request), deadline_after(kAnswerTime));
}

std::string Store::get(const std::string& key, Deadline deadline) const {
  const StoreRequest request{.operation = StoreOperation::get, .key = prefix_ + key};
  check_store_key(request.key);
  while (alarm_) {
    try {
      return map_->ask(request, std::min(deadline, deadline_after(kAlarmPeriod)));
    } catch (const Timeout&) {
      alarm_();
      if (Clock::now() >= deadline) throw;
    }
  }
  return map_->ask(request, deadline);
}

std::int64_t Store::add(const std::string& key, std::int64_t amount) const {
  StoreRequest request{.operation = StoreOperation::add, .key = prefix_ + key, .amount = amount};
  check_store_key(request.key);
  const auto sum = parse_number<std::int64_t>(map_->ask(std::move(request), deadline_after(kAnswerTime)));
  if (!sum) throw Internal("the job's store answered with no number");
  return *sum;
}

const Alarm& Store::alarm() const { return alarm_; }

const std::string& Store::local_host() const { return local_host_; }

void throw_cause_at(const Store& store, const std::string& key, Deadline deadline) {
  std::string cause;
  try {
    cause = store.get(key, deadline);
  } catch (const Error&) {
    return;
  }
  throw Aborted(cause);
}

void check_job_failure(const Store& store, Deadline deadline) { throw_cause_at(store, kJobFailureKey, deadline); }

}  // namespace hvd
