#include "parameters/shard.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

bool pulls(PsOp op) { return op == PsOp::pull || op == PsOp::push_pull; }
bool pushes(PsOp op) { return op == PsOp::push || op == PsOp::push_pull; }

}  // namespace

ShardTable& Shard::table_of(const PsRequest& request) const {
  if (request.table >= tables_.all.size()) {
    throw InvalidArgument("no table number " + std::to_string(request.table) + " is open on shard " +
                          std::to_string(number()) + ": its server has lost it");
  }
  return *tables_.all[request.table];
}

bool Shard::has_values(const PsRequest& request) const {
  if (!pulls(request.op) && !pushes(request.op)) return true;
  const ShardTable& table = table_of(request);
  return !table.spec().filled || table.is_complete();
}

bool Shard::is_ready(const PsRequest& request) const {
  if (!has_values(request)) return false;
  if (!pulls(request.op)) return true;
  const TableSpec& spec = table_of(request).spec();
  if (spec.consistency == Consistency::asynchronous) return true;
  const std::uint64_t bound = spec.consistency == Consistency::bounded ? spec.bound : 0;
  return std::uint64_t{workers_.min_clock(tables_.applied_clock)} + bound >= request.clock;
}

std::size_t Shard::answer_bytes(const PsRequest& request) const {
  if (!pulls(request.op)) return 0;
  const std::size_t bytes = std::size_t{request.rows} * table_of(request).spec().width * sizeof(float);
  if (bytes > kMaxPsPayload) throw InvalidArgument("rows of more than 512 KiB in one request");
  return bytes;
}

PsAnswer Shard::apply(const PsRequest& request, std::span<const std::byte> payload, std::span<std::byte> answer) {
  switch (request.op) {
    case PsOp::hello: return hello(request, payload);
    case PsOp::open_table: return open_table(request, payload);
    case PsOp::forget: forget(request.worker); break;
    case PsOp::refused: workers_.refuse(request, payload); break;
    case PsOp::evicted: table_of(request).remove_evicted(request, payload); break;
    default: return apply_to_worker(request, payload, answer);
  }
  return {.sequence = request.sequence, .bytes = static_cast<std::uint32_t>(answer.size())};
}

// A request that counts among those of its worker.
PsAnswer Shard::apply_to_worker(const PsRequest& request, std::span<const std::byte> payload,
                                std::span<std::byte> answer) {
  PsAnswer result{.sequence = request.sequence, .bytes = static_cast<std::uint32_t>(answer.size())};
  ShardWorkers::Worker& worker = workers_.of(request);
  const bool is_new = !is_numbered(request.op) || request.sequence > worker.applied;
  if (!is_new) worker.throw_if_refused(request);
  const bool has_table = request.op != PsOp::clock && request.op != PsOp::leave;
  ShardTable* const table = has_table ? &table_of(request) : nullptr;
  if (pulls(request.op)) table->check_pull(request, payload);
  const bool has_rows = pushes(request.op) || request.op == PsOp::fill;
  if (has_rows) require_rows(request, payload, table->spec().width);
  if (request.op == PsOp::fill) table->fill(request, payload);
  if (pushes(request.op) && is_new) table->push(request, payload);
  if (request.op == PsOp::pull) require_payload(payload.size() == std::size_t{request.rows} * sizeof(std::uint64_t));
  if (pulls(request.op)) {
    table->pull(request, payload, answer);
    result.rows = request.rows;
  }
  if (request.op == PsOp::learning_rate && is_new) table->set_learning_rate(payload);
  if (is_numbered(request.op) && is_new) worker.applied = request.sequence;
  if (request.op == PsOp::clock && is_new) worker.clock = std::max(worker.clock, request.clock);
  if (request.op == PsOp::leave) {
    worker.left = true;
    tables_.forget_pulls(request.worker);
  }
  if (!has_table) apply_finished_clocks();
  result.min_clock = workers_.min_clock(tables_.applied_clock);
  if (has_table) result.version = table->counts().updates;
  return result;
}

