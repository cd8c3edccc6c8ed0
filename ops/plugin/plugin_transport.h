// A transport over a plugin's messages, for hvd's own algorithms, so that a network which only the plugin supports also
// serves the two-level forms. See ops/transport/transport.h for the contract.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "core/base/abort_flag.h"
#include "core/base/futex.h"
#include "core/bootstrap/topology.h"
#include "ops/plugin/plugin_communicator.h"
#include "ops/transport/transport.h"

namespace hvd {

class PluginTransport final : public Transport {
 public:
  // References outlive this object.
  PluginTransport(std::shared_ptr<PluginCommunicator> group, const Topology& topology, const WaitPolicy& policy,
                  const AbortFlag& abort);
  ~PluginTransport() override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override;
  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override;
  void wait(RequestId request, Deadline deadline) override;
  bool wait_until(RequestId request, TimePoint until) override;

 private:
  struct Posted {
    void* operation = nullptr;
    int peer = 0;
    Tag tag;
    bool sent = false;
  };

  RequestId keep(const Posted& posted);
  // Returns true once the request's operation is complete; the request is then released.
  bool test(RequestId request);
  std::string describe(const Posted& posted) const;

  const std::shared_ptr<PluginCommunicator> group_;
  const Topology& topology_;
  const WaitPolicy policy_;
  const AbortFlag& abort_;
  std::unordered_map<RequestId, Posted> posted_;
  RequestId last_ = 0;
};

}  // namespace hvd
