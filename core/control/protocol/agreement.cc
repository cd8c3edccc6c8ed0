#include "core/control/protocol/agreement.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <optional>
#include <utility>

#include "core/base/error.h"

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

// The same for what each rank sends and for what it receives. rows[source][destination].
bool exchange_fits(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t row_bytes) {
  std::vector<std::int64_t> received(rows.size());
  for (const auto& sent : rows) {
    if (!fits(sent, row_bytes)) return false;
    for (std::size_t rank = 0; rank < received.size(); ++rank) {
      if (__builtin_add_overflow(received[rank], sent[rank], &received[rank])) return false;
    }
  }
  return std::ranges::all_of(received, [&](std::int64_t count) { return fits({count}, row_bytes); });
}

std::int64_t row_bytes_of(const TensorSpec& tensor) {
  return row_elements_of(tensor.shape) * static_cast<std::int64_t>(size_of(tensor.dtype));
}

}  // namespace

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

Agreement::Agreement(int size, OperationSpec first)
    : size_(static_cast<std::size_t>(size)), common_(std::move(first)) {}

void Agreement::add(const RankSet& ranks, const SharedRequest& shared) {
  asked_.add(ranks);
  if (!differs_by_rank(common_.collective)) return;
  parts_.resize(size_);
  auto part = shared.parts.begin();
  ranks.for_each([&](int rank) {
    parts_[static_cast<std::size_t>(rank)] = part != shared.parts.end() ? *part++ : part_of(shared.spec);
  });
}

void Agreement::add_from(const Agreement& earlier, const RankSet& ranks) { add(ranks, earlier.request_of(ranks)); }

const OperationSpec& Agreement::first() const { return common_; }

const RankSet& Agreement::asked() const { return asked_; }

SharedRequest Agreement::request_of(const RankSet& ranks) const {
  SharedRequest shared(common_);
  if (parts_.empty()) return shared;
  ranks.for_each([&](int rank) { shared.parts.push_back(parts_[static_cast<std::size_t>(rank)]); });
  put_part(shared.parts.front(), shared.spec);
  return shared;
}

std::span<const std::int64_t> Agreement::splits_of(int rank) const {
  return parts_[static_cast<std::size_t>(rank)].splits;
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
    good = exchange_fits(response.rows, row_bytes_of(spec.tensors.front()));
  }
  return good ? std::string() : "the result would have more than 2^63 bytes";
}

// ---- Checks of requests

namespace {

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string device_text(std::int32_t device) { return device < 0 ? "the CPU" : "an accelerator"; }

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reducescatter;
}

bool needs_rows(Collective collective) {
  return differs_by_rank(collective) || collective == Collective::reducescatter;
}

bool same_shape(const Shape& a, const Shape& b, bool but_first) {
  if (!but_first) return a == b;
  return a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

// Two values of one property.
struct Difference {
  std::string first;
  std::string other;
};

std::optional<Difference> tensor_difference(const OperationSpec& a, const OperationSpec& b) {
  if (a.tensors.size() != b.tensors.size()) {
    return Difference{"has " + std::to_string(a.tensors.size()) + " tensors",
                      std::to_string(b.tensors.size()) + " tensors"};
  }
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const TensorSpec& x = a.tensors[i];
    const TensorSpec& y = b.tensors[i];
    const std::string which = a.tensors.size() == 1 ? "has " : "has as tensor " + std::to_string(i) + " of the group ";
    if (x.dtype != y.dtype) {
      return Difference{which + "dtype " + dtype_name(x.dtype), std::string("dtype ") + dtype_name(y.dtype)};
    }
    if (!same_shape(x.shape, y.shape, differs_by_rank(a.collective))) {
      return Difference{which + "shape " + to_string(x.shape), "shape " + to_string(y.shape)};
    }
  }
  return std::nullopt;
}

std::optional<Difference> difference(const OperationSpec& a, const OperationSpec& b,
                                     const DescribeRank& describe_rank) {
  if (a.collective != b.collective) {
    return Difference{std::string("asks for ") + collective_name(a.collective), collective_name(b.collective)};
  }
  if (auto found = tensor_difference(a, b)) return found;
  if (a.collective == Collective::broadcast && a.root != b.root) {
    return Difference{"has root " + describe_rank(a.root), "root " + describe_rank(b.root)};
  }
  if (reduces(a.collective)) {
    if (a.op != b.op) {
      return Difference{std::string("has reduce op ") + reduce_op_name(a.op), reduce_op_name(b.op)};
    }
    const auto differ = [](double x, double y) {
      return std::bit_cast<std::uint64_t>(x) != std::bit_cast<std::uint64_t>(y);
    };
    if (differ(a.prescale, b.prescale)) {
      return Difference{"has prescale factor " + number_text(a.prescale), number_text(b.prescale)};
    }
    if (differ(a.postscale, b.postscale)) {
      return Difference{"has postscale factor " + number_text(a.postscale), number_text(b.postscale)};
    }
  }
  if (a.collective != Collective::barrier && a.device != b.device) {
    return Difference{"has its tensors on " + device_text(a.device), device_text(b.device)};
  }
  return std::nullopt;
}