PsAnswer Shard::hello(const PsRequest& request, std::span<const std::byte> payload) {
  PsHello greeting;
  require_payload(payload.size() == sizeof greeting);
  std::memcpy(&greeting, payload.data(), sizeof greeting);
  if (greeting.protocol != PsHello::kProtocol) {
    throw InvalidArgument("worker " + std::to_string(request.worker) +
                          " uses another hvd version than the parameter servers: install the same on all hosts");
  }
  const auto [worker, is_known] = workers_.greet(request, greeting, tables_.applied_clock);
  if (!is_known) {
    for (const auto& table : tables_.all) table->pending().drop(request.worker, worker.clock);  // it does them again
    tables_.forget_pulls(request.worker);
  }
  worker.clock = std::max(worker.clock, request.clock);  // this state may be older: from a snapshot
  apply_finished_clocks();
  return {.sequence = request.sequence,
          .version = worker.clock,
          .min_clock = workers_.min_clock(tables_.applied_clock),
          .rows = is_known || tables_.is_restored ? 1u : 0u,
          .applied = worker.applied};
}

PsAnswer Shard::open_table(const PsRequest& request, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  TableSpec spec = read_table_spec(reader);
  reader.expect_end();
  const std::size_t number = tables_.open(std::move(spec));
  const ShardTable& table = *tables_.all[number];
  return {.sequence = request.sequence,
          .version = table.counts().updates,
          .rows = static_cast<std::uint32_t>(number),
          .applied = !table.spec().filled || table.is_complete() ? 1u : 0u};
}

std::span<const std::byte> Shard::compensate(const PsRequest& request, std::span<const std::byte> payload) {
  return pushes(request.op) ? table_of(request).compensate(request, payload) : payload;
}

void Shard::lead() {
  tables_.follows = false;
  for (const auto& table : tables_.all) table->eviction().begin_ages(tables_.applied_clock);
}

void Shard::apply_finished_clocks() {
  const std::uint32_t reached = workers_.min_clock(tables_.applied_clock);
  if (reached <= tables_.applied_clock) return;
  const std::uint32_t clocks = reached - std::exchange(tables_.applied_clock, reached);
  for (const auto& table : tables_.all) table->apply_finished_clocks(clocks, workers_);
}

void Shard::forget(std::uint32_t worker) {
  if (!workers_.forget(worker)) return;
  tables_.forget_pulls(worker);
  apply_finished_clocks();
}

std::string Shard::stats() const {
  std::string text;
  const auto line = [&](const std::string& of, const char* what, std::uint64_t value) {
    text += of + " " + what + " " + std::to_string(value) + "\n";
  };
  line("-", "bytes", tables_.bytes());
  line("-", "min_clock", workers_.min_clock(tables_.applied_clock));
  for (const auto& table : tables_.all) {
    const std::string& name = table->spec().name;
    const ShardTable::Counts& counts = table->counts();
    const Staleness& staleness = table->pulls().staleness();
    line(name, "rows", table->rows().size());
    line(name, "bytes", table->bytes());
    line(name, "updates", counts.updates);
    line(name, "pushes", counts.pushes);
    line(name, "pulls", counts.pulls);
    line(name, "evicted", table->eviction().count());
    line(name, "staleness_median", staleness.median());
    line(name, "staleness_worst", staleness.worst());
  }
  return text;
}

void Shard::count_into(ShardMetrics& metrics) const {
  std::uint64_t pushes = 0, pulls = 0, rows = 0, median = 0, worst = 0;
  for (const auto& table : tables_.all) {
    const Staleness& staleness = table->pulls().staleness();
    pushes += table->counts().pushes;
    pulls += table->counts().pulls;
    rows += table->rows().size();
    median = std::max(median, staleness.median());
    worst = std::max(worst, staleness.worst());
  }
  metrics.pushes.set(pushes);
  metrics.pulls.set(pulls);
  metrics.rows.set(rows);
  metrics.bytes.set(tables_.bytes());
  metrics.staleness_median.set(median);
  metrics.staleness_worst.set(worst);
  metrics.number.set(number() + 1);
}

}  // namespace hvd
