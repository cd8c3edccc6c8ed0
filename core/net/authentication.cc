#include "core/net/authentication.h"

#include <sodium.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <map>
#include <thread>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

static_assert(crypto_auth_KEYBYTES == JobKey::kBytes && crypto_auth_BYTES == kHashBytes);

constexpr std::uint32_t kMagic = 0x64766802;
constexpr std::uint32_t kVersion = 3;
constexpr std::string_view kClientSays = "hvd handshake: client";
constexpr std::string_view kServerSays = "hvd handshake: server";

// The messages as they are on the wire: little endian, and without padding.
struct ChallengeFields {
  std::uint32_t magic, version;
  Nonce server_nonce;
};
struct ProofFields {
  std::uint32_t magic, purpose;
  std::int32_t rank;
  Nonce client_nonce;
  Reply hash;
};
static_assert(sizeof(ChallengeFields) == kChallengeBytes && sizeof(ProofFields) == kProofBytes);

// The input of a hash. Its fields have fixed sizes, so that no two statements have the same bytes.
Bytes statement(std::string_view direction, const Nonce& server, const Nonce& client, std::uint32_t purpose,
                std::int32_t rank) {
  ByteWriter writer;
  writer.put_bytes(std::as_bytes(std::span(direction)));
  writer.put_bytes(server);
  writer.put_bytes(client);
  writer.put(purpose);
  writer.put(rank);
  return writer.take();
}

const unsigned char* data_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Reply keyed_hash(const Bytes& statement, const JobKey& key) {
  Reply hash;
  crypto_auth(reinterpret_cast<unsigned char*>(hash.data()), data_of(statement), statement.size(), key.bytes().data());
  return hash;
}

// In constant time.
bool hash_is_right(const Reply& hash, const Bytes& statement, const JobKey& key) {
  return crypto_auth_verify(data_of(hash), data_of(statement), statement.size(), key.bytes().data()) == 0;
}

void initialize_sodium() {
  if (sodium_init() < 0) throw Internal("libsodium cannot be initialized");
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  throw InvalidArgument("the job's key has a character that is not a hexadecimal digit");
}

// The server's next message, which arrives as a whole, or nearly so.
void receive(Socket& socket, std::span<std::byte> message, const std::string& where, Deadline deadline,
             AlarmClock& alarm) {
  while (!wait_ready(socket.fd(), false, std::min(deadline, alarm.next())) && Clock::now() < deadline) alarm.poll();
  socket.receive_all(message, deadline, where);
}

void prove(Socket& socket, ClientHandshake handshake, const Challenge& challenge, const std::string& where,
           Deadline deadline, AlarmClock& alarm) {
  try {
    const Proof proof = handshake.prove(challenge);
    socket.send_all(proof, deadline, where);
    Reply reply;
    receive(socket, reply, where, deadline, alarm);
    handshake.check(reply);
  } catch (const PeerLost& error) {
    // A server does not tell a client why it rejects it.
    throw PeerLost(
        "not accepted by " + where +
        " (it is another job's, or has no room for one more connection; its own output says which): " + error.what());
  }
}

constexpr Duration kRetryDelay = std::chrono::milliseconds(20);  // before another try to connect
constexpr int kMaxRefusals = 4;                                  // of a proof; 0.6 s in all
constexpr std::size_t kMaxPending = 1024;
// The share of the process's descriptors: what else it opens, a data file for instance, must not fail because of
// connections that have not authenticated.
constexpr std::size_t kPart = 4;
// New connections accepted and answers read per call: handshakes progress even during a flood of new connections.
constexpr std::size_t kBatch = 64;

std::size_t max_pending() {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return kMaxPending;
  return std::clamp<std::size_t>(descriptors.rlim_cur / kPart, 1, kMaxPending);
}

// A connection that has not authenticated yet.
struct PendingConnection {
  PendingConnection(Socket connection, std::size_t its_listener, const JobKey& key, Purpose purpose,
                    Deadline last_moment)
      : socket(std::move(connection)),
        listener(its_listener),
        handshake(key, purpose, fresh_nonce()),
        deadline(last_moment) {}

