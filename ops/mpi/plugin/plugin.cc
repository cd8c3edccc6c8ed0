// MPI as a plugin (hvd_plugin.h). The sources of this folder are compiled once for each binary interface of MPI,
// against independent declarations (mpi_declarations.h), and linked with no MPI: the one that the process has, or would
// load, is opened before them (ops/mpi/mpi_library.h).
//
// MPI adds in an arbitrary order. A result is the same on every rank, but its last bits may depend on which tensors are
// reduced together, and 16-bit floats are rounded after each addition.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/tensor/collective.h"
#include "core/tensor/dtype.h"
#include "hvd_plugin.h"
#include "ops/algorithms/packing.h"
#include "ops/mpi/plugin/mpi_declarations.h"
#include "ops/reduction/reduce.h"

namespace hvd::mpi {

namespace {

// ---- This process in MPI: initialised by this plugin, or earlier by other code such as mpi4py, which then also
// finalises it at exit.
//
// hvd can be initialised several times, MPI only once: a process that has joined MPI stays in it.

class Failure : public std::runtime_error {
 public:
  Failure(hvd_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  hvd_status status() const { return status_; }

 private:
  hvd_status status_;
};

// Throws Failure with MPI's text unless `code` is MPI_SUCCESS.
void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  const bool known = MPI_Error_string(code, text.data(), &length) == MPI_SUCCESS;
  throw Failure(HVD_INTERNAL, std::string(what) + ": " + (known ? text.data() : "unknown error of MPI"));
}

// "Open MPI v4.1.4": the first line of the library's version text. Needs no initialisation.
std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  const std::string all(text.data());
  std::string first = all.substr(0, all.find_first_of(",\n"));
  for (char& c : first) {
    if (c == '\t') c = ' ';
  }
  return first;
}

std::atomic<bool> finalize_skipped{false};
std::atomic<int> calls_under_way{0};
pid_t initialised_in = 0;  // a forked child is not in MPI

// MPI_Finalize waits for the other processes. A process that fails exits without it: the others may not reach it before
// this process has ended.
void finalize_at_exit(int status, void*) {
  int finalized = 0;
  if (status != 0 || finalize_skipped || calls_under_way > 0 || getpid() != initialised_in ||
      MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  MPI_Finalize();
}

bool is(int (*ask)(int*)) {
  int answer = 0;
  check(ask(&answer), ask == MPI_Finalized ? "MPI_Finalized" : "MPI_Initialized");
  return answer != 0;
}

// Initialises MPI unless it is initialised. Throws Failure: MPI was already finalised, or cannot be initialised.
void join() {
  static Mutex mutex;
  const MutexLock lock(mutex);
  if (is(MPI_Finalized)) throw Failure(HVD_UNSUPPORTED, "MPI has been finalized in this process");
  if (is(MPI_Initialized)) return;
  int level = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "initialising MPI");
  initialised_in = getpid();
  on_exit(finalize_at_exit, nullptr);
}

// The level of thread support of MPI: MPI_THREAD_SINGLE and so on. After join().
int thread_level() {
  int level = MPI_THREAD_SINGLE;
  check(MPI_Query_thread(&level), "asking for MPI's thread level");
  return level;
}

// Registers a function that is called before MPI is finalised, by any code, to free MPI objects: MPI_Finalize first
// deletes what is attached to MPI_COMM_SELF (MPI 4.0, section 11.2.4).
void at_finalize(void (*give_back)()) {
  int key = MPI_KEYVAL_INVALID;
  check(MPI_Comm_create_keyval(
            [](MPI_Comm, int, void*, void*, void*, int* is_copied) {
              *is_copied = 0;
              return MPI_SUCCESS;
            },
            [](MPI_Comm, int, void* attached, void*) {
              reinterpret_cast<void (*)()>(attached)();
              return MPI_SUCCESS;
            },
            &key, nullptr),
        "registering a finalize callback");
  check(MPI_Comm_set_attr(MPI_COMM_SELF, key, reinterpret_cast<void*>(give_back)), "registering a finalize callback");
  MPI_Comm_free_keyval(&key);
}

// Called after an error in the middle of communication: prevents MPI_Finalize at exit, which might block forever. The
// launcher detects a process that exits without it.
void skip_finalize() { finalize_skipped = true; }

// Marks a call of MPI, which may never return: MPI is not finalised at exit while such an object exists.
class InMpi {
 public:
  InMpi() { ++calls_under_way; }
  ~InMpi() { --calls_under_way; }
  InMpi(const InMpi&) = delete;
  InMpi& operator=(const InMpi&) = delete;
};

// ---- A group's ranks

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

class Communicator {
 public:
  // All ranks of the group call together. Throws Failure.
  Communicator(const hvd_plugin_host& host, const hvd_plugin_group& group) : rank_(group.rank), size_(group.size) {
    join();
    comm_ = make_comm(group);
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting MPI's error handler");
    void* bound = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &bound, &found), "asking for MPI's highest tag");
    highest_tag_ = found != 0 ? *static_cast<int*>(bound) : 32767;
    host.log(host.context, 2, (library_version() + ", " + std::to_string(size_) + " ranks").c_str());
  }

  ~Communicator() {
    int finalized = 0;
    if (left_open_ || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
    MPI_Comm_free(&comm_);
  }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Whether MPI's collectives support this call.
  static bool can_do(const hvd_plugin_call& call) {
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

  void run(const hvd_plugin_call& call) {
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

  MPI_Comm comm() const { return comm_; }
  // The largest tag of a message.
  int highest_tag() const { return highest_tag_; }
  // Does not free the communicator in the destructor: messages are still pending.
  void leave_open() { left_open_ = true; }

 private:
  // The call's arguments in C++.
  struct Values {
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

  void allreduce(const Values& values) {
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
  void allgather(const Values& values) {
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

  void broadcast(const Values& values) {
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

  void alltoall(const Values& values) {
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
    auto* out = piece.output != nullptr ? static_cast<std::byte*>(piece.output)
                                        : scratch_.take(values.bytes(total_of(received)));
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

  void reducescatter(const Values& values) {
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

  const int rank_;
  const int size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int highest_tag_ = 0;
  bool left_open_ = false;
  Scratch scratch_;
};

// ---- The plugin

// Messages for hvd_plugin_transport: MPI's non-blocking sends and receives. The label is sent as MPI's tag, modulo the
// range of tags; a receive takes the next message from its peer, and compares the tags. Messages longer than an int can
// represent are sent in several parts, in order.
struct Message {
  // Part i is requests[i].
  std::vector<MPI_Request> requests;
  std::vector<int> lengths;
  int tag = 0;
  bool received = false;
};

constexpr std::size_t kPart = std::size_t{1} << 30;

// Calls post(offset, length of the part, tag, request to set). A message without bytes also has a part.
template <typename Post>
Message* in_parts(const Communicator& communicator, std::uint64_t label, std::size_t size, bool received,
                  const Post& post) {
  auto message = std::make_unique<Message>();
  message->tag = static_cast<int>(label % (static_cast<std::uint64_t>(communicator.highest_tag()) + 1));
  message->received = received;
  std::size_t at = 0;
  do {
    const std::size_t length = std::min(kPart, size - at);
    message->lengths.push_back(static_cast<int>(length));
    check(post(at, static_cast<int>(length), message->tag, &message->requests.emplace_back(MPI_REQUEST_NULL)),
          "posting a message");
    at += length;
  } while (at < size);
  return message.release();
}

void check_part(const Message& message, std::size_t part, MPI_Status& status) {
  int length = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &length), "asking for a message's length");
  if (status.MPI_TAG == message.tag && length == message.lengths[part]) return;
  throw Failure(HVD_INTERNAL, "ranks are out of step: a message of " + std::to_string(length) + " bytes with label " +
                                  std::to_string(status.MPI_TAG) + " came where one of " +
                                  std::to_string(message.lengths[part]) + " with label " + std::to_string(message.tag) +
                                  " was expected");
}

// The memory belongs to MPI until test() has returned true or thrown.
Message* post_send(const Communicator& communicator, int peer, std::uint64_t label, const void* bytes,
                   std::size_t size) {
  return in_parts(communicator, label, size, false, [&](std::size_t at, int length, int tag, MPI_Request* request) {
    return MPI_Isend(static_cast<const std::byte*>(bytes) + at, length, MPI_BYTE, peer, tag, communicator.comm(),
                     request);
  });
}

Message* post_receive(const Communicator& communicator, int peer, std::uint64_t label, void* bytes, std::size_t size) {
  return in_parts(communicator, label, size, true, [&](std::size_t at, int length, int /*tag*/, MPI_Request* request) {
    return MPI_Irecv(static_cast<std::byte*>(bytes) + at, length, MPI_BYTE, peer, MPI_ANY_TAG, communicator.comm(),
                     request);
  });
}

// Returns true if the message is complete; it is deleted then, and also if this throws.
bool test(Message* message) {
  for (std::size_t part = 0; part < message->requests.size(); ++part) {
    if (message->requests[part] == MPI_REQUEST_NULL) continue;
    int done = 0;
    MPI_Status status{};
    const int code = MPI_Test(&message->requests[part], &done, &status);
    if (code == MPI_SUCCESS && done == 0) return false;
    // Incomplete parts still belong to MPI: this exception ends the job.
    try {
      check(code, message->received ? "receiving a message" : "sending a message");
      if (message->received) check_part(*message, part, status);
    } catch (...) {
      delete message;
      throw;
    }
  }
  delete message;
  return true;
}

// MPI's own collectives serve CPU tensors if HVD_CPU_BACKEND requires it, in which case hvd opens them as a backend.
constexpr std::int32_t kScore = 200;

std::string& last_text() {
  thread_local std::string text;
  return text;
}

// Runs `work`, and converts exceptions to a status.
template <typename Work>
hvd_status guarded(const Work& work) {
  try {
    work();
    return HVD_OK;
  } catch (const Failure& failure) {
    last_text() = failure.what();
    return failure.status();
  } catch (const std::exception& error) {
    last_text() = error.what();
    return HVD_INTERNAL;
  }
}

Communicator& communicator_of(void* opened) { return *static_cast<Communicator*>(opened); }

// hvd calls MPI from threads that did not initialise it: without MPI_THREAD_SERIALIZED it can only start a job.
void check_threads() {
  if (thread_level() >= MPI_THREAD_SERIALIZED) return;
  throw Failure(
      HVD_UNSUPPORTED,
      "MPI was initialised for calls from one thread only, so that hvd cannot move data with it: initialise it with "
      "MPI_THREAD_MULTIPLE");
}

hvd_status open_group(const hvd_plugin_host* host, const hvd_plugin_group* group, void** opened) {
  return guarded([&] {
    const InMpi counted;
    join();
    check_threads();
    // Groups of some ranks operate concurrently with others.
    int world = 0;
    check(MPI_Comm_size(MPI_COMM_WORLD, &world), "asking for MPI's size");
    if (group->size < world && thread_level() < MPI_THREAD_MULTIPLE) {
      throw Failure(HVD_UNSUPPORTED,
                    "MPI was not initialised with MPI_THREAD_MULTIPLE: it serves only the process set of all ranks");
    }
    *opened = new Communicator(*host, *group);
  });
}

void close_group(void* opened, int failed) {
  Communicator* const communicator = static_cast<Communicator*>(opened);
  if (failed != 0) {
    skip_finalize();
    communicator->leave_open();
  }
  guarded([&] { delete communicator; });
}

hvd_status run(void* opened, const hvd_plugin_call* call) {
  const hvd_status status = guarded([&] {
    const InMpi counted;
    communicator_of(opened).run(*call);
  });
  if (status != HVD_OK) skip_finalize();
  return status;
}

hvd_status join_job(int32_t* rank, int32_t* size) {
  return guarded([&] {
    join();
    check(MPI_Comm_rank(MPI_COMM_WORLD, rank), "asking for this process's rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, size), "asking for MPI's size");
  });
}

hvd_status broadcast(void* bytes, size_t size) {
  return guarded([&] { check(MPI_Bcast(bytes, static_cast<int>(size), MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast"); });
}

hvd_status send(void* opened, int32_t peer, uint64_t label, const void* bytes, size_t size, void** operation) {
  return guarded([&] { *operation = post_send(communicator_of(opened), peer, label, bytes, size); });
}

hvd_status receive(void* opened, int32_t peer, uint64_t label, void* bytes, size_t size, void** operation) {
  return guarded([&] { *operation = post_receive(communicator_of(opened), peer, label, bytes, size); });
}

hvd_status test_message(void* /*opened*/, void* operation, int* done) {
  return guarded([&] { *done = test(static_cast<Message*>(operation)) ? 1 : 0; });
}

// Checks the library only: no job can be created to test it.
hvd_status self_test() {
  return guarded([] {
    int version = 0, subversion = 0;
    check(MPI_Get_version(&version, &subversion), "asking for MPI's version");
    if (version < 3) throw Failure(HVD_UNSUPPORTED, "this MPI is older than version 3 of the standard");
  });
}

}  // namespace

}  // namespace hvd::mpi

extern "C" HVD_API const hvd_plugin* hvd_plugin_get(uint32_t abi_version) {
  using namespace hvd::mpi;
  if (abi_version != HVD_PLUGIN_ABI_VERSION) return nullptr;
  static const std::string description = library_version();
  static const hvd_plugin_launch launch = {sizeof launch, join_job, broadcast};
  static const hvd_plugin_transport transport = {sizeof transport, send, receive, test_message};
  static const hvd_plugin plugin = {
      sizeof plugin,
      HVD_PLUGIN_ABI_VERSION,
      "mpi",
      description.c_str(),
      [] { return last_text().c_str(); },
      self_test,
      open_group,
      [](void*, const hvd_plugin_call* call) { return Communicator::can_do(*call) ? kScore : 0; },
      run,
      close_group,
      &launch,
      &transport,
  };
  return &plugin;
}
