// The backend for process sets of all the ranks of one host: adapts host_allreduce() and the others (collectives.h) to
// the executor's interface.
#pragma once

#include <memory>

#include "core/bootstrap/topology.h"
#include "core/execution/backend.h"
#include "ops/algorithms/scratch.h"
#include "ops/host/host_context.h"
#include "ops/reduction/instruction_set.h"

namespace hvd {

class HostBackend final : public Backend {
 public:
  // `context` belongs to this rank's host.
  HostBackend(std::shared_ptr<HostContext> context, const Topology& topology,
              InstructionSet instruction_set = InstructionSet::automatic);

  const char* name() const override { return "shared-memory"; }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;
  bool can_be_asked(const ProcessSet& set) const override;
  void decline(const ProcessSet& set, std::uint32_t call_id) override;
  void tune(const Knobs& knobs) override;
  void set_late_callback(Duration timeout, const std::function<bool()>& late) override;

 private:
  bool is_host(const ProcessSet& set) const;
  void move(const CollectiveCall& call);

  const std::shared_ptr<HostContext> context_;
  const std::vector<std::vector<int>> hosts_;  // ranks by host
  const InstructionSet instruction_set_;
  Scratch scratch_;  // of Adasum, which runs in ordinary memory
};

}  // namespace hvd
