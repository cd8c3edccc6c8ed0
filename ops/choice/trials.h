// Choices that are made by trying while a job runs. Pure; the callers measure the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace hvd {

// Chooses the faster of two forms of a collective for messages of a size, by trying both: through shared memory in
// chunks, or by reading the other ranks' memory directly. On machines where memory is the bottleneck the second moves
// fewer bytes; where the chunks stay in caches the first is faster.
//
// For each power of two the first calls alternate between the forms, then the ranks add up their costs and use the
// cheaper form. Both produce the same bits. All ranks call in the same order and agree on the costs, so all of them
// choose the same form.
class FormTrials {
 public:
  enum class Form { chunks, reading };
  using Costs = std::array<double, 2>;  // seconds, by form

  struct Choice {
    Form form;
    bool is_trial;         // to be measured
    bool is_last = false;  // afterwards the ranks must agree on costs()
  };

  // Returns the form of the next call of that many bytes.
  Choice choose(std::int64_t bytes);
  // Undoes choose() for a call that does not take place.
  void take_back(std::int64_t bytes);
  void took(std::int64_t bytes, Form form, double seconds);
  // The costs on this rank.
  Costs costs(std::int64_t bytes) const;
  // Returns the decision for display.
  std::string agree(const char* collective, std::int64_t bytes, const Costs& of_all_ranks);

 private:
  static constexpr int kTrials = 4;  // per form, of which the first, into cold memory, is ignored

  struct Size {
    int calls = 0;
    Costs best{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    Form chosen = Form::chunks;
  };

  static std::size_t index_of(std::int64_t bytes);

  std::array<Size, 64> sizes_{};
};

// Chooses the faster of two ways to copy into memory that other CPUs have just read.
//
// A plain store must first take the line away from the CPU that read it last. Where CPUs are far from each other (on
// other dies, or as a virtual machine places them) that is most of an allreduce's time, and a streaming store, which
// sends whole lines to memory without requesting them first, is up to fifteen times as fast. Where CPUs are near it is
// often slower by the same factor. Virtual machines change between the two within seconds, so this is measured
// continuously: the other way is tried on one chunk in kTrial. Each rank chooses independently; the bytes are the same.
class CopyTrials {
 public:
  enum class Way { plain, streaming };

  // Returns the way of the next chunk.
  Way choose();
  void took(Way way, double seconds_per_byte);

 private:
  Way better() const;

  static constexpr unsigned kTrial = 64;

  unsigned chunks_ = 0;
  std::array<double, 2> cost_{};  // seconds per byte, smoothed; 0: unknown
};

}  // namespace hvd
