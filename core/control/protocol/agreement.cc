#include "core/control/protocol/agreement.h"

#include <algorithm>

namespace hvd {
namespace {

// Whether sum(rows) * row_bytes is below 2^63.
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

RankPart part_of(const OperationSpec& spec) {
  RankPart part;
  for (const TensorSpec& tensor : spec.tensors) part.first_dimensions.push_back(tensor.shape.front());
  part.splits = spec.splits;
  return part;
}

void put_part(const RankPart& part, OperationSpec& spec) {
  for (std::size_t i = 0; i < spec.tensors.size(); ++i) spec.tensors[i].shape.front() = part.first_dimensions[i];
  spec.splits = part.splits;
}

SharedRequest request_of(const RankSet& some, const RankSet& ranks, const SharedRequest& shared) {
  if (shared.parts.empty()) return shared;
  SharedRequest result(shared.spec);
  auto part = shared.parts.begin();
  ranks.for_each([&](int rank) {
    if (some.contains(rank)) result.parts.push_back(*part);
    ++part;
  });
  put_part(result.parts.front(), result.spec);
  return result;
}

void Agreement::add(const RankSet& ranks, const SharedRequest& shared) {
  asked_.add(ranks);
  if (!differs_by_rank(common_.collective)) return;
  parts_.resize(size_);
  auto part = shared.parts.begin();
  ranks.for_each([&](int rank) {
    parts_[static_cast<std::size_t>(rank)] = part != shared.parts.end() ? *part++ : part_of(shared.spec);
  });
}

SharedRequest Agreement::request_of(const RankSet& ranks) const {
  SharedRequest shared(common_);
  if (parts_.empty()) return shared;
  ranks.for_each([&](int rank) { shared.parts.push_back(parts_[static_cast<std::size_t>(rank)]); });
  put_part(shared.parts.front(), shared.spec);
  return shared;
}

Response Agreement::response() const {
  Response response;
  response.kind = Response::Kind::execute;
  response.spec = request_of(RankSet(asked_.lowest())).spec;
  response.contributing = asked_.count();
  response.rows = rows();
  return response;
}

std::vector<std::vector<std::int64_t>> Agreement::rows() const {
  std::vector<std::vector<std::int64_t>> rows;
  if (common_.collective == Collective::allgather) {
    rows.assign(common_.tensors.size(), std::vector<std::int64_t>(size_));
    asked_.for_each([&](int rank) {
      const auto& first_dimensions = parts_[static_cast<std::size_t>(rank)].first_dimensions;
      for (std::size_t tensor = 0; tensor < rows.size(); ++tensor) {
        rows[tensor][static_cast<std::size_t>(rank)] = first_dimensions[tensor];
      }
    });
  } else if (common_.collective == Collective::alltoall) {
    rows.assign(size_, std::vector<std::int64_t>(size_));
    asked_.for_each(
        [&](int source) { rows[static_cast<std::size_t>(source)] = parts_[static_cast<std::size_t>(source)].splits; });
  }
  return rows;
}

std::string find_overflow(const Response& response) {
  const OperationSpec& spec = response.spec;
  bool good = true;
  if (spec.collective == Collective::allgather) {
    for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
      good = good && fits(response.rows[i], row_bytes_of(spec.tensors[i]));
    }
  } else if (spec.collective == Collective::alltoall) {
    for (std::size_t destination = 0; destination < response.rows.size(); ++destination) {
      std::vector<std::int64_t> received;
      for (const auto& row : response.rows) received.push_back(row[destination]);
      good = good && fits(received, row_bytes_of(spec.tensors.front()));
    }
  }
  return good ? std::string() : "the result would have more than 2^63 bytes";
}

}  // namespace hvd
