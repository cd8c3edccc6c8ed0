#include "core/runtime/process_sets.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/bootstrap/store.h"

namespace hvd {

namespace {

// The name of the operation by which ranks agree on changes of process sets.
constexpr const char* kChangeName = "<process sets>";

// The first number of a change that ranks agree on; then the ranks or the number of the set.
constexpr std::int64_t kAdd = 1, kRemove = 2;

std::string change_text(const std::vector<std::int64_t>& change) {
  if (change.empty()) return "do nothing";
  const Shape rest(change.begin() + 1, change.end());
  return (change.front() == kAdd ? "add one of ranks " : "remove number ") + to_string(rest);
}

void check_members(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) throw InvalidArgument("a process set needs at least one rank");
  for (const int rank : ranks) {
    if (rank >= 0 && rank < size) continue;
    throw InvalidArgument("rank " + std::to_string(rank) + " is not in a job of " + std::to_string(size) + " ranks");
  }
  if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    throw InvalidArgument("a process set cannot have a rank twice: " + to_string(Shape(ranks.begin(), ranks.end())));
  }
}

}  // namespace

ProcessSets::ProcessSets(const Topology& topology, Store& store, const Communicator::Common& common,
                         std::shared_ptr<Communicator> global)
    : topology_(topology), store_(store), common_(common), global_(std::move(global)) {
  const ProcessSet everyone{.id = kGlobalProcessSet, .ranks = topology.job_ranks};
  entries_[kGlobalProcessSet] = {std::make_shared<const ProcessSet>(everyone), global_};
}

ProcessSets::Entry ProcessSets::find(std::int32_t id) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) throw InvalidArgument("there is no process set " + std::to_string(id));
  return found->second;
}

std::vector<ProcessSet> ProcessSets::all() const {
  const MutexLock lock(mutex_);
  std::vector<ProcessSet> sets;
  for (const auto& [id, entry] : entries_) sets.push_back(*entry.set);
  return sets;
}

ProcessSets::Entry ProcessSets::find_local(std::int32_t id) const {
  Entry entry = find(id);
  if (entry.communicator) return entry;
  throw InvalidArgument("rank " + std::to_string(topology_.rank) + " is not in process set " + std::to_string(id));
}

void ProcessSets::shut_down() {
  std::vector<std::shared_ptr<Communicator>> others;  // a snapshot: another thread may remove a set meanwhile
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (entry.communicator && entry.communicator != global_) others.push_back(entry.communicator);
    }
  }
  for (const auto& communicator : others) communicator->shut_down();
}

// ---- Changes

std::int32_t ProcessSets::add(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  check_members(ranks, topology_.size);
  const MutexLock changing(changes_mutex_);
  refuse_duplicate(ranks);
  std::vector<std::int64_t> change{kAdd};
  change.insert(change.end(), ranks.begin(), ranks.end());
  agree(change);
  const ProcessSet set{.id = lowest_free_id(), .ranks = std::move(ranks)};
  ++sets_so_far_;
  std::shared_ptr<Communicator> communicator;
  Status own;
  try {
    communicator = make_communicator(set);
  } catch (...) {
    own = current_exception_status();  // the others wait for the outcome in any case
  }
  const auto outcomes = ask_all({own.ok() ? 1 : 0});
  if (!own.ok()) throw Error(own);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank] == std::vector<std::int64_t>{1}) continue;
    throw Aborted("the process set was not added: " + topology_.describe(static_cast<int>(rank)) +
                  " could not reach its other ranks");
  }
  const MutexLock lock(mutex_);
  entries_[set.id] = {std::make_shared<const ProcessSet>(set), std::move(communicator)};
  return set.id;
}

void ProcessSets::remove(std::int32_t id) {
  if (id == kGlobalProcessSet) throw InvalidArgument("the process set of all ranks cannot be removed");
  const MutexLock changing(changes_mutex_);
  const Entry entry = find(id);
  if (entry.communicator && entry.communicator->any_in_flight()) {
    throw InvalidArgument("operations are under way in process set " + std::to_string(id) + ": wait for them first");
  }
  agree({kRemove, id});
  {
    const MutexLock lock(mutex_);
    entries_.erase(id);
  }
  if (entry.communicator) entry.communicator->shut_down();
}

std::shared_ptr<Communicator> ProcessSets::make_communicator(const ProcessSet& set) {
  if (!set.rank_of(topology_.rank)) return nullptr;
  Store store = store_.with_prefix("process_set/" + std::to_string(sets_so_far_) + "/");
  return std::make_shared<Communicator>(common_, set.id, make_subset(topology_, set.ranks), store, global_.get());
}

std::vector<std::vector<std::int64_t>> ProcessSets::ask_all(const std::vector<std::int64_t>& own) {
  std::vector<std::int64_t> said{static_cast<std::int64_t>(own.size())};
  said.insert(said.end(), own.begin(), own.end());
  const std::int64_t shape[] = {static_cast<std::int64_t>(said.size())};
  const TensorView input{.data = said.data(), .dtype = DType::int64, .shape = shape};
  const CallerReference operation =
      global_->run({.collective = Collective::allgather, .name = kChangeName, .inputs = {&input, 1}}, Duration::max());
  if (!operation->completion.status().ok()) throw Error(operation->completion.status());
  const OwnedTensor& all = operation->memory.outputs.front();
  std::vector<std::int64_t> values(static_cast<std::size_t>(all.shape[0]));
  std::memcpy(values.data(), all.memory.get(), values.size() * sizeof(std::int64_t));
  std::vector<std::vector<std::int64_t>> answers;
  for (auto rest = std::span(std::as_const(values)); !rest.empty();) {
    const auto length = static_cast<std::size_t>(rest.front());
    rest = rest.subspan(1);
    if (length > rest.size()) throw Internal("a rank's message about process sets is malformed");
    answers.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
    rest = rest.subspan(length);
  }
  if (answers.size() != static_cast<std::size_t>(topology_.size)) {
    throw Mismatch("process sets cannot be changed while a rank has joined");
  }
  return answers;
}

void ProcessSets::agree(const std::vector<std::int64_t>& own) {
  const auto answers = ask_all(own);
  for (std::size_t rank = 1; rank < answers.size(); ++rank) {
    if (answers[rank] == answers[0]) continue;
    throw Mismatch("all ranks must change process sets alike, but " + topology_.describe(0) + " asks to " +
                   change_text(answers[0]) + " and " + topology_.describe(static_cast<int>(rank)) + " to " +
                   change_text(answers[rank]));
  }
}

void ProcessSets::refuse_duplicate(const std::vector<int>& ranks) const {
  const MutexLock lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry.set->ranks == ranks) {
      throw InvalidArgument("process set " + std::to_string(id) + " has these ranks already");
    }
  }
}

std::int32_t ProcessSets::lowest_free_id() const {
  const MutexLock lock(mutex_);
  std::int32_t id = kGlobalProcessSet;
  while (entries_.contains(id)) ++id;
  return id;
}

}  // namespace hvd
