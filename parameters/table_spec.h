// What a table on parameter servers is: its shape, the rule by which pushed gradients change it, and when workers see
// each other's pushes. All workers that open a table pass equal specs.
#pragma once

#include <cstdint>
#include <string>

#include "core/net/byte_codec.h"

namespace hvd {

// How a push changes a row.
enum class UpdateRule : std::uint8_t {
  assign = 0,   // row = gradient
  add = 1,      // row += gradient
  sgd = 2,      // with momentum, as torch.optim.SGD
  adagrad = 3,  // as torch.optim.Adagrad
  adam = 4,     // as torch.optim.Adam; counts steps by row
  ftrl = 5,     // FTRL-Proximal: McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013
  custom = 6,   // a function that servers have registered by name (parameters/update_functions.h)
};
inline constexpr int kUpdateRules = 7;

struct OptimizerSpec {
  UpdateRule rule = UpdateRule::sgd;
  bool row_wise = false;  // adagrad, adam: one second moment for each row, the mean over its columns
  bool nesterov = false;  // sgd
  float learning_rate = 0.01f;
  float momentum = 0;       // sgd
  float weight_decay = 0;   // sgd, adagrad, adam: added to the gradient, times the row
  float beta1 = 0.9f;       // adam
  float beta2 = 0.999f;     // adam
  float epsilon = 1e-8f;    // adagrad, adam
  float accumulator = 0;    // adagrad, ftrl: the initial sum of squares
  float beta = 1;           // ftrl
  float l1 = 0;             // ftrl
  float l2 = 0;             // ftrl
  std::string function{};   // custom: its name
  std::uint32_t state = 0;  // custom: values of state for each row, 0 at first

  bool operator==(const OptimizerSpec&) const = default;
  static void fields(auto& self, const auto& each) {
    each(self.rule, Flags(self.row_wise, self.nesterov), self.learning_rate, self.momentum, self.weight_decay,
         self.beta1, self.beta2, self.epsilon, self.accumulator, self.beta, self.l1, self.l2, self.function,
         self.state);
  }
};

// The content of a row that nobody has pushed to: a function of seed, key and column, the same on every server.
struct InitializerSpec {
  enum class Kind : std::uint8_t { constant = 0, uniform = 1, normal = 2 };
  Kind kind = Kind::constant;
  float a = 0;  // the constant; the lower bound; the mean
  float b = 0;  // the upper bound; the standard deviation
  std::uint64_t seed = 0;

  bool operator==(const InitializerSpec&) const = default;
  static void fields(auto& self, const auto& each) { each(self.kind, self.a, self.b, self.seed); }
};

// When a pull returns, and when a push takes effect.
enum class Consistency : std::uint8_t {
  asynchronous = 0,  // at once
  bounded = 1,       // a pull at clock c waits until every worker has reached c - bound; a push takes effect at once
  synchronous = 2,   // a pull at clock c waits until every worker has reached c; the pushes of a clock are added up in
                     // the order of workers, and take effect together
};

struct TableSpec {
  std::string name;
  bool dense = false;         // rows 0 to `rows` - 1 all exist; else rows are created at their first use
  std::uint64_t rows = 0;     // sparse: how many are kept on each server, the least recently used go; 0: all
  std::uint32_t max_age = 0;  // sparse: rows that were not used for so many clocks of the slowest worker go; 0: never
  std::uint32_t width = 1;    // values in a row
  OptimizerSpec optimizer{};
  InitializerSpec initializer{};
  Consistency consistency = Consistency::asynchronous;
  std::uint32_t bound = 0;  // bounded: in clocks
  bool filled = false;      // dense: pulls and pushes wait until somebody has given the first values
  bool average = false;     // synchronous: divide sums by the number of workers
  // Dense, not synchronous: factor c of delay compensation, which replaces a gradient g by g + c g g (row - row as last
  // pulled by the worker): Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", ICML 2017.
  // 0: none.
  float compensation = 0;

  bool operator==(const TableSpec&) const = default;
  static void fields(auto& self, const auto& each) {
    each(self.name, self.dense, self.rows, self.max_age, self.width, self.optimizer, self.initializer, self.consistency,
         self.bound, self.compensation, Flags(self.average, self.filled));
  }
};

inline constexpr std::uint32_t kMaxWidth = 1u << 16;
inline constexpr std::uint64_t kMaxDenseRows = std::uint64_t{1} << 40;
inline constexpr std::size_t kMaxTableName = 256;
inline constexpr std::uint32_t kMaxCustomState = 4 * kMaxWidth;

// Throws Internal for malformed bytes, InvalidArgument for a spec that means nothing.
TableSpec read_table_spec(ByteReader& from);
// Throws InvalidArgument that names the field.
void check_table_spec(const TableSpec& spec);

// Spreads keys evenly (the finaliser of splitmix64: Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Which of `shards` has a row. Dense tables are dealt in ranges, sparse ones by a hash of the key.
constexpr std::uint32_t shard_of(const TableSpec& spec, std::uint64_t key, std::uint32_t shards) {
  if (spec.dense) return static_cast<std::uint32_t>(key * shards / spec.rows);
  return static_cast<std::uint32_t>((mix64(key) >> 32) * shards >> 32);
}

}  // namespace hvd
