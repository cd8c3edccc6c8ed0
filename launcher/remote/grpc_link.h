// Makes the links between agents and their parents, over gRPC and TLS: the parent listens, the agent connects. Both
// ends present the job's certificate, and accept no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/net/endpoint.h"
#include "core/net/socket.h"
#include "launcher/processes/event_loop.h"
#include "launcher/remote/link.h"

namespace hvd::launcher {

// With which hvdrun and the agents of a job authenticate each other, in PEM format. Only they have its key.
struct Certificate {
  std::string certificate;
  std::string key;
};

// The name in every job's certificate: possession of the key matters, not the host.
inline constexpr const char* kCertificateName = "hvd-job";

// Self-signed, P-256, valid for a hundred years. Throws Internal.
Certificate make_certificate();

inline constexpr std::size_t kMaxMessage = std::size_t{20} << 20;  // a value of the store is 16 MB at most

// The server of a parent: accepts the connections of agents and passes them to the event loop's thread as links. A peer
// without the job's certificate gets no link, and is dropped silently.
class AgentListener {
 public:
  using Attached = std::function<void(std::unique_ptr<LinkToAgent> agent)>;

  // `bind_host` is numeric. Throws Error. `attached` is called by the loop; it may destroy links, not the listener.
  AgentListener(EventLoop& loop, const Certificate& certificate, const std::string& bind_host, Attached attached);
  // The remaining links are lost. Blocks, a second at most, until links destroyed before are closed at their agents.
  ~AgentListener();

  // Chosen by the kernel.
  std::uint16_t port() const;

 private:
  class Service;

  std::unique_ptr<Service> service_;
  std::uint16_t port_ = 0;
};

// Finds an address at which an agent can reach its parent.
struct ParentAddress {
  Address parent;
  std::string local_address;  // numeric: this host's address on that network
};

// Tries the addresses in turn, one second each, until one answers. Throws Timeout with the error of each address.
ParentAddress find_parent(const std::vector<Address>& addresses, Deadline deadline);
// Connects an agent to the parent that has started it: blocks until both ends have authenticated. Tries once, since a
// parent listens before it starts agents. Throws PeerLost or Timeout, with the address and the cause.
std::unique_ptr<LinkToParent> connect_to_parent(EventLoop& loop, const Certificate& certificate, const Address& parent,
                                                Deadline deadline);

}  // namespace hvd::launcher