  Socket socket;
  std::size_t listener;
  ServerHandshake handshake;
  Proof proof;
  std::size_t received = 0;
  Deadline deadline;
};

}  // namespace

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Internal("the kernel gives no random bytes (getrandom)");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

JobKey JobKey::random() {
  JobKey key;
  fill_random(std::as_writable_bytes(std::span(key.bytes_)));
  return key;
}

JobKey JobKey::from_hex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) {
    throw InvalidArgument("the job's key has " + std::to_string(hex.size()) + " characters, expected " +
                          std::to_string(2 * kBytes) + " hexadecimal digits");
  }
  JobKey key;
  for (std::size_t i = 0; i < kBytes; ++i) {
    key.bytes_[i] = static_cast<unsigned char>(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
  }
  return key;
}

std::uint64_t job_number(const JobKey& key) {
  static constexpr std::array<unsigned char, 10> kStatement = {'j', 'o', 'b', ' ', 'n', 'u', 'm', 'b', 'e', 'r'};
  std::array<unsigned char, kHashBytes> hash{};
  crypto_auth(hash.data(), kStatement.data(), kStatement.size(), key.bytes().data());
  std::uint64_t number = 0;
  std::memcpy(&number, hash.data(), sizeof number);
  return number;
}

std::string JobKey::to_hex() const { return hvd::to_hex(std::as_bytes(std::span(bytes_))); }

const std::array<unsigned char, JobKey::kBytes>& JobKey::bytes() const { return bytes_; }

const char* purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::store: return "store";
    case Purpose::control: return "control";
    case Purpose::data: return "data";
    case Purpose::shared_memory: return "shared memory";
    case Purpose::messages: return "messages";
    case Purpose::parameters: return "parameters";
    case Purpose::agents: return "agent";
  }
  return "unknown";
}

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

ClientHandshake::ClientHandshake(const JobKey& key, Purpose purpose, int rank, const Nonce& local_nonce)
    : key_(key), purpose_(purpose), rank_(rank), local_nonce_(local_nonce) {
  initialize_sodium();
}

Proof ClientHandshake::prove(const Challenge& challenge) {
  const auto fields = std::bit_cast<ChallengeFields>(challenge);
  if (fields.magic != kMagic) throw PeerLost("what answers there is not hvd");
  if (fields.version != kVersion) throw PeerLost("another version of hvd answers there");
  server_nonce_ = fields.server_nonce;
  const auto purpose = static_cast<std::uint32_t>(purpose_);
  return std::bit_cast<Proof>(
      ProofFields{.magic = kMagic,
                  .purpose = purpose,
                  .rank = rank_,
                  .client_nonce = local_nonce_,
                  .hash = keyed_hash(statement(kClientSays, server_nonce_, local_nonce_, purpose, rank_), key_)});
}

void ClientHandshake::check(const Reply& reply) const {
  const auto purpose = static_cast<std::uint32_t>(purpose_);
  if (!hash_is_right(reply, statement(kServerSays, server_nonce_, local_nonce_, purpose, rank_), key_)) {
    throw PeerLost("what answers there does not know the job's key");
  }
}

ServerHandshake::ServerHandshake(const JobKey& key, Purpose purpose, const Nonce& local_nonce)
    : key_(key), purpose_(purpose), local_nonce_(local_nonce) {
  initialize_sodium();
  challenge_ =
      std::bit_cast<Challenge>(ChallengeFields{.magic = kMagic, .version = kVersion, .server_nonce = local_nonce_});
}

const Challenge& ServerHandshake::challenge() const { return challenge_; }

ServerHandshake::Verification ServerHandshake::verify(const Proof& proof) const {
  const auto [magic, purpose, rank, client_nonce, hash] = std::bit_cast<ProofFields>(proof);
  if (magic != kMagic) return {.rejection = "it does not speak hvd's protocol"};
  if (!hash_is_right(hash, statement(kClientSays, local_nonce_, client_nonce, purpose, rank), key_)) {
    return {.rejection = "it does not know the job's key"};
  }
  if (purpose != static_cast<std::uint32_t>(purpose_)) return {.rejection = "it wants another port of this job"};
  return {.rank = rank, .reply = keyed_hash(statement(kServerSays, local_nonce_, client_nonce, purpose, rank), key_)};
}

