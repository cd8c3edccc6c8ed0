#include "ops/gpu/nccl_collectives.h"

#include <cstring>
#include <numeric>
#include <string>

#include "core/base/error.h"
#include "ops/gpu/reduction_plan.h"
#include "ops/reduction/half.h"
#include "ops/reduction/reduce.h"

namespace hvd::nccl {

namespace {

bool reduces(const CollectiveCall& call) {
  return call.collective == Collective::allreduce || call.collective == Collective::reducescatter;
}

bool all_equal(const std::vector<std::int64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// One number of a type, in NCCL's representation.
Scalar scalar(double value, Type type) {
  Scalar bytes{};
  const auto put = [&bytes](auto number) { std::memcpy(bytes.data(), &number, sizeof number); };
  // A float's factor may be too large for an integer.
  const auto whole = [value] { return static_cast<std::int64_t>(value); };
  switch (type) {
    case Type::int8:
    case Type::uint8: put(static_cast<std::uint8_t>(whole())); break;
    case Type::int32: put(static_cast<std::int32_t>(whole())); break;
    case Type::int64: put(whole()); break;
    case Type::float16: put(float_to_half(static_cast<float>(value))); break;
    case Type::bfloat16: put(float_to_bfloat16(static_cast<float>(value))); break;
    case Type::float32: put(static_cast<float>(value)); break;
    case Type::float64: put(value); break;
  }
  return bytes;
}

// The scope of an NCCL group. NCCL requires the group's end even if a call in it has failed.
class Group {
 public:
  explicit Group(const NcclCommunicator& communicator) : communicator_(communicator) {
    communicator_.library().check(communicator_.call().group_start(), "ncclGroupStart");
  }
  ~Group() {
    if (open_) communicator_.call().group_end();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void add(Result result, const char* what) const {
    communicator_.library().check(result, what, communicator_.handle());
  }
  void end(Deadline deadline) {
    open_ = false;
    communicator_.complete(communicator_.call().group_end(), "ncclGroupEnd", deadline);
  }

 private:
  const NcclCommunicator& communicator_;
  bool open_ = true;
};

class GroupEnqueuer {
 public:
  GroupEnqueuer(const CollectiveCall& call, const EnqueueContext& context, Deadline deadline)
      : call_(call),
        context_(context),
        deadline_(deadline),
        nccl_(context.communicator.call()),
        handle_(context.communicator.handle()),
        element_bytes_(size_of(call.dtype)) {}

  RetainedMemory enqueue() {
    context_.scratch.restart();
    context_.registered.restart();
    std::vector<Piece> pieces = whole_pieces();
    if (reduces(call_)) make_op();
    pack(pieces);
    {
      Group group(context_.communicator);
      for (std::size_t i = 0; i < pieces.size(); ++i) enqueue(group, pieces[i], i);
      if (call_.collective == Collective::allreduce) allreduce(group, packed_, packed_, packing_.elements);
      group.end(deadline_);
    }
    unpack();
    return std::move(retained_);
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(context_.rank); }

  // The call's pieces; missing tensors of a joined rank are replaced by device memory.
  std::vector<Piece> whole_pieces() {
    std::vector<Piece> pieces = call_.pieces;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Piece& piece = pieces[i];
      if (piece.output == nullptr) piece.output = take(call_.received(i, at()));
      const std::int64_t given = call_.given(i, at());
      if (piece.input != nullptr || given == 0) continue;
      void* const neutral = take(given);
      if (reduces(call_)) fill(neutral, given);
      piece.input = neutral;
    }
    return pieces;
  }

  void* take(std::int64_t elements) {
    if (elements == 0) return nullptr;
    return context_.scratch.take(context_.devices, context_.device, bytes_of(elements, call_.dtype));
  }

  void fill(void* target, std::int64_t elements) {
    const auto host = std::make_shared<std::vector<std::byte>>(bytes_of(elements, call_.dtype));
    fill_identity(call_.dtype, call_.op, host->data(), static_cast<std::size_t>(elements));
    context_.driver.check(context_.driver.call().memory.copy_in(reinterpret_cast<cuda::Address>(target), host->data(),
                                                                host->size(), context_.stream),
                          "cuMemcpyHtoDAsync");
    retained_.push_back(host);
  }

  void make_op() {
    plan_ = plan_reduction(call_, context_.kernels != nullptr);
    type_ = plan_.type;
    op_ = plan_.op;
    if (plan_.by_kernels) element_bytes_ = cuda::packed_size_of(call_.dtype);
    if (!plan_.scale) return;
    op_ = context_.communicator.scaled_sum(plan_.type, scalar(*plan_.scale, plan_.type), deadline_);
  }

  // Packs tensors into the buffer, in stream order. In `pieces` the buffer then replaces them, in place; for an
  // allreduce the pieces become empty, because the whole buffer is reduced at once.
  void pack(std::vector<Piece>& pieces) {
    if (!reduces(call_)) return;
    packing_ = plan_packing(call_, plan_, context_.kernels != nullptr);
    if (packing_.pieces.empty()) return;
    const std::size_t size = cuda::packed_size_of(call_.dtype);
    DeviceScratch& memory = call_.collective == Collective::allreduce ? context_.registered : context_.scratch;
    packed_ = static_cast<std::byte*>(
        memory.take(context_.devices, context_.device, static_cast<std::size_t>(packing_.elements) * size));
    std::vector<cuda::BucketPiece> inputs;
    for (const PackedPiece& packed_piece : packing_.pieces) {
      Piece& piece = pieces[packed_piece.piece];
      inputs.push_back({const_cast<void*>(piece.input), piece.elements, packed_piece.offset});
      const std::int64_t own = offset_of_local(packed_piece.piece);
      outputs_.push_back({piece.output, call_.received(packed_piece.piece, at()), packed_piece.offset + own});
      std::byte* const packed = packed_ + static_cast<std::size_t>(packed_piece.offset) * size;
      piece.input = packed;
      piece.output = packed + static_cast<std::size_t>(own) * size;
      if (call_.collective == Collective::allreduce) piece.elements = 0;
    }
    context_.kernels->pack(call_.dtype, inputs, packed_, plan_.before, context_.stream);
  }

  void unpack() const {
    if (!outputs_.empty()) context_.kernels->unpack(call_.dtype, outputs_, packed_, plan_.after, context_.stream);
  }

  // The offset of this rank's part of a result in its tensor, in elements.
  std::int64_t offset_of_local(std::size_t piece) const {
    if (call_.collective != Collective::reducescatter) return 0;
    const auto& counts = call_.counts[piece];
    return std::accumulate(counts.begin(), counts.begin() + context_.rank, std::int64_t{0});
  }

  void enqueue(const Group& group, const Piece& piece, std::size_t i) {
    const auto* const input = static_cast<const std::byte*>(piece.input);
    auto* const output = static_cast<std::byte*>(piece.output);
    switch (call_.collective) {
      case Collective::allreduce: return allreduce(group, input, output, piece.elements);
      case Collective::broadcast: return broadcast(group, input, output, piece.elements, call_.root);
      case Collective::allgather: return allgather(group, input, output, call_.counts[i]);
      case Collective::reducescatter: return reducescatter(group, input, output, call_.counts[i]);
      case Collective::alltoall: return alltoall(group, input, output);
      case Collective::barrier:
      case Collective::join: break;
    }
    throw Internal(std::string(collective_name(call_.collective)) + " of GPU tensors");
  }

  void allreduce(const Group& group, const std::byte* input, std::byte* output, std::int64_t elements) {
    if (elements == 0) return;
    group.add(nccl_.collective.allreduce(input, output, static_cast<std::size_t>(elements), type_, op_, handle_,
                                         context_.stream),
              "ncclAllReduce");
  }

  void broadcast(const Group& group, const std::byte* input, std::byte* output, std::int64_t elements, int root) {
    if (elements == 0) return;
    group.add(nccl_.collective.broadcast(input, output, bytes(elements), Type::uint8, root, handle_, context_.stream),
              "ncclBroadcast");
  }

  void allgather(const Group& group, const std::byte* input, std::byte* output,
                 const std::vector<std::int64_t>& counts) {
    if (all_equal(counts)) {
      if (counts.front() == 0) return;
      return group.add(
          nccl_.collective.allgather(input, output, bytes(counts.front()), Type::uint8, handle_, context_.stream),
          "ncclAllGather");
    }
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      broadcast(group, rank == at() ? input : output, output, counts[rank], static_cast<int>(rank));
      output += bytes(counts[rank]);
    }
  }

  void reducescatter(const Group& group, const std::byte* input, std::byte* output,
                     const std::vector<std::int64_t>& counts) {
    if (all_equal(counts)) {
      if (counts.front() == 0) return;
      return group.add(nccl_.collective.reducescatter(input, output, static_cast<std::size_t>(counts.front()), type_,
                                                      op_, handle_, context_.stream),
                       "ncclReduceScatter");
    }
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
      if (counts[rank] > 0) {
        group.add(nccl_.collective.reduce(input, output, static_cast<std::size_t>(counts[rank]), type_, op_,
                                          static_cast<int>(rank), handle_, context_.stream),
                  "ncclReduce");
      }
      input += bytes(counts[rank]);
    }
  }

