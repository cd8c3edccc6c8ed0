#include "core/rendezvous/store_origin.h"

#include <utility>

#include "core/base/error.h"

namespace hvd {

StoreSource::RequestId StoreOrigin::ask(StoreRequest request, Answer answer) {
  try {
    switch (request.operation) {
      case StoreOperation::set: set(std::move(request), answer); return 0;
      case StoreOperation::get: return get(request.key, answer);
      case StoreOperation::add: {
        const std::string sum = std::to_string(table_.add(request.key, request.amount));
        answer(StatusCode::ok, sum);
        return 0;
      }
    }
  } catch (const InvalidArgument& error) {
    answer(error.code(), error.what());
  }
  return 0;
}

void StoreOrigin::set(StoreRequest request, const Answer& answer) {
  table_.set(request.key, std::move(request.value));
  answer(StatusCode::ok, "");
  while (const auto parked = parked_.take(request.key)) (*parked)(StatusCode::ok, *table_.find(request.key));
}

StoreSource::RequestId StoreOrigin::get(const std::string& key, Answer& answer) {
  check_store_key(key);
  if (const std::string* value = table_.find(key)) {
    answer(StatusCode::ok, *value);
    return 0;
  }
  parked_.park(++last_request_id_, key, std::move(answer));
  return last_request_id_;
}

}  // namespace hvd