Socket connect_authenticated(const Address& address, const JobKey& key, Purpose purpose, int this_rank,
                             Deadline deadline, const Alarm& alarm) {
  const std::string where = std::string("the ") + purpose_name(purpose) + " port at " + address.to_string();
  AlarmClock alarm_clock(alarm);
  int refusals = 0;
  for (Deadline connected = deadline;;) {
    const TimePoint began = Clock::now();
    Socket socket = Socket::connect(address, connected, alarm);
    Challenge challenge;
    try {
      receive(socket, challenge, where, deadline, alarm_clock);
    } catch (const PeerLost&) {
      if (Clock::now() + kRetryDelay >= deadline) throw;
      alarm_clock.poll();
      std::this_thread::sleep_for(kRetryDelay);
      continue;
    }
    try {
      prove(socket, ClientHandshake(key, purpose, this_rank, fresh_nonce()), challenge, where, deadline, alarm_clock);
      return socket;
    } catch (const PeerLost&) {
      if (Clock::now() - began < kProofTime) {
        // An acceptor to which too many come at once drops the oldest, without a word; it soon has room again.
        const Duration pause = kRetryDelay * (1 << ++refusals);
        if (refusals > kMaxRefusals || Clock::now() + pause >= deadline) throw;
        alarm_clock.poll();
        std::this_thread::sleep_for(pause);
        continue;
      }
    }
    connected = std::min(deadline, deadline_after(kProofTime));
  }
}