std::string split_fault(const OperationSpec& spec, int set_size) {
  if (spec.splits.size() != static_cast<std::size_t>(set_size)) {
    return "gives " + std::to_string(spec.splits.size()) + " splits for " + std::to_string(set_size) + " ranks";
  }
  std::int64_t sum = 0;
  for (const std::int64_t rows : spec.splits) {
    if (rows < 0) return "gives a negative split";
    if (__builtin_add_overflow(sum, rows, &sum)) return "gives splits whose sum overflows";
  }
  const std::int64_t first = spec.tensors.front().shape.front();
  if (sum == first) return {};
  return "gives splits whose sum is " + std::to_string(sum) + " for a first dimension of " + std::to_string(first);
}

std::string fault(const OperationSpec& spec, int set_size) {
  const std::size_t count = spec.tensors.size();
  if (spec.collective == Collective::barrier) return count == 0 ? std::string() : "brings a tensor to a barrier";
  if (count == 0) return "brings no tensor";
  if (spec.collective == Collective::broadcast && (spec.root < 0 || spec.root >= set_size)) {
    return "names root rank " + std::to_string(spec.root) + ", which is not in the process set";
  }
  if (needs_rows(spec.collective)) {
    for (const TensorSpec& tensor : spec.tensors) {
      if (tensor.shape.empty()) return "brings a tensor of no dimensions, and at least one is needed";
    }
  }
  if (spec.collective != Collective::alltoall) return {};
  if (count != 1) return "brings " + std::to_string(count) + " tensors to an alltoall";
  return split_fault(spec, set_size);
}

}  // namespace

std::string operation_text(Collective collective, const std::string& name) {
  if (collective == Collective::join) return collective_name(collective);  // a set has one
  return std::string(collective_name(collective)) + " '" + name + "'";
}

bool tolerates_joined(const OperationSpec& spec) {
  if (!reduces(spec.collective)) return true;
  // Zeros stay zeros when prescaled; other neutral elements do not stay neutral.
  const bool neutral_is_zero = spec.op == ReduceOp::sum || spec.op == ReduceOp::average || spec.op == ReduceOp::adasum;
  return spec.prescale == 1.0 || neutral_is_zero;
}

std::string find_need(const Agreement& agreement, const RankSet& asked, int joined, JoinScope scope,
                      const DescribeRank& describe_rank) {
  const OperationSpec& spec = agreement.first();
  const std::string text = operation_text(spec.collective, spec.name) + ": ";
  const bool in_scope = spec.collective == Collective::allreduce || spec.collective == Collective::barrier;
  if (scope == JoinScope::allreduce && !in_scope) {
    return text + describe_rank(joined) + " has joined, and HVD_JOIN_SCOPE=allreduce has only allreduces go on without";
  }
  if (!tolerates_joined(spec)) return text + "needs every rank, but " + describe_rank(joined) + " has joined";
  if (spec.collective == Collective::broadcast && spec.root == joined) {
    return text + "its root, " + describe_rank(joined) + ", has joined";
  }
  if (spec.collective != Collective::alltoall) return {};
  std::string need;
  asked.for_each([&](int source) {
    const std::int64_t rows = agreement.splits_of(source)[static_cast<std::size_t>(joined)];
    if (rows == 0 || !need.empty()) return;
    need = text + describe_rank(source) + " sends " + std::to_string(rows) + " rows to " + describe_rank(joined) +
           ", which has joined";
  });
  return need;
}

void report_violation(const RankSet& ranks, const std::string& what, const DescribeRank& describe_rank) {
  throw Internal(describe_rank(ranks.lowest()) + " breaks the protocol: it " + what);
}

std::string find_fault(const OperationSpec& spec, int set_size, int rank, const DescribeRank& describe_rank) {
  const std::string what = fault(spec, set_size);
  if (what.empty()) return {};
  return operation_text(spec.collective, spec.name) + ": " + describe_rank(rank) + " " + what;
}

std::string find_disagreement(const OperationSpec& first, int first_rank, const OperationSpec& other, int other_rank,
                              const DescribeRank& describe_rank) {
  const auto found = difference(first, other, describe_rank);
  if (!found) return {};
  return operation_text(first.collective, first.name) + ": the ranks disagree: " + describe_rank(first_rank) + " " +
         found->first + ", but " + describe_rank(other_rank) + " " + found->other;
}

bool agree(const OperationSpec& a, const OperationSpec& b) {
  return !difference(a, b, [](int rank) { return std::to_string(rank); });
}

}  // namespace hvd
