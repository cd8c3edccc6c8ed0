#include "launcher/remote/subtree.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/net/endpoint.h"
#include "launcher/plan/host_plan.h"
#include "launcher/remote/messages.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxChildren = 64, kRadix = 32;

std::string as_seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds(duration));
  return text;
}

}  // namespace

std::vector<int> agent_tree(int hosts) {
  std::vector<int> parents(static_cast<std::size_t>(hosts), -1);
  if (hosts <= kMaxChildren) return parents;
  for (int host = kRadix; host < hosts; ++host) parents[static_cast<std::size_t>(host)] = host / kRadix - 1;
  return parents;
}

std::vector<int> agent_tree(const std::vector<ChildAgent>& agents) {
  const auto same_command = [](const ChildAgent& a, const ChildAgent& b) { return a.start_command == b.start_command; };
  const bool has_groups = std::ranges::adjacent_find(agents, same_command) != agents.end();
  return has_groups ? std::vector<int>(agents.size(), -1) : agent_tree(static_cast<int>(agents.size()));
}

std::vector<std::string> addresses_for(const AgentOptions& agents) {
  std::vector<std::string> result = addresses_of(local_addresses(), agents.interfaces, kNetworkInterfaceOption);
  if (result.empty()) result.emplace_back(kLoopback);
  return result;
}

Subtree::Subtree(EventLoop& loop, const SignalSource& signals, StoreSource& store, Options options, Listener listener)
    : loop_(loop),
      signals_(signals),
      store_(store),
      options_(std::move(options)),
      listener_(std::move(listener)),
      agent_listener_(loop, options_.certificate, "0.0.0.0",
                      [this](std::unique_ptr<LinkToAgent> link) { on_attached(std::move(link)); }),
      timer_(loop, [this] { on_time(); }) {}

Subtree::~Subtree() {
  for (const auto& [pid, command] : commands_) kill(-pid, SIGKILL);
}

void Subtree::start(const std::vector<Child>& children) {
  const Deadline deadline = deadline_after(options_.agents.start_timeout);
  for (auto begin = children.begin(); begin != children.end();) {
    const auto end = std::find_if(begin, children.end(),
                                  [&](const Child& child) { return child.start_command != begin->start_command; });
    for (auto child = begin; child != end; ++child) {
      names_[child->host] = child->name;
      waiting_[child->host] = {.child = *child, .deadline = deadline, .last_words = {}};
    }
    run_command({begin, end});
    begin = end;
  }
  set_timer();
}

void Subtree::send(const proto::ToAgent& message) {
  const auto route = routes_.find(static_cast<int>(message.host()));
  if (route != routes_.end()) route->second->link->send(message);
}

void Subtree::pause(bool on) {
  const TimePoint now = Clock::now();
  for (const auto& entry : links_) entry->lease.pause(on, now);
  proto::ToAgent message;
  message.mutable_pause()->set_on(on);
  send_to_all(message);
  for (const Deadline deadline = deadline_after(200ms); on && !all_sent() && Clock::now() < deadline;) {
    std::this_thread::sleep_for(1ms);
  }
}

void Subtree::dismiss(int host) {
  proto::ToAgent goodbye;
  goodbye.set_host(static_cast<std::uint32_t>(host));
  goodbye.mutable_goodbye();
  send(goodbye);
}

void Subtree::dismiss(Deadline deadline, SignalSource& signals, const std::function<void()>& collect_children) {
  loop_.watch(signals.fd(), EPOLLIN, [&] {
    signals.take();
    collect_children();
  });
  proto::ToAgent goodbye;
  goodbye.mutable_goodbye();
  send_to_all(goodbye);
  while (!empty() && Clock::now() < deadline) loop_.run_once(deadline);
  loop_.forget(signals.fd());
}

bool Subtree::empty() const { return links_.empty() && commands_.empty(); }

void Subtree::send_to_all(proto::ToAgent message) {
  for (const auto& [host, route] : routes_) {
    message.set_host(static_cast<std::uint32_t>(host));
    route->link->send(message);
  }
}

