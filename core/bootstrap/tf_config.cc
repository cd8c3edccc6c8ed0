#include "core/bootstrap/launch_environment.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd {

namespace {

using nlohmann::json;

InvalidArgument refusal(const std::string& what) { return InvalidArgument("TF_CONFIG: " + what); }

void expect(const json& value, json::value_t kind, const std::string& name) {
  if (value.type() == kind) return;
  throw refusal(name + " is " + value.dump() + ", not of JSON's type " + json(kind).type_name());
}

const json& member(const json& object, const char* name, json::value_t kind) {
  const auto found = object.find(name);
  if (found == object.end()) throw refusal(std::string("\"") + name + "\" is missing");
  expect(*found, kind, std::string("\"") + name + "\"");
  return *found;
}

json parse(const std::string& text) {
  try {
    json config = json::parse(text);
    expect(config, json::value_t::object, "it");
    return config;
  } catch (const json::exception& error) {
    throw refusal(std::string("it is no JSON: ") + error.what());
  }
}

// The store listens on IPv4 only.
Address parse_address(const std::string& text) {
  try {
    Address address = Address::parse("tcp:" + text);
    if (address.host.find(':') == std::string::npos) return address;
  } catch (const InvalidArgument&) {  // below
  }
  throw refusal("'" + text + "' is not host:port, where host is a name or an IPv4 address");
}

std::vector<Address> addresses_of(const json& cluster, const char* type) {
  std::vector<Address> addresses;
  if (!cluster.contains(type)) return addresses;
  for (const json& text : member(cluster, type, json::value_t::array)) {
    expect(text, json::value_t::string, std::string("an address of \"") + type + "\"");
    addresses.push_back(parse_address(text.get<std::string>()));
  }
  return addresses;
}

void refuse_duplicates(const std::vector<Address>& addresses) {
  std::set<std::string> seen;
  for (const Address& address : addresses) {
    const std::string text = address.host + ":" + std::to_string(address.port);
    if (!seen.insert(text).second) throw refusal("two members of the cluster are at " + text);
  }
}

// TensorFlow accepts "0" as well as 0.
int index_of(const json& task, const std::string& type, std::size_t count) {
  const json value = task.value("index", json());
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const auto index = parse_number<std::size_t>(text);
  if (index && *index < count) return static_cast<int>(*index);
  throw refusal("the task is " + type + " " + text + ", but the cluster has " + std::to_string(count) +
                " of that type, counted from 0");
}

}  // namespace

Launch read_tf_config(const std::string& text) {
  const json config = parse(text);
  if (!config.contains("cluster") || config["cluster"].empty()) return {};
  const json& cluster = member(config, "cluster", json::value_t::object);
  const json& task = member(config, "task", json::value_t::object);
  const std::string type = member(task, "type", json::value_t::string).get<std::string>();
  if (type == "evaluator") return {.launcher = Launcher::tf_config};
  if (type != "chief" && type != "worker" && type != "ps") {
    throw refusal("the task is " + type + ", neither chief nor worker nor ps");
  }

  std::vector<Address> members = addresses_of(cluster, "chief");
  const std::size_t chiefs = members.size();
  if (chiefs > 1) throw refusal("there is more than one chief");
  const std::vector<Address> workers = addresses_of(cluster, "worker"), servers = addresses_of(cluster, "ps");
  members.insert(members.end(), workers.begin(), workers.end());
  if (members.empty()) throw refusal("the cluster has neither a chief nor a worker");
  Launch launch{.launcher = Launcher::tf_config,
                .size = static_cast<int>(members.size()),
                .servers = static_cast<int>(servers.size()),
                .store = members.front()};
  members.insert(members.end(), servers.begin(), servers.end());
  refuse_duplicates(members);

  if (type == "ps") {
    launch.rank = -1;
    launch.server = index_of(task, type, servers.size());
  } else if (type == "chief") {
    launch.rank = index_of(task, type, chiefs);
  } else {
    launch.rank = static_cast<int>(chiefs) + index_of(task, type, workers.size());
  }
  return members.size() == 1 ? Launch{} : launch;
}

}  // namespace hvd