struct Acceptor::State {
  State(std::vector<Listener> l, const JobKey& k, Purpose p, const Log& g)
      : listeners(std::move(l)), key(k), purpose(p), log(g), epoll(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll) throw Internal("epoll_create: " + error_text(errno));
    for (std::size_t i = 0; i < listeners.size(); ++i) watch(listeners[i].fd(), i);
  }

  void watch(int fd, std::uint64_t id) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw Internal("epoll_ctl: " + error_text(errno));
  }

  // In the order of arrival, which is also the order of deadlines.
  using PendingConnections = std::map<std::uint64_t, PendingConnection>;

  void drop(PendingConnections::iterator pending, const std::string& rejection) {
    if (!warned) {
      const std::string from = pending->second.socket.peer_host();
      log.warning("dropped a connection to the " + std::string(purpose_name(purpose)) + " port " +
                  listeners[pending->second.listener].address().to_string() + (from.empty() ? "" : " from " + from) +
                  ": " + rejection + "; further ones are dropped without a word");
      warned = true;
    }
    pending_connections.erase(pending);
  }

  void drop_oldest(const std::string& rejection) { drop(pending_connections.begin(), rejection); }

  void drop_late() {
    const TimePoint now = Clock::now();
    while (!pending_connections.empty() && pending_connections.begin()->second.deadline <= now) {
      drop_oldest("it did not prove itself in time");
    }
  }

  void send_challenge(Socket socket, std::size_t listener) {
    if (pending_connections.size() >= max_pending())
      drop_oldest("too many connections that have not proved themselves");
    const std::uint64_t id = next_id++;
    const auto added =
        pending_connections.try_emplace(id, std::move(socket), listener, key, purpose, deadline_after(kProofTime))
            .first;
    PendingConnection& pending = added->second;
    // A fresh connection's buffer has room for these few bytes.
    const auto sent = pending.socket.send_some(pending.handshake.challenge());
    if (sent != kChallengeBytes) return drop(added, "it closed at once");
    watch(pending.socket.fd(), id);
  }

  void take_new_connections(std::size_t listener) {
    for (std::size_t i = 0; i < kBatch; ++i) {
      std::optional<Socket> socket;
      try {
        socket = listeners[listener].accept_now();
      } catch (const Internal& error) {
        // Most likely out of descriptors: pending connections must not be what uses them up.
        if (pending_connections.empty()) throw;
        drop_oldest(error.what());
        continue;
      }
      if (!socket) return;
      send_challenge(std::move(*socket), listener);
    }
  }

  std::optional<Peer> receive_proof(std::uint64_t id) {
    const auto found = pending_connections.find(id);
    if (found == pending_connections.end()) return std::nullopt;
    PendingConnection& pending = found->second;
    const auto count = pending.socket.receive_some(std::span(pending.proof).subspan(pending.received));
    if (!count) {
      if (pending.received == 0) {  // a process that was ended while it connected, or a health check
        pending_connections.erase(found);
      } else {
        drop(found, "it closed before it proved itself");
      }
      return std::nullopt;
    }
    pending.received += *count;
    if (pending.received < kProofBytes) return std::nullopt;

    const auto verification = pending.handshake.verify(pending.proof);
    if (verification.rejection != nullptr) {
      drop(found, verification.rejection);
      return std::nullopt;
    }
    const auto sent = pending.socket.send_some(verification.reply);
    if (sent != kReplyBytes) {
      drop(found, "it closed before it heard the answer");
      return std::nullopt;
    }
    epoll_ctl(epoll.get(), EPOLL_CTL_DEL, pending.socket.fd(), nullptr);
    Peer peer{.socket = std::move(pending.socket), .rank = verification.rank, .listener = pending.listener};
    pending_connections.erase(found);
    return peer;
  }

  std::optional<Peer> accept_now() {
    std::array<epoll_event, kBatch> events;
    const int count = epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
    const auto id_of = [&](int i) { return events[static_cast<std::size_t>(i)].data.u64; };
    for (int i = 0; i < count; ++i) {  // proofs first: new connections may evict those that have sent one
      if (id_of(i) < listeners.size()) continue;
      if (auto peer = receive_proof(id_of(i))) return peer;  // the remaining events will be reported again
    }
    for (int i = 0; i < count; ++i) {
      if (id_of(i) < listeners.size()) take_new_connections(id_of(i));
    }
    drop_late();  // last: if this process was stopped, a proof that came in time has been read above
    return std::nullopt;
  }

  std::vector<Listener> listeners;  // their numbers are their ids in the epoll; those of connections come after them
  const JobKey key;
  const Purpose purpose;
  const Log& log;
  FileDescriptor epoll;
  PendingConnections pending_connections;
  std::uint64_t next_id = listeners.size();
  bool warned = false;
};

namespace {

std::vector<Listener> only(Listener listener) {
  std::vector<Listener> listeners;
  listeners.push_back(std::move(listener));
  return listeners;
}

}  // namespace

Acceptor::Acceptor(Listener listener, const JobKey& key, Purpose purpose, const Log& log)
    : Acceptor(only(std::move(listener)), key, purpose, log) {}
Acceptor::Acceptor(std::vector<Listener> listeners, const JobKey& key, Purpose purpose, const Log& log)
    : state_(std::make_unique<State>(std::move(listeners), key, purpose, log)) {}
Acceptor::~Acceptor() = default;
Acceptor::Acceptor(Acceptor&&) noexcept = default;

const Address& Acceptor::address(std::size_t listener) const { return state_->listeners.at(listener).address(); }

int Acceptor::fd() const { return state_->epoll.get(); }

std::optional<Peer> Acceptor::accept_now() { return state_->accept_now(); }

Deadline Acceptor::next_deadline() const {
  return state_->pending_connections.empty() ? Deadline::max() : state_->pending_connections.begin()->second.deadline;
}

Peer Acceptor::accept(Deadline deadline, std::string_view what, const Alarm& alarm) {
  AlarmClock alarm_clock(alarm);
  for (;;) {
    if (auto peer = accept_now()) return std::move(*peer);
    wait_ready(state_->epoll.get(), false, std::min({deadline, next_deadline(), alarm_clock.next()}));
    if (Clock::now() >= deadline) throw Timeout("waiting for " + std::string(what));
    alarm_clock.poll();
  }
}

}  // namespace hvd