bool Subtree::all_sent() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& entry) { return entry->link->all_sent(); });
}

void Subtree::run_command(const std::vector<Child>& children) {
  const Child& first = children.front();
  proto::Bootstrap bootstrap;
  bootstrap.set_version(HVD_VERSION);
  bootstrap.set_host(static_cast<std::uint32_t>(first.host));
  for (const Child& child : children) {
    if (children.size() == 1) break;
    proto::Node& node = *bootstrap.add_nodes();
    node.set_name(child.name);
    node.set_host(static_cast<std::uint32_t>(child.host));
  }
  bootstrap.set_certificate(options_.certificate.certificate);
  bootstrap.set_key(options_.certificate.key);
  for (const std::string& address : options_.addresses) {
    bootstrap.add_addresses(Address{.host = address, .port = agent_listener_.port()}.to_string());
  }
  put(options_.agents, bootstrap);
  try {
    listener_.started(start_command(children, encode_bootstrap(bootstrap)));
  } catch (const Error& error) {
    for (const Child& child : children) never_came(child.host, error.what());
  }
}

pid_t Subtree::start_command(const std::vector<Child>& children, const std::string& input) {
  const FileDescriptor bytes = memory_file(std::as_bytes(std::span(input)));
  ChildStart start;
  start.program = "/bin/sh";
  start.arguments = {"sh", "-c", children.front().start_command};
  start.environment = to_entries(parse_environment(environ));
  start.standard_input = bytes.get();
  auto [output_reader, output_writer] = make_pipe();
  start.standard_output = start.standard_error = output_writer.get();
  start.open_files = open_files_;
  const pid_t pid = start_child(start, signals_);
  Command& entry = commands_[pid];
  for (const Child& child : children) entry.hosts.push_back(child.host);
  entry.output = std::make_unique<OutputPipe>(loop_, std::move(output_reader),
                                              [this, pid](std::string_view piece) { on_output(pid, piece); });
  return pid;
}

void Subtree::on_output(pid_t pid, std::string_view bytes) {
  const auto found = commands_.find(pid);
  if (found == commands_.end()) return;
  Command& command = found->second;
  std::string lines;
  command.lines.feed(bytes, lines);
  if (bytes.empty()) command.lines.flush(lines);
  while (!lines.empty()) {
    const auto end = lines.find_first_of("\r\n");
    const std::string line = lines.substr(0, end);
    lines.erase(0, end == std::string::npos ? end : end + 1);
    if (line.empty()) continue;
    for (const int host : command.hosts) {
      if (const auto entry = waiting_.find(host); entry != waiting_.end()) entry->second.last_words = line;
    }
    listener_.warning(names_[command.hosts.front()] + ": " + line);
  }
}

void Subtree::child_ended(pid_t pid, ExitStatus status) {
  const auto found = commands_.find(pid);
  if (found == commands_.end()) return;
  found->second.output->close_when_empty();  // reports its last lines first
  const std::vector<int> hosts = std::move(found->second.hosts);
  commands_.erase(found);
  if (status.ok()) return;  // the agent may have gone into the background
  for (const int host : hosts) {
    const auto entry = waiting_.find(host);
    if (entry == waiting_.end()) continue;
    const auto& [child, deadline, last_words] = entry->second;
    const std::string words = last_words.empty() ? "" : ": " + last_words;
    never_came(host, "`" + child.start_command + "` " + ending_text(status) + words);
  }
}

void Subtree::never_came(int host, const std::string& cause) {
  if (waiting_.erase(host) == 0) return;
  const auto is_needed_by = [this](int other) { return waiting_.contains(other) || routes_.contains(other); };
  for (const auto& [pid, command] : commands_) {
    const bool is_its_own = std::ranges::find(command.hosts, host) != command.hosts.end();
    if (is_its_own && std::ranges::none_of(command.hosts, is_needed_by)) kill(-pid, SIGTERM);
  }
  listener_.lost(host, cause);
}

