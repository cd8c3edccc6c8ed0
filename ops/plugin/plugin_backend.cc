#include "ops/plugin/plugin_backend.h"

#include <utility>

#include "core/base/error.h"
#include "core/execution/backend.h"
#include "core/tensor/tensor.h"

namespace hvd {

namespace {

// A call in the form of hvd_plugin.h; refers to the CollectiveCall.
struct PlainCall {
  explicit PlainCall(const CollectiveCall& call) {
    pieces.reserve(call.pieces.size());
    for (const Piece& piece : call.pieces) pieces.push_back({piece.input, piece.output, piece.elements});
    for (const auto& row : call.counts) counts.insert(counts.end(), row.begin(), row.end());
    plain = {.struct_size = sizeof plain,
             .collective = static_cast<std::int32_t>(call.collective),
             .dtype = static_cast<std::int32_t>(call.dtype),
             .reduce_op = static_cast<std::int32_t>(call.op),
             .root = call.root,
             .prescale = call.prescale,
             .postscale = call.postscale,
             .device = call.device,
             .reserved = 0,
             .sequence = call.sequence,
             .count = pieces.size(),
             .pieces = pieces.data(),
             .counts = counts.empty() ? nullptr : counts.data()};
  }

  std::vector<hvd_plugin_piece> pieces;
  std::vector<std::int64_t> counts;
  hvd_plugin_call plain{};
};

}  // namespace

PluginBackend::PluginBackend(std::shared_ptr<PluginCommunicator> group, std::vector<Backend*> others,
                             const WaitPolicy& policy, const AbortFlag& abort, Duration timeout)
    : group_(std::move(group)),
      others_(std::move(others)),
      abort_(abort),
      timeout_(timeout),
      thread_("hvd " + std::string(group_->library().name()), policy) {
  group_->set_hand_on([this](const hvd_plugin_call& call) { hand_on(call); });
}

PluginBackend::~PluginBackend() {
  group_->set_hand_on(nullptr);
  if (thread_.lost()) PluginCommunicator::abandon(group_);
}

// hvd_plugin.h has no streams and events of accelerators.
int PluginBackend::score(const CollectiveCall& call) const {
  if (call.device != kCpuDevice) return 0;
  const PlainCall plain(call);
  return group_->library().table().score(group_->opened(), &plain.plain);
}

// The thread gets copies: it may still be in the call after the caller has stopped waiting.
void PluginBackend::run(const CollectiveCall& call) {
  const auto plain = std::make_shared<PlainCall>(call);
  running_ = &call;
  try {
    thread_.run([group = group_, plain] { group->run(plain->plain); }, deadline_after(timeout_), abort_,
                "waiting for a collective of " + std::string(name()) + ", call " + std::to_string(call.sequence) +
                    " of process set " + std::to_string(call.set->id));
  } catch (...) {
    group_->set_failed();
    if (thread_.lost()) group_->set_hand_on(nullptr);
    throw;
  }
}

// The plugin may have changed memory and factors only.
void PluginBackend::hand_on(const hvd_plugin_call& plain) const {
  CollectiveCall call = *running_;
  if (plain.count != call.pieces.size()) throw InvalidArgument(std::string(name()) + " has handed on another call");
  for (std::size_t i = 0; i < plain.count; ++i) {
    call.pieces[i] = {plain.pieces[i].input, plain.pieces[i].output, plain.pieces[i].elements};
  }
  call.prescale = plain.prescale;
  call.postscale = plain.postscale;
  select_backend(others_, call).run(call);
}

}  // namespace hvd
