// The store of an elastic job: passes what processes write for the launcher (core/bootstrap/elastic.h) to a listener.
// Main thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/text.h"
#include "core/bootstrap/elastic.h"
#include "core/bootstrap/store_origin.h"

namespace hvd::launcher {

class ElasticStore : public StoreSource {
 public:
  struct Listener {
    std::function<void(int process)> stands_by;
    std::function<void(int process, std::int64_t arrival)> arrived;  // `arrival`: which one of this process, from 1
    std::function<void(int process)> synchronized;
    std::function<void(int process)> preempted;
    std::function<void(int process, std::int64_t rank)> unreachable;  // `rank`: of the epoch, for the process
    std::function<void(int process, const std::string& cause)> failing;
  };

  // `origin` outlives it.
  explicit ElasticStore(StoreOrigin& origin) : origin_(origin) {}

  // Replaces the listener; it may use the store.
  void listen(Listener listener) { listener_ = std::move(listener); }

  RequestId ask(StoreRequest request, Answer answer) override {
    if (request.operation == StoreOperation::set) return set(std::move(request), std::move(answer));
    if (request.operation != StoreOperation::add || request.amount <= 0) {
      return origin_.ask(std::move(request), std::move(answer));
    }
    const std::string key = request.key;
    const std::int64_t amount = request.amount;
    std::int64_t sum = 0;  // adds are answered at once
    origin_.ask(std::move(request), [&](StatusCode code, std::string_view text) {
      if (code == StatusCode::ok) sum = parse_number<std::int64_t>(text).value_or(0);
      answer(code, text);
    });
    tell(key, amount, sum);
    return 0;
  }
  // The launcher's own words; nobody waits for the answer.
  void put(const std::string& key, const std::string& value) {
    ask({.operation = StoreOperation::set, .key = key, .value = value}, [](StatusCode, std::string_view) {});
  }
  void add(const std::string& key, std::int64_t amount) {
    ask({.operation = StoreOperation::add, .key = key, .amount = amount}, [](StatusCode, std::string_view) {});
  }
  // The ranks of the epoch have left it.
  void erase_epoch(int epoch) { origin_.erase(epoch_prefix(epoch)); }

  void forget(RequestId request_id) override { origin_.forget(request_id); }

 private:
  static std::optional<int> process_of(const std::string& key) {
    return parse_number<int>(key.substr(key.rfind('/') + 1));
  }

  RequestId set(StoreRequest request, Answer answer) {
    const auto process = process_of(request.key);
    const bool is_failing = process && request.key == failing_key(*process) && listener_.failing;
    const std::string cause = is_failing ? request.value : "";
    const RequestId request_id = origin_.ask(std::move(request), std::move(answer));
    if (is_failing) listener_.failing(*process, cause);
    return request_id;
  }

  void tell(const std::string& key, std::int64_t amount, std::int64_t sum) {
    const auto process = process_of(key);
    if (sum <= 0 || !process) return;
    if (key == stands_by_key(*process) && listener_.stands_by) listener_.stands_by(*process);
    if (key == arrived_key(*process) && listener_.arrived) listener_.arrived(*process, sum);
    if (key == synchronized_key(*process) && listener_.synchronized) listener_.synchronized(*process);
    if (key == preempted_key(*process) && listener_.preempted) listener_.preempted(*process);
    if (key == unreachable_key(*process) && listener_.unreachable) listener_.unreachable(*process, amount - 1);
  }

  StoreOrigin& origin_;
  Listener listener_;
};

}  // namespace hvd::launcher
