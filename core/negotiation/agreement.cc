#include "core/negotiation/agreement.h"

#include <algorithm>

namespace hvd {
namespace {

// Does sum(rows) * row_bytes stay below 2^63?
bool fits(const std::vector<std::int64_t>& rows, std::int64_t row_bytes) {
  std::int64_t total = 0;
  for (const std::int64_t count : rows) {
    if (__builtin_add_overflow(total, count, &total)) return false;
  }
  return !__builtin_mul_overflow(total, row_bytes, &total);
}

std::int64_t row_bytes_of(const TensorSpec& tensor) {
  return row_elements_of(tensor.shape) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

}  // namespace

bool differs_by_rank(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall;
}

void Agreement::add(int position, const Request& request) {
  const auto index = static_cast<std::size_t>(position);
  asked_[index] = true;
  if (!differs_by_rank(common_.collective)) return;
  parts_.resize(asked_.size());
  RankPart& part = parts_[index];
  part.first_dimensions.clear();
  for (const TensorSpec& tensor : request.tensors) part.first_dimensions.push_back(tensor.shape.front());
  part.splits = request.splits;
}

void Agreement::add_from(const Agreement& earlier, int position) {
  const auto index = static_cast<std::size_t>(position);
  asked_[index] = true;
  if (!differs_by_rank(common_.collective)) return;
  parts_.resize(asked_.size());
  parts_[index] = earlier.parts_[index];
}

Request Agreement::request_of(int position) const {
  Request request = common_;
  if (parts_.empty()) return request;
  const RankPart& part = parts_[static_cast<std::size_t>(position)];
  for (std::size_t i = 0; i < request.tensors.size(); ++i) request.tensors[i].shape.front() = part.first_dimensions[i];
  request.splits = part.splits;
  return request;
}

Response Agreement::response() const {
  const auto lowest = std::find(asked_.begin(), asked_.end(), true) - asked_.begin();
  Response response;
  response.kind = Response::Kind::execute;
  response.request = request_of(static_cast<int>(lowest));
  response.contributing = static_cast<std::int32_t>(std::count(asked_.begin(), asked_.end(), true));
  response.rows = rows();
  return response;
}

std::vector<std::vector<std::int64_t>> Agreement::rows() const {
  std::vector<std::vector<std::int64_t>> rows;
  const std::size_t size = asked_.size();
  if (common_.collective == Collective::allgather) {
    rows.assign(common_.tensors.size(), std::vector<std::int64_t>(size));
    for (std::size_t tensor = 0; tensor < rows.size(); ++tensor) {
      for (std::size_t rank = 0; rank < size; ++rank) {
        if (asked_[rank]) rows[tensor][rank] = parts_[rank].first_dimensions[tensor];
      }
    }
  } else if (common_.collective == Collective::alltoall) {
    rows.assign(size, std::vector<std::int64_t>(size));
    for (std::size_t source = 0; source < size; ++source) {
      if (asked_[source]) rows[source] = parts_[source].splits;
    }
  }
  return rows;
}

std::string find_overflow(const Response& response) {
  const Request& request = response.request;
  bool good = true;
  if (request.collective == Collective::allgather) {
    for (std::size_t i = 0; i < request.tensors.size(); ++i) {
      good = good && fits(response.rows[i], row_bytes_of(request.tensors[i]));
    }
  } else if (request.collective == Collective::alltoall) {
    for (std::size_t destination = 0; destination < response.rows.size(); ++destination) {
      std::vector<std::int64_t> received;
      for (const auto& row : response.rows) received.push_back(row[destination]);
      good = good && fits(received, row_bytes_of(request.tensors.front()));
    }
  }
  return good ? std::string() : "the result would have more than 2^63 bytes";
}

}  // namespace hvd
