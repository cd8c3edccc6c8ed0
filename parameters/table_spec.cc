#include "parameters/table_spec.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace hvd {

namespace {

void require_spec(bool holds, const TableSpec& spec, const char* what) {
  if (!holds) throw InvalidArgument("table '" + spec.name + "': " + what);
}

}  // namespace

void check_table_spec(const TableSpec& spec) {
  const OptimizerSpec& o = spec.optimizer;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  require_spec(!spec.name.empty() && spec.name.size() <= kMaxTableName && std::ranges::none_of(spec.name, is_control),
               spec, "a name has 1 to 256 bytes, and no control characters");
  require_spec(spec.width >= 1 && spec.width <= kMaxWidth, spec, "a row has 1 to 65536 values");
  require_spec(!spec.dense || (spec.rows > 0 && spec.rows <= kMaxDenseRows), spec, "a dense table has 1 to 2^40 rows");
  for (const float value : {o.learning_rate, o.momentum, o.weight_decay, o.beta1, o.beta2, o.epsilon, o.accumulator,
                            o.beta, o.l1, o.l2, spec.initializer.a, spec.initializer.b, spec.compensation}) {
    require_spec(std::isfinite(value), spec, "all parameters of optimizer and initializer must be finite");
  }
  require_spec(o.learning_rate >= 0, spec, "the learning rate must not be negative");
  require_spec(o.rule != UpdateRule::ftrl || o.learning_rate > 0, spec, "FTRL needs a learning rate above 0");
  require_spec(!spec.filled || spec.dense, spec, "only a dense table is filled");
  require_spec(!o.row_wise || o.rule == UpdateRule::adagrad || o.rule == UpdateRule::adam, spec,
               "only Adagrad and Adam have a row-wise form");
  require_spec(!o.nesterov || o.momentum > 0, spec, "Nesterov's form needs a momentum");
  require_spec(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, spec, "betas are in [0, 1)");
  require_spec(o.accumulator >= 0 && o.epsilon >= 0 && o.beta >= 0 && o.l1 >= 0 && o.l2 >= 0, spec,
               "accumulator, epsilon, beta, l1 and l2 must not be negative");
  require_spec(spec.initializer.kind != InitializerSpec::Kind::normal || spec.initializer.b >= 0, spec,
               "a standard deviation must not be negative");
  require_spec(!spec.dense || spec.max_age == 0, spec, "a dense table keeps all its rows: no limit of age");
  require_spec(spec.consistency != Consistency::synchronous || spec.dense || (spec.rows == 0 && spec.max_age == 0),
               spec, "a synchronous table keeps all its rows: no limit of rows, nor of their age");
  require_spec(spec.compensation >= 0, spec, "the factor of delay compensation must not be negative");
  require_spec(spec.compensation == 0 || (spec.dense && spec.consistency != Consistency::synchronous &&
                                          o.rule != UpdateRule::assign && o.rule != UpdateRule::add),
               spec,
               "delay compensation is for dense tables that are not synchronous, with an optimizer that has a learning "
               "rate");
  const bool is_custom = o.rule == UpdateRule::custom;
  require_spec(is_custom == !o.function.empty() && o.function.size() <= kMaxTableName, spec,
               "a custom update, and no other, has a name, of at most 256 bytes");
  require_spec(is_custom || o.state == 0, spec, "only a custom update says how much state a row has");
  require_spec(o.state <= kMaxCustomState, spec, "a row has at most 262144 values of state");
}

TableSpec read_table_spec(ByteReader& from) {
  TableSpec spec;
  from.get(spec);
  if (spec.optimizer.rule > UpdateRule::custom || spec.initializer.kind > InitializerSpec::Kind::normal ||
      spec.consistency > Consistency::synchronous) {
    throw Internal("malformed table: a value out of range");
  }
  check_table_spec(spec);
  return spec;
}

}  // namespace hvd
