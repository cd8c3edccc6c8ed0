#include "ops/mpi/plugin/communicator.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"
#include "ops/mpi/plugin/process.h"
#include "ops/reduction/reduce.h"

namespace hvd::mpi {

namespace {

template <DType kDType, ReduceOp kOp>
void reduce_pair(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const std::array<const void*, 2> inputs{in, inout};
  reduce({.dtype = kDType, .op = kOp}, kDType, inputs, kDType, inout, static_cast<std::size_t>(*count));
}

// Created at first use, and freed when MPI is finalised. Of equal values, and of NaNs, the last one is the result
// (reduce.h): min and max must keep the order of ranks, so that all ranks get the same result.
template <DType kDType, ReduceOp kOp>
MPI_Op own_op() {
  constexpr int kCommutes = kOp == ReduceOp::sum || kOp == ReduceOp::product ? 1 : 0;
  static MPI_Op op = [] {
    MPI_Op made = MPI_OP_NULL;
    check(MPI_Op_create(reduce_pair<kDType, kOp>, kCommutes, &made), "creating a reduction operation");
    at_finalize([] { MPI_Op_free(&op); });
    return made;
  }();
  return op;
}

template <DType kDType>
MPI_Op own_op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return own_op<kDType, ReduceOp::sum>();
    case ReduceOp::min: return own_op<kDType, ReduceOp::min>();
    case ReduceOp::max: return own_op<kDType, ReduceOp::max>();
    case ReduceOp::product: return own_op<kDType, ReduceOp::product>();
    default: throw Failure(HVD_UNSUPPORTED, "no such operation");
  }
}

MPI_Datatype two_bytes() {
  static MPI_Datatype type = [] {
    MPI_Datatype made = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(2, MPI_BYTE, &made), "creating a type for 16-bit floats");
    check(MPI_Type_commit(&made), "creating a type for 16-bit floats");
    at_finalize([] { MPI_Type_free(&type); });
    return made;
  }();
  return type;
}

// MPI has no 16-bit floats: they are two bytes, with user-defined operations.
MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
    case DType::boolean: return MPI_UINT8_T;
    case DType::int8: return MPI_INT8_T;
    case DType::uint16:  // only moved, like the following
    case DType::int16: return MPI_INT16_T;
    case DType::uint32:
    case DType::int32: return MPI_INT32_T;
    case DType::uint64:
    case DType::int64: return MPI_INT64_T;
    case DType::float16:
    case DType::bfloat16: return two_bytes();
    case DType::float32: return MPI_FLOAT;
    case DType::float64: return MPI_DOUBLE;
  }
  throw Failure(HVD_UNSUPPORTED, "no such type");
}

// Of sum, min, max or product.
MPI_Op op_of(DType dtype, ReduceOp op) {
  if (dtype == DType::float16) return own_op_of<DType::float16>(op);
  if (dtype == DType::bfloat16) return own_op_of<DType::bfloat16>(op);
  // MPI's own min and max of NaNs and of signed zeros differ from rank to rank in some libraries.
  const bool is_extreme = op == ReduceOp::min || op == ReduceOp::max;
  if (is_extreme && dtype == DType::float32) return own_op_of<DType::float32>(op);
  if (is_extreme && dtype == DType::float64) return own_op_of<DType::float64>(op);
  switch (op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::min: return MPI_MIN;
    case ReduceOp::max: return MPI_MAX;
    case ReduceOp::product: return MPI_PROD;
    default: throw Failure(HVD_UNSUPPORTED, "no such operation");
  }
}

// MPI counts in int: larger data is sent in portions.
constexpr std::int64_t kPortion = std::int64_t{1} << 30;

template <typename Work>
void by_portions(std::int64_t elements, const Work& work) {
  for (std::int64_t at = 0; at < elements; at += kPortion) {
    work(at, static_cast<int>(std::min(kPortion, elements - at)));
  }
}

bool fits(std::int64_t elements) { return elements <= INT_MAX; }

std::vector<int> as_ints(std::span<const std::int64_t> counts) { return {counts.begin(), counts.end()}; }

std::vector<int> offsets_of(const std::vector<int>& counts) {
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  return offsets;
}

std::int64_t total_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Distinguishes groups that are opened concurrently: the same on all ranks of one.
int tag_of(std::span<const std::int32_t> job_ranks) {
  std::uint32_t hash = 17;
  for (const std::int32_t rank : job_ranks) hash = hash * 31 + static_cast<std::uint32_t>(rank);
  return static_cast<int>(hash & 0x7fff);
}

MPI_Comm make_comm(const hvd_plugin_group& group) {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, group.size, group.job_ranks, &some), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, some, tag_of({group.job_ranks, static_cast<std::size_t>(group.size)}),
                              &comm),
        "creating a communicator");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return comm;
}

}  // namespace

