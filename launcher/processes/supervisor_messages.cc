#include "launcher/processes/supervisor_messages.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd::launcher {
namespace {

template <typename Message>
Message decode(std::string_view bytes, decltype(Message::kind) last_kind) {
  auto message = decode_value<Message>(bytes);
  if (message.kind > last_kind) throw Internal("malformed message: of no known kind");
  return message;
}

}  // namespace

std::string encode(const SupervisorRequest& request) { return encode_value(request); }

SupervisorRequest decode_supervisor_request(std::string_view bytes) {
  return decode<SupervisorRequest>(bytes, SupervisorRequest::Kind::renew_lease);
}

std::string encode(SupervisorReport report) {
  report.text.resize(std::min(report.text.size(), kMaxReportedText));
  report.pids.resize(std::min(report.pids.size(), kMaxReportedPids));
  return encode_value(report);
}

SupervisorReport decode_supervisor_report(std::string_view bytes) {
  return decode<SupervisorReport>(bytes, SupervisorReport::Kind::nothing_left);
}

}  // namespace hvd::launcher
