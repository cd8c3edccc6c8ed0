#include "core/bootstrap/exchange_identities.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "core/base/error.h"
#include "core/bootstrap/ancestry.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

constexpr const char* kListKey = "identities";
constexpr std::size_t kMaxListed = 16;
constexpr std::size_t kSmallestString = 4;
constexpr std::size_t kSmallestIdentity = 5 * kSmallestString;

std::string identity_key(int rank) { return "identity/" + std::to_string(rank); }
// A counter beside the value: reading it does not wait.
std::string arrival_key(int rank) { return "arrived/" + std::to_string(rank); }

std::string as_text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

void put_identity(ByteWriter& writer, const RankIdentity& identity) {
  writer.put_string(identity.host_key);
  writer.put_string(identity.hostname);
  writer.put(static_cast<std::int32_t>(identity.pid));
  writer.put(static_cast<std::uint32_t>(identity.settings.size()));
  for (const std::string& setting : identity.settings) writer.put_string(setting);
  writer.put(static_cast<std::uint32_t>(identity.cpus.size()));
  for (const std::uint64_t word : identity.cpus) writer.put(word);
}

RankIdentity get_identity(ByteReader& reader) {
  RankIdentity identity;
  identity.host_key = reader.get_string();
  identity.hostname = reader.get_string();
  identity.pid = reader.get<std::int32_t>();
  const auto settings = reader.get_count(kSmallestString);
  for (std::uint32_t i = 0; i < settings; ++i) identity.settings.push_back(reader.get_string());
  const auto cpu_words = reader.get_count(sizeof(std::uint64_t));
  for (std::uint32_t i = 0; i < cpu_words; ++i) identity.cpus.push_back(reader.get<std::uint64_t>());
  return identity;
}

RankIdentity identity_in(const std::string& value) {
  ByteReader reader(std::as_bytes(std::span(value)));
  RankIdentity identity = get_identity(reader);
  reader.expect_end();
  return identity;
}

std::vector<RankIdentity> collect(Store& store, int size, Deadline deadline) {
  std::vector<RankIdentity> identities;
  ByteWriter list;
  list.put(static_cast<std::uint32_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    identities.push_back(identity_in(store.get(identity_key(rank), deadline)));
    put_identity(list, identities.back());
  }
  store.set(kListKey, as_text(list.take()));
  return identities;
}

std::vector<RankIdentity> receive_list(Store& store, int size, Deadline deadline) {
  const std::string value = store.get(kListKey, deadline);
  ByteReader reader(std::as_bytes(std::span(value)));
  const auto count = reader.get_count(kSmallestIdentity);
  if (count != static_cast<std::uint32_t>(size)) {
    throw Mismatch("this rank was started in a job of " + std::to_string(size) + ", rank 0 in a job of " +
                   std::to_string(count));
  }
  std::vector<RankIdentity> identities;
  for (int rank = 0; rank < size; ++rank) identities.push_back(get_identity(reader));
  reader.expect_end();
  return identities;
}

std::string as_seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, duration < 10s ? "%.1f s" : "%.0f s", seconds(duration));
  return text;
}

// Runs after the deadline: one request per rank, none of which waits.
Timeout missing_ranks(Store& store, int size, Duration waited) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (store.add(arrival_key(rank), 0) == 0) missing.push_back(rank);
  }
  const std::string limit = " within " + as_seconds(waited);
  if (missing.empty()) return Timeout("not all of " + std::to_string(size) + " ranks have met" + limit);
  return Timeout((missing.size() == 1 ? "rank " : "ranks ") + list_ranks(missing) + " did not start" + limit);
}

// Children inherit the variables that make a process a rank.
InvalidArgument second_arrival(int rank, const RankIdentity& first, const RankIdentity& own) {
  const std::string name =
      "rank " + std::to_string(rank) + " (pid " + std::to_string(first.pid) + " on " + first.hostname + ")";
  const bool is_child = first.host_key == own.host_key && is_started_by(first.pid);
  return InvalidArgument(
      "this process (pid " + std::to_string(own.pid) + ") is " +
      (is_child ? "a child of " + name + ", and" : "not " + name + ", which has joined the job, and") +
      " cannot join as the same rank: " + kAdviceForChildren);
}

// If several processes come as the same rank, the first one is that rank.
void arrive(Store& store, int rank, const RankIdentity& own, Deadline deadline) {
  const bool is_first = store.add(arrival_key(rank), 1) == 1;
  if (!is_first) throw second_arrival(rank, identity_in(store.get(identity_key(rank), deadline)), own);
  ByteWriter writer;
  put_identity(writer, own);
  store.set(identity_key(rank), as_text(writer.take()));
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text;
  const std::size_t listed = std::min(ranks.size(), kMaxListed);
  for (std::size_t i = 0; i < listed; ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (listed < ranks.size()) text += " and " + std::to_string(ranks.size() - listed) + " more";
  return text;
}

std::vector<RankIdentity> exchange_identities(Store& store, int rank, int size, const RankIdentity& own,
                                              Deadline deadline) {
  const TimePoint start = Clock::now();
  arrive(store, rank, own, deadline);
  try {
    return rank == 0 ? collect(store, size, deadline) : receive_list(store, size, deadline);
  } catch (const Timeout&) {
    throw missing_ranks(store, size, Clock::now() - start);
  }
}

}  // namespace hvd
