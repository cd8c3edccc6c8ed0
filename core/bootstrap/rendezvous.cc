#include "core/bootstrap/rendezvous.h"

#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

constexpr std::size_t kWordBytes = 1024;
constexpr std::size_t kMostAddresses = 16;
constexpr std::size_t kLongestFailure = 400;
constexpr const char* kLoopback = "127.0.0.1";

std::vector<std::string> addresses_or_loopback() {
  std::vector<std::string> result;
  for (const LocalAddress& own : local_addresses()) result.push_back(own.address);
  if (result.empty()) result.emplace_back(kLoopback);
  return result;
}

// Rank 0's broadcast: where its store is, or why it has none.
struct Word {
  std::string failure;
  JobKey key;
  std::uint16_t port = 0;
  std::vector<std::string> hosts;
};

Bytes encode(const Word& word) {
  ByteWriter writer;
  writer.put_string(std::string_view(word.failure).substr(0, kLongestFailure));
  writer.put_string(word.key.to_hex());
  writer.put(word.port);
  writer.put(static_cast<std::uint32_t>(word.hosts.size()));
  for (const std::string& host : word.hosts) writer.put_string(host);
  Bytes bytes = writer.take();
  bytes.resize(kWordBytes);
  return bytes;
}

Word parse(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const std::string failure = reader.get_string();
  if (!failure.empty()) throw Aborted("rank 0 cannot host the job's store: " + failure);
  Word word{
      .failure = {}, .key = JobKey::from_hex(reader.get_string()), .port = reader.get<std::uint16_t>(), .hosts = {}};
  const auto count = reader.get_count(1);
  for (std::uint32_t i = 0; i < count && i < kMostAddresses; ++i) word.hosts.push_back(reader.get_string());
  return word;
}

// Tries one after the other: an address may belong to a network that this host is not on.
Store connect_to_any(const Word& word, int rank, Deadline deadline) {
  std::string tried;
  for (std::size_t i = 0; i < word.hosts.size(); ++i) {
    const Address address{.host = word.hosts[i], .port = word.port};
    const auto share = (deadline - Clock::now()) / static_cast<int>(word.hosts.size() - i);
    try {
      return Store::connect(address, word.key, rank, deadline_after(share));
    } catch (const Error& error) {
      tried += std::string(tried.empty() ? "" : "; ") + error.what();
    }
  }
  throw Timeout("cannot reach the job's store, which rank 0 hosts: " + tried);
}

}  // namespace

JobStore meet(const Rendezvous& rendezvous, const Log& log, Deadline deadline) {
  Word word;
  std::unique_ptr<StoreServerThread> server;
  Bytes bytes(kWordBytes);
  if (rendezvous.rank == 0) {
    word.key = JobKey::random();
    try {
      server = std::make_unique<StoreServerThread>(word.key, rendezvous.one_host() ? kLoopback : "0.0.0.0", log);
      word.port = server->address().port;
      word.hosts = rendezvous.one_host() ? std::vector<std::string>{kLoopback} : addresses_or_loopback();
    } catch (const std::exception& error) {
      word.failure = error.what();  // the others wait for the broadcast in any case
    }
    bytes = encode(word);
  }
  rendezvous.broadcast(bytes);
  word = parse(bytes);
  Store store = connect_to_any(word, rendezvous.rank, deadline);
  return {.key = word.key, .server = std::move(server), .store = std::move(store)};
}

JobStore rendezvous_at(const Address& address, const JobKey& key, int rank, const Log& log, Deadline deadline) {
  std::unique_ptr<StoreServerThread> server;
  if (rank == 0) server = std::make_unique<StoreServerThread>(key, "0.0.0.0", log, address.port);
  return {.key = key, .server = std::move(server), .store = Store::connect(address, key, rank, deadline)};
}

}  // namespace hvd
