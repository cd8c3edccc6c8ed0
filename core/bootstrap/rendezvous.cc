#include "core/bootstrap/rendezvous.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"
#include "core/bootstrap/launch_environment.h"
#include "core/net/byte_codec.h"
#include "core/net/endpoint.h"

namespace hvd {

namespace {

constexpr std::size_t kInfoBytes = 1024;
constexpr std::size_t kMaxFailure = 400;
constexpr const char* kLoopback = "127.0.0.1";

std::vector<std::string> addresses_or_loopback() {
  std::vector<std::string> result = addresses_of(local_addresses(), {}, "");
  if (result.empty()) result.emplace_back(kLoopback);
  return result;
}

// Rank 0's broadcast: where its store is, or why it has none.
struct RendezvousInfo {
  std::string failure;
  JobKey key;
  std::uint16_t port = 0;
  std::vector<std::string> hosts;
};

Bytes encode(const RendezvousInfo& info) {
  ByteWriter writer;
  writer.put_string(std::string_view(info.failure).substr(0, kMaxFailure));
  writer.put_string(info.key.to_hex());
  writer.put(info.port);
  writer.put(info.hosts);
  Bytes bytes = writer.take();
  bytes.resize(kInfoBytes);
  return bytes;
}

RendezvousInfo parse(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const std::string failure = reader.get_string();
  if (!failure.empty()) throw Aborted("rank 0 cannot host the job's store: " + failure);
  RendezvousInfo info{
      .failure = {}, .key = JobKey::from_hex(reader.get_string()), .port = reader.get<std::uint16_t>(), .hosts = {}};
  const auto count = reader.get_count(1);
  for (std::uint32_t i = 0; i < count && i < kMaxAddresses; ++i) info.hosts.push_back(reader.get_string());
  return info;
}

// Tries one after the other: an address may belong to a network that this host is not on.
Store connect_to_any(const RendezvousInfo& info, int rank, Deadline deadline) {
  std::string tried;
  for (std::size_t i = 0; i < info.hosts.size(); ++i) {
    const Address address{.host = info.hosts[i], .port = info.port};
    const auto share = (deadline - Clock::now()) / static_cast<int>(info.hosts.size() - i);
    try {
      return Store::connect(address, info.key, rank, deadline_after(share));
    } catch (const Error& error) {
      tried += std::string(tried.empty() ? "" : "; ") + error.what();
    }
  }
  throw Timeout("cannot reach the job's store, which rank 0 hosts: " + tried);
}

std::string system_hostname() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "unknown";
}

// Empty if /proc is not mounted; then the host name must suffice.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string network_namespace() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

constexpr const char* kListKey = "identities";
constexpr const char* kMissingKey = "missing";  // rank 0's report of the ranks that did not come
// How long other ranks wait for that report, after their own deadlines.
constexpr Duration kReportTime = std::chrono::seconds(3);

std::string identity_key(int rank) { return "identity/" + std::to_string(rank); }
// A counter beside the value: reading it does not wait.
std::string arrival_key(int rank) { return "arrived/" + std::to_string(rank); }

std::vector<RankIdentity> collect(const Store& store, int size, Deadline deadline) {
  std::vector<RankIdentity> identities;
  for (int rank = 0; rank < size; ++rank) {
    identities.push_back(decode_value<RankIdentity>(store.get(identity_key(rank), deadline)));
  }
  store.set(kListKey, encode_value(identities));
  return identities;
}

std::vector<RankIdentity> receive_list(const Store& store, int size, Deadline deadline) {
  auto identities = decode_value<std::vector<RankIdentity>>(store.get(kListKey, deadline));
  if (identities.size() == static_cast<std::size_t>(size)) return identities;
  throw Mismatch("this rank was started in a job of " + std::to_string(size) + ", rank 0 in a job of " +
                 std::to_string(identities.size()));
}

// The ranks that did not come, after the deadline; if all have, `otherwise`. One request per rank, none of which waits.
std::string missing_ranks(const Store& store, int size, Duration waited, const std::string& otherwise) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (store.add(arrival_key(rank), 0) == 0) missing.push_back(rank);
  }
  const std::string limit = " within " + age_text(waited);
  if (missing.empty()) return otherwise + limit;
  return (missing.size() == 1 ? "rank " : "ranks ") + ranges_text(missing) + " did not start" + limit;
}