// The call's arguments in C++.
struct Communicator::Values {
  explicit Values(const hvd_plugin_call& call, int group_size)
      : collective(static_cast<Collective>(call.collective)),
        dtype(static_cast<DType>(call.dtype)),
        op(static_cast<ReduceOp>(call.reduce_op)),
        root(call.root),
        prescale(call.prescale),
        postscale(call.postscale),
        pieces(call.pieces, call.count),
        counts(call.counts),
        ranks(static_cast<std::size_t>(group_size)) {}

  std::size_t bytes(std::int64_t elements) const { return bytes_of(elements, dtype); }
  std::span<const std::int64_t> row(std::size_t at) const { return {counts + at * ranks, ranks}; }

  // Writes the scaled input; the operation's identity if there is none.
  void fill(std::byte* to, const hvd_plugin_piece& piece) const {
    const auto elements = static_cast<std::size_t>(piece.elements);
    if (piece.input == nullptr) {
      fill_identity(dtype, op, to, elements);
    } else if (prescale == 1.0) {
      if (piece.input != to && elements > 0) std::memcpy(to, piece.input, bytes(piece.elements));
    } else {
      scale(prescale, 1.0, piece.input, to, piece.elements);
    }
  }
  void scale(double before, double after, const void* from, void* to, std::int64_t elements) const {
    const std::array<const void*, 1> inputs{from};
    reduce({.dtype = dtype, .op = op, .prescale = before, .postscale = after}, dtype, inputs, dtype, to,
           static_cast<std::size_t>(elements));
  }

  const Collective collective;
  const DType dtype;
  const ReduceOp op;
  const int root;
  const double prescale, postscale;
  const std::span<const hvd_plugin_piece> pieces;
  const std::int64_t* const counts;
  const std::size_t ranks;
};

Communicator::Communicator(const hvd_plugin_host& host, const hvd_plugin_group& group)
    : rank_(group.rank), size_(group.size) {
  join();
  comm_ = make_comm(group);
  check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting MPI's error handler");
  void* bound = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &bound, &found), "asking for MPI's highest tag");
  highest_tag_ = found != 0 ? *static_cast<int*>(bound) : 32767;
  host.log(host.context, 2, (library_version() + ", " + std::to_string(size_) + " ranks").c_str());
}