  void alltoall(const Group& group, const std::byte* input, std::byte* output) {
    for (std::size_t peer = 0; peer < call_.counts.size(); ++peer) {
      const std::int64_t sent = call_.counts[at()][peer], received = call_.counts[peer][at()];
      if (sent > 0) {
        group.add(
            nccl_.collective.send(input, bytes(sent), Type::uint8, static_cast<int>(peer), handle_, context_.stream),
            "ncclSend");
      }
      if (received > 0) {
        group.add(nccl_.collective.receive(output, bytes(received), Type::uint8, static_cast<int>(peer), handle_,
                                           context_.stream),
                  "ncclRecv");
      }
      input += bytes(sent);
      output += bytes(received);
    }
  }

  std::size_t bytes(std::int64_t elements) const { return static_cast<std::size_t>(elements) * element_bytes_; }

  const CollectiveCall& call_;
  const EnqueueContext& context_;
  const Deadline deadline_;
  const Table& nccl_;
  const Handle handle_;
  ReductionPlan plan_;
  Packing packing_;
  std::byte* packed_ = nullptr;
  std::vector<cuda::BucketPiece> outputs_;  // of packed tensors
  std::size_t element_bytes_;               // of the data that NCCL receives
  Type type_ = Type::uint8;
  Op op_ = Op::sum;
  RetainedMemory retained_;
};

}  // namespace

Status objection_to(const CollectiveCall& call, bool kernels) {
  try {
    if (reduces(call)) plan_reduction(call, kernels);
    return {};
  } catch (const Unsupported& error) {
    return error.status();
  }
}

RetainedMemory enqueue(const CollectiveCall& call, const EnqueueContext& context, Deadline deadline) {
  return GroupEnqueuer(call, context, deadline).enqueue();
}

}  // namespace hvd::nccl