// What rank 0 reports, so that the store need not answer size * size requests. Rank 0 may have come later than this
// rank, and still wait for others.
std::string reported_missing(const Store& store, int size, Duration waited) {
  if (store.add(arrival_key(0), 0) == 0) return "rank 0 did not start within " + age_text(waited);
  try {
    return store.get(kMissingKey, deadline_after(kReportTime));
  } catch (const Timeout&) {
    return missing_ranks(store, size, waited, "rank 0 has not published the ranks' identities");
  }
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
void arrive(const Store& store, int rank, const RankIdentity& own, Deadline deadline) {
  const bool is_first = store.add(arrival_key(rank), 1) == 1;
  if (!is_first) {
    throw second_arrival(rank, decode_value<RankIdentity>(store.get(identity_key(rank), deadline)), own);
  }
  store.set(identity_key(rank), encode_value(own));
}

SharedMemory hand_out(const Topology& topology, const Store& store, const JobKey& job_key, const std::string& store_key,
                      const SharedBytes& bytes, const Log& log, Deadline deadline) {
  SharedMemory memory = SharedMemory::create(bytes.all, "hvd-" + store_key, bytes.mapped);
  if (topology.local_size == 1) return memory;

  Acceptor acceptor(Listener::unix_abstract(), job_key, Purpose::shared_memory, log);
  store.set(store_key, acceptor.address().to_string());
  std::vector<int> missing = topology.hosts[static_cast<std::size_t>(topology.host())];
  std::erase(missing, topology.rank);
  while (!missing.empty()) {
    std::vector<int> job_ranks;
    for (const int rank : missing) job_ranks.push_back(topology.job_rank_of(rank));
    Peer peer = acceptor.accept(deadline,
                                (missing.size() == 1 ? "rank " : "ranks ") + ranges_text(job_ranks) +
                                    " of this host to map the shared memory '" + store_key + "'",
                                store.alarm());
    if (std::erase(missing, peer.rank) == 0) {
      log.warning("rank " + std::to_string(peer.rank) + " asked for the shared memory '" + store_key +
                  "' out of turn; refused");
      continue;
    }
    peer.socket.send_descriptor(memory.fd(), deadline, topology.describe(peer.rank));
  }
  return memory;
}

}  // namespace

JobStore rendezvous_by_broadcast(const Rendezvous& rendezvous, const Log& log, Deadline deadline) {
  RendezvousInfo info;
  std::unique_ptr<StoreServerThread> server;
  Bytes bytes(kInfoBytes);
  if (rendezvous.rank == 0) {
    info.key = JobKey::random();
    try {
      server = std::make_unique<StoreServerThread>(info.key, rendezvous.one_host() ? kLoopback : "0.0.0.0", log);
      info.port = server->address().port;
      info.hosts = rendezvous.one_host() ? std::vector<std::string>{kLoopback} : addresses_or_loopback();
    } catch (const std::exception& error) {
      info.failure = error.what();  // the others wait for the broadcast in any case
    }
    bytes = encode(info);
  }
  rendezvous.broadcast(bytes);
  info = parse(bytes);
  Store store = connect_to_any(info, rendezvous.rank, deadline);
  return {.key = info.key, .server = std::move(server), .store = std::move(store)};
}

JobStore rendezvous_at(const Address& address, const JobKey& key, int rank, const Log& log, Deadline deadline) {
  std::unique_ptr<StoreServerThread> server;
  if (rank == 0) server = std::make_unique<StoreServerThread>(key, "0.0.0.0", log, address.port);
  return {.key = key, .server = std::move(server), .store = Store::connect(address, key, rank, deadline)};
}

RankIdentity identify_this_process(const std::string& host_id, const std::string& hostname) {
  RankIdentity identity;
  identity.pid = static_cast<int>(getpid());
  identity.hostname = hostname.empty() ? system_hostname() : hostname;
  identity.machine = boot_id();
  identity.host_key = host_id.empty() ? identity.machine + "/" + network_namespace() + "/" + system_hostname() +
                                            "/uid:" + std::to_string(geteuid())
                                      : host_id;
  if (identity.machine.empty()) identity.machine = identity.host_key;
  identity.cpus = allowed_cpus();
  return identity;
}

std::vector<RankIdentity> exchange_identities(const Store& store, int rank, int size, const RankIdentity& own,
                                              Deadline deadline) {
  const TimePoint start = Clock::now();
  arrive(store, rank, own, deadline);
  try {
    return rank == 0 ? collect(store, size, deadline) : receive_list(store, size, deadline);
  } catch (const Timeout&) {
    const Duration waited = Clock::now() - start;
    if (rank != 0) throw Timeout(reported_missing(store, size, waited));
    const std::string report =
        missing_ranks(store, size, waited, "not all of " + std::to_string(size) + " ranks have met");
    store.set(kMissingKey, report);
    throw Timeout(report);
  }
}

std::string first_objection(const Store& store, const Topology& topology, const std::string& key,
                            const std::string& objection, Deadline deadline) {
  const std::string answer_key = key + "/all";
  if (topology.rank != 0) {
    store.set(key + "/" + std::to_string(topology.rank), objection);
    return store.get(answer_key, deadline);
  }
  std::string first = objection.empty() ? "" : topology.describe(0) + ": " + objection;
  for (int rank = 1; rank < topology.size; ++rank) {
    const std::string other = store.get(key + "/" + std::to_string(rank), deadline);
    if (first.empty() && !other.empty()) first = topology.describe(rank) + ": " + other;
  }
  store.set(answer_key, first);
  return first;
}

SharedMemory share_with_host(const Topology& topology, const Store& store, const JobKey& job_key,
                             const std::string& key, const SharedBytes& bytes, const Log& log, Deadline deadline) {
  const std::string store_key = "shared_memory/" + key + "/" + std::to_string(topology.host());
  if (topology.local_rank == 0) return hand_out(topology, store, job_key, store_key, bytes, log, deadline);

  const int owner = topology.hosts[static_cast<std::size_t>(topology.host())].front();
  const Address address = Address::parse(store.get(store_key, deadline));
  Socket socket =
      connect_authenticated(address, job_key, Purpose::shared_memory, topology.rank, deadline, store.alarm());
  return SharedMemory::map(socket.receive_descriptor(deadline, topology.describe(owner)), bytes.all, bytes.mapped);
}

}  // namespace hvd
