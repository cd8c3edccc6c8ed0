#include "ops/transport/transport.h"

#include <numeric>

#include "core/base/error.h"

namespace hvd {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::size_t PostedMessage::size() const { return kind == Kind::send ? outgoing.size() : incoming.size(); }

std::string describe_message(const Tag& tag, std::uint64_t bytes) {
  return "process set " + std::to_string(tag.process_set) + ", call " + std::to_string(tag.sequence) + ", step " +
         std::to_string(tag.step) + ", " + std::to_string(bytes) + " bytes";
}

std::string describe_timeout(const PostedMessage& operation, const std::string& peer_name, Duration waited) {
  return "waited " + age_text(waited) + " for " + peer_name +
         (operation.kind == PostedMessage::Kind::send ? " to take " : " to send ") +
         describe_message(operation.tag, operation.size());
}

std::string describe_mismatch(const PostedMessage& expected, const std::string& peer_name, const Tag& tag,
                              std::uint64_t bytes) {
  return peer_name + " is out of step: it sent (" + describe_message(tag, bytes) + ") where (" +
         describe_message(expected.tag, expected.size()) + ") was expected";
}

std::string describe_loss(const PostedMessage& operation, const std::string& peer_name) {
  return "lost the connection to " + peer_name +
         (operation.kind == PostedMessage::Kind::send ? " while sending " : " while receiving ") +
         describe_message(operation.tag, operation.size());
}

PostedMessage& OperationWindow::add(PostedMessage operation) {
  operations_.push_back(operation);
  return operations_.back();
}

Transport::RequestId OperationWindow::newest() const { return first_ + operations_.size() - 1; }

PostedMessage& OperationWindow::find(Transport::RequestId request) {
  if (request < first_ || request - first_ >= operations_.size() || operations_[request - first_].waited) {
    throw InvalidArgument("waited for request " + std::to_string(request) + ", which is not outstanding");
  }
  return operations_[request - first_];
}

void OperationWindow::retire(PostedMessage& operation) {
  operation.waited = true;
  while (!operations_.empty() && operations_.front().waited) {
    operations_.pop_front();
    ++first_;
  }
}

}  // namespace hvd
