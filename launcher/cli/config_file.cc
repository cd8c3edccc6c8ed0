#include "launcher/cli/command_line.h"

#include <yaml.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd::launcher {
namespace {

struct ConfigKey {
  const char* key;       // "section.name"
  const char* option;    // takes the value, or stands for true
  const char* if_false;  // the option for false; null: `option` takes the value
};

constexpr ConfigKey kKeys[] = {
    {"params.fusion_threshold_mb", "--fusion-threshold-mb", nullptr},
    {"params.cycle_time_ms", "--cycle-time-ms", nullptr},
    {"params.cache_capacity", "--cache-capacity", nullptr},
    {"params.hierarchical_allreduce", "--hierarchical-allreduce", "--no-hierarchical-allreduce"},
    {"params.hierarchical_allgather", "--hierarchical-allgather", "--no-hierarchical-allgather"},
    {"params.torus_allreduce", "--torus-allreduce", "--no-torus-allreduce"},
    {"autotune.enabled", "--autotune", "--no-autotune"},
    {"autotune.log_file", "--autotune-log-file", nullptr},
    {"autotune.warmup_samples", "--autotune-warmup-samples", nullptr},
    {"autotune.steps_per_sample", "--autotune-steps-per-sample", nullptr},
    {"autotune.bayes_opt_max_samples", "--autotune-bayes-opt-max-samples", nullptr},
    {"autotune.gaussian_process_noise", "--autotune-gaussian-process-noise", nullptr},
    {"timeline.filename", "--timeline-filename", nullptr},
    {"timeline.mark_cycles", "--timeline-mark-cycles", "--no-timeline-mark-cycles"},
    {"stall_check.enabled", "--stall-check", "--no-stall-check"},
    {"stall_check.warning_time_seconds", "--stall-check-warning-time-seconds", nullptr},
    {"stall_check.shutdown_time_seconds", "--stall-check-shutdown-time-seconds", nullptr},
    {"library_options.mpi_threads_disable", "--mpi-threads-disable", "--no-mpi-threads-disable"},
    {"library_options.num_nccl_streams", "--num-nccl-streams", nullptr},
    {"library_options.thread_affinity", "--thread-affinity", nullptr},
    {"library_options.gloo_timeout_seconds", "--gloo-timeout-seconds", nullptr},
    {"logging.level", "--log-level", nullptr},
    {"logging.with_timestamp", "--log-with-timestamp", "--log-without-timestamp"},
};

// Reads the events of libyaml's parser one after the other.
class YamlEvents {
 public:
  YamlEvents(const std::string& text, const std::string& name) : name_(name) {
    yaml_parser_initialize(&parser_);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~YamlEvents() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlEvents(const YamlEvents&) = delete;
  YamlEvents& operator=(const YamlEvents&) = delete;

  // The event is valid until the next call. Throws InvalidArgument if the text is not YAML.
  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 0) {
      throw InvalidArgument(name_ + ", line " + std::to_string(parser_.problem_mark.line + 1) + ": " +
                            (parser_.problem != nullptr ? parser_.problem : "not YAML"));
    }
    return event_;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument(name_ + ", line " + std::to_string(event_.start_mark.line + 1) + ": " + why);
  }

 private:
  const std::string& name_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

struct Scalar {
  std::string text;
  bool is_plain = true;  // without quotes
};

Scalar scalar_of(const yaml_event_t& event) {
  const auto& scalar = event.data.scalar;
  return {std::string(reinterpret_cast<const char*>(scalar.value), scalar.length),
          scalar.style == YAML_PLAIN_SCALAR_STYLE};
}

// As in YAML 1.1.
bool is_null(const Scalar& scalar) {
  const std::string& text = scalar.text;
  return scalar.is_plain && (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL");
}

using ConfigEntry = std::pair<std::string, Scalar>;  // "section.name", or a key outside of sections

// Reads the keys and values of a mapping that has begun; `section` is empty for the top level.
void read_mapping(YamlEvents& events, const std::string& section, std::vector<ConfigEntry>& entries) {
  while (true) {
    const yaml_event_t& key_event = events.next();
    if (key_event.type == YAML_MAPPING_END_EVENT) return;
    if (key_event.type != YAML_SCALAR_EVENT) events.refuse("a key must be a word");
    const std::string key = (section.empty() ? "" : section + ".") + scalar_of(key_event).text;
    const yaml_event_t& value = events.next();
    if (value.type == YAML_SCALAR_EVENT) {
      entries.emplace_back(key, scalar_of(value));
    } else if (value.type == YAML_MAPPING_START_EVENT && section.empty()) {
      read_mapping(events, key, entries);
    } else {
      events.refuse(key + " must be one value");
    }
  }
}

std::vector<ConfigEntry> read_entries(const std::string& yaml, const std::string& name) {
  std::vector<ConfigEntry> entries;
  YamlEvents events(yaml, name);
  while (true) {
    const yaml_event_t& event = events.next();
    if (event.type == YAML_STREAM_END_EVENT || event.type == YAML_DOCUMENT_END_EVENT) return entries;
    if (event.type == YAML_MAPPING_START_EVENT) {
      read_mapping(events, "", entries);
    } else if (event.type == YAML_SCALAR_EVENT ? !is_null(scalar_of(event)) : event.type == YAML_SEQUENCE_START_EVENT) {
      events.refuse("the file must have sections: params:, autotune: and so on");
    }
  }
}

// Booleans as in YAML 1.1.
std::optional<bool> truth_of(const Scalar& scalar) {
  const std::string text = in_lower_case(scalar.text);
  if (text == "true" || text == "yes" || text == "on" || text == "1") return true;
  if (text == "false" || text == "no" || text == "off" || text == "0") return false;
  return std::nullopt;
}

std::string option_for(const ConfigKey& key, const Scalar& value, const std::string& name) {
  if (key.if_false == nullptr) return std::string(key.option) + "=" + value.text;
  const std::optional<bool> truth = truth_of(value);
  if (!truth) throw InvalidArgument(name + ": " + key.key + ": " + value.text + " is neither true nor false");
  return *truth ? key.option : key.if_false;
}

}  // namespace

ConfigOptions read_config(const std::string& yaml, bool with_controller, const std::string& name) {
  ConfigOptions config;
  for (const auto& [key, value] : read_entries(yaml, name)) {
    if (is_null(value)) continue;
    if (key == "controller") {
      if (value.text != "mpi" && value.text != "gloo") {
        throw InvalidArgument(name + ": controller: " + value.text + " is neither mpi nor gloo");
      }
      if (with_controller) config.options.push_back("--" + value.text);
      continue;
    }
    const auto* const known = std::ranges::find_if(kKeys, [&](const ConfigKey& entry) { return entry.key == key; });
    if (known == std::end(kKeys)) {
      config.unknown_keys.push_back(key);
    } else {
      config.options.push_back(option_for(*known, value, name));
    }
  }
  return config;
}

}  // namespace hvd::launcher