void Subtree::on_attached(std::unique_ptr<LinkToAgent> link) {
  links_.push_back(std::make_unique<Attached>(
      Attached{.link = std::move(link), .lease = LinkLease(options_.agents.lease, Clock::now())}));
  Attached& from = *links_.back();
  from.store = std::make_unique<StoreBranch>(store_, [&from](std::uint64_t id, StatusCode code, std::string_view text) {
    proto::ToAgent message;
    message.set_host(static_cast<std::uint32_t>(from.own_host));
    message.mutable_store_response()->set_id(id);
    message.mutable_store_response()->set_code(static_cast<std::int32_t>(code));
    message.mutable_store_response()->set_text(text.data(), text.size());
    from.link->send(std::move(message));
  });
  from.link->listen({.received = [this, &from](const proto::FromAgent& message) { on_message(from, message); },
                     .lost = [this, &from](const std::string& cause) { on_lost(from, cause); }});
  set_timer();
}

void Subtree::on_message(Attached& from, const proto::FromAgent& message) {
  const int host = static_cast<int>(message.host());
  from.lease.received(Clock::now());
  if (message.has_heartbeat()) return;
  if (message.has_goodbye()) {
    from.has_left = true;
    proto::ToAgent goodbye;
    goodbye.set_host(message.host());
    goodbye.mutable_goodbye();
    return from.link->send(std::move(goodbye));
  }
  if (message.has_hello() && !routes_.contains(host)) {
    waiting_.erase(host);
    routes_[host] = &from;
    if (from.own_host < 0) from.own_host = host;
    from.hosts.push_back(host);
  }
  const auto route = routes_.find(host);
  if (message.has_lost() && route == routes_.end()) return listener_.lost(host, message.lost().cause());
  if (route == routes_.end() || route->second != &from) return;  // that host is not behind this agent
  if (message.has_lost()) {
    routes_.erase(route);
    std::erase(from.hosts, host);
    return listener_.lost(host, message.lost().cause());
  }
  if (message.has_store_request())
    return from.store->ask(message.store_request().id(), from_message(message.store_request()));
  listener_.received(message);
}

void Subtree::on_lost(Attached& from, const std::string& cause) {
  const auto entry = std::find_if(links_.begin(), links_.end(), [&](const auto& link) { return link.get() == &from; });
  const std::unique_ptr<Attached> gone = std::move(*entry);
  links_.erase(entry);
  for (const int host : gone->hosts) {
    routes_.erase(host);
    for (const auto& [pid, command] : commands_) {
      if (command.hosts.front() == host) kill(-pid, SIGTERM);  // else ssh would wait for its network timeout
    }
  }
  if (gone->has_left) return;
  for (const int host : gone->hosts) listener_.lost(host, cause);
}

void Subtree::on_time() {
  const TimePoint now = Clock::now();
  std::vector<std::pair<Attached*, std::string>> silent;
  for (const auto& entry : links_) {
    if (entry->lease.beat_is_due(now)) {
      proto::ToAgent heartbeat;
      heartbeat.mutable_heartbeat();
      entry->link->send(heartbeat);
    }
    if (entry->lease.has_expired(now)) {
      silent.emplace_back(entry.get(), "no heartbeat for " + as_seconds(options_.agents.lease) + " (agent at " +
                                           entry->link->peer() + "; see --lease)");
    }
  }
  for (const auto& [entry, cause] : silent) on_lost(*entry, cause);
  std::vector<int> late;
  for (const auto& [host, entry] : waiting_) {
    if (now >= entry.deadline) late.push_back(host);
  }
  for (const int host : late) {
    const Waiting& entry = waiting_.at(host);
    never_came(host, "no agent connected within " + as_seconds(options_.agents.start_timeout) +
                         " (--start-timeout). Start command: `" + entry.child.start_command + "`" +
                         (entry.last_words.empty() ? "" : "; its last output: " + entry.last_words));
  }
  set_timer();
}

void Subtree::set_timer() {
  std::optional<Deadline> next;
  for (const auto& entry : links_) next = earlier(next, entry->lease.next_deadline());
  for (const auto& [host, entry] : waiting_) next = earlier(next, entry.deadline);
  timer_.set(next);
}

}  // namespace hvd::launcher
