#include "parameters/server_connection.h"

#include <cstring>

namespace hvd {

bool ServerConnection::answer_text(const PsRequest& request, StatusCode code, std::string_view text) {
  text = text.substr(0, kMaxPsPayload);
  std::byte* const to = room_for(text.size());
  if (to == nullptr) return false;
  const PsAnswer result{.status = static_cast<std::uint32_t>(code),
                        .sequence = request.sequence,
                        .bytes = static_cast<std::uint32_t>(text.size())};
  std::memcpy(to, &result, sizeof result);
  std::memcpy(to + kPsHeaderBytes, text.data(), text.size());
  pipe->commit(ps_frame_bytes(text.size()));
  return true;
}

std::byte* ServerConnection::room_for(std::size_t payload) {
  const std::size_t bytes = ps_frame_bytes(payload);
  std::byte* const to = pipe->room(bytes);
  lacks_room_ = to == nullptr ? bytes : 0;
  return to;
}

bool ServerConnection::has_room_for(std::size_t payload) {
  std::byte* const to = room_for(payload);
  if (to != nullptr) pipe->commit(0);
  return to != nullptr;
}

bool ServerConnection::has_got_room() {
  if (lacks_room_ == 0 || pipe->room(lacks_room_) == nullptr) return false;
  pipe->commit(0);
  return true;
}

bool ServerConnection::wait_for(const char* what) {
  waits_for = what;
  if (!waits_since) {
    waits_since = Clock::now();
    stall_told = false;
  }
  return false;
}

void ServerConnection::hold_until_replicated(const HeldShard& held, std::uint64_t begin) {
  if (!held.is_replicating()) return;
  if (held_.empty()) pipe->hold_behind(begin);
  held_.push_back({.until = held.position(), .position = begin});
}

void ServerConnection::release(HeldShard& held) {
  if (held_.empty() || !held.is_replicated(held_.front().until)) return;
  while (!held_.empty() && held.is_replicated(held_.front().until)) held_.pop_front();
  pipe->hold_behind(held_.empty() ? kHoldNothing : held_.front().position);
  flush();
}

void ServerConnection::flush() {
  try {
    pipe->flush();
  } catch (const PeerLost&) {  // input() finds out
  }
}

}  // namespace hvd