Communicator::~Communicator() {
  int finalized = 0;
  if (left_open_ || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
  MPI_Comm_free(&comm_);
}

bool Communicator::can_do(const hvd_plugin_call& call) {
  if (call.device != HVD_CPU) return false;
  switch (call.collective) {
    case HVD_ALLREDUCE:
    case HVD_REDUCESCATTER:
      return reduction_exists(static_cast<DType>(call.dtype), static_cast<ReduceOp>(call.reduce_op));
    case HVD_ALLGATHER:
    case HVD_BROADCAST:
    case HVD_ALLTOALL: return true;
    default: return false;
  }
}

void Communicator::run(const hvd_plugin_call& call) {
  const Values values(call, size_);
  switch (values.collective) {
    case Collective::allreduce: allreduce(values); break;
    case Collective::allgather: allgather(values); break;
    case Collective::broadcast: broadcast(values); break;
    case Collective::alltoall: alltoall(values); break;
    case Collective::reducescatter: reducescatter(values); break;
    default: throw Failure(HVD_UNSUPPORTED, "no such collective");
  }
}

void Communicator::allreduce(const Values& values) {
  std::int64_t elements = 0;
  for (const hvd_plugin_piece& piece : values.pieces) elements += piece.elements;
  const bool alone = values.pieces.size() == 1 && values.pieces[0].output != nullptr;
  std::byte* const buffer =
      alone ? static_cast<std::byte*>(values.pieces[0].output) : scratch_.take(values.bytes(elements));
  std::byte* to = buffer;
  for (const hvd_plugin_piece& piece : values.pieces) {
    values.fill(to, piece);
    to += values.bytes(piece.elements);
  }
  by_portions(elements, [&](std::int64_t at, int count) {
    check(MPI_Allreduce(MPI_IN_PLACE, buffer + values.bytes(at), count, type_of(values.dtype),
                        op_of(values.dtype, values.op), comm_),
          "MPI_Allreduce");
  });
  if (values.postscale != 1.0) values.scale(1.0, values.postscale, buffer, buffer, elements);
  if (alone) return;
  const std::byte* from = buffer;
  for (const hvd_plugin_piece& piece : values.pieces) {
    const std::size_t bytes = values.bytes(piece.elements);
    if (piece.output != nullptr && bytes > 0) std::memcpy(piece.output, from, bytes);
    from += bytes;
  }
}

// A rank without an output has joined, and still takes part.
void Communicator::allgather(const Values& values) {
  for (std::size_t i = 0; i < values.pieces.size(); ++i) {
    const hvd_plugin_piece& piece = values.pieces[i];
    const auto counts = values.row(i);
    const std::int64_t total = total_of(counts);
    auto* const out =
        piece.output != nullptr ? static_cast<std::byte*>(piece.output) : scratch_.take(values.bytes(total));
    const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
    if (fits(total)) {
      const std::vector<int> lengths = as_ints(counts), offsets = offsets_of(lengths);
      check(MPI_Allgatherv(piece.input, static_cast<int>(own), type_of(values.dtype), out, lengths.data(),
                           offsets.data(), type_of(values.dtype), comm_),
            "MPI_Allgatherv");
      continue;
    }
    std::byte* to = out;
    for (int source = 0; source < size_; ++source) {
      const std::int64_t count = counts[static_cast<std::size_t>(source)];
      if (source == rank_ && own > 0) std::memcpy(to, piece.input, values.bytes(own));
      by_portions(count, [&](std::int64_t at, int portion) {
        check(MPI_Bcast(to + values.bytes(at), portion, type_of(values.dtype), source, comm_), "MPI_Bcast");
      });
      to += values.bytes(count);
    }
  }
}

void Communicator::broadcast(const Values& values) {
  for (const hvd_plugin_piece& piece : values.pieces) {
    const std::size_t bytes = values.bytes(piece.elements);
    auto* out = static_cast<std::byte*>(piece.output);
    if (out == nullptr) out = scratch_.take(bytes);
    if (rank_ == values.root && piece.input != out && bytes > 0) std::memcpy(out, piece.input, bytes);
    by_portions(piece.elements, [&](std::int64_t at, int count) {
      check(MPI_Bcast(out + values.bytes(at), count, type_of(values.dtype), values.root, comm_), "MPI_Bcast");
    });
  }
}

void Communicator::alltoall(const Values& values) {
  const hvd_plugin_piece& piece = values.pieces[0];
  const auto sent = values.row(static_cast<std::size_t>(rank_));
  std::vector<std::int64_t> received(values.ranks);
  bool small = true;
  for (std::size_t source = 0; source < values.ranks; ++source) {
    received[source] = values.row(source)[static_cast<std::size_t>(rank_)];
    std::int64_t to_one = 0;  // all ranks decide equally: by the counts of all ranks
    for (std::size_t other = 0; other < values.ranks; ++other) to_one += values.row(other)[source];
    small = small && fits(total_of(values.row(source))) && fits(to_one);
  }
  const auto* in = static_cast<const std::byte*>(piece.input);
  auto* out =
      piece.output != nullptr ? static_cast<std::byte*>(piece.output) : scratch_.take(values.bytes(total_of(received)));
  if (small) {
    const std::vector<int> send_lengths = as_ints(sent), receive_lengths = as_ints(received);
    check(MPI_Alltoallv(in, send_lengths.data(), offsets_of(send_lengths).data(), type_of(values.dtype), out,
                        receive_lengths.data(), offsets_of(receive_lengths).data(), type_of(values.dtype), comm_),
          "MPI_Alltoallv");
    return;
  }
  std::vector<MPI_Request> requests;
  const auto post = [&](auto start, auto* at, std::int64_t elements, int peer) {
    by_portions(elements, [&](std::int64_t begin, int count) {
      check(start(at + values.bytes(begin), count, type_of(values.dtype), peer, 0, comm_, &requests.emplace_back()),
            "posting a part of an alltoall");
    });
    return at + values.bytes(elements);
  };
  for (int peer = 0; peer < size_; ++peer) out = post(MPI_Irecv, out, received[static_cast<std::size_t>(peer)], peer);
  for (int peer = 0; peer < size_; ++peer) in = post(MPI_Isend, in, sent[static_cast<std::size_t>(peer)], peer);
  check(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE), "an alltoall");
}

void Communicator::reducescatter(const Values& values) {
  for (std::size_t i = 0; i < values.pieces.size(); ++i) {
    const hvd_plugin_piece& piece = values.pieces[i];
    const auto counts = values.row(i);
    const std::int64_t own = counts[static_cast<std::size_t>(rank_)];
    const bool as_it_is = piece.input != nullptr && values.prescale == 1.0;
    const std::size_t filled = as_it_is ? 0 : values.bytes(piece.elements);
    std::byte* const scratch = scratch_.take(filled + values.bytes(own));
    if (!as_it_is) values.fill(scratch, piece);
    const std::byte* const in = as_it_is ? static_cast<const std::byte*>(piece.input) : scratch;
    // An output that overlaps the input must not be written while the input is read.
    std::byte* const result = scratch + filled;
    if (fits(piece.elements)) {
      check(MPI_Reduce_scatter(in, result, as_ints(counts).data(), type_of(values.dtype),
                               op_of(values.dtype, values.op), comm_),
            "MPI_Reduce_scatter");
    } else {
      const std::byte* from = in;
      for (int to = 0; to < size_; ++to) {
        const std::int64_t count = counts[static_cast<std::size_t>(to)];
        by_portions(count, [&](std::int64_t at, int portion) {
          check(MPI_Reduce(from + values.bytes(at), result + values.bytes(at), portion, type_of(values.dtype),
                           op_of(values.dtype, values.op), to, comm_),
                "MPI_Reduce");
        });
        from += values.bytes(count);
      }
    }
    if (piece.output != nullptr && own > 0) values.scale(1.0, values.postscale, result, piece.output, own);
  }
}

}  // namespace hvd::mpi
