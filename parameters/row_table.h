// The rows of one table on one shard: values and optimizer state by 64-bit key, in memory that grows by slabs, found
// through a hash table with linear probing. Rows never move; the memory of a removed row is reused. RowEviction chooses
// the rows to evict.
//
// Used by one thread. Nothing is allocated for a row that exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hvd {

class RowTable {
 public:
  struct Row {
    std::uint64_t key = 0;
    std::uint32_t used = 0;   // when it was used last, in a unit of the caller
    std::uint32_t touch = 0;  // for the caller: which request has met it last
    float* values() { return reinterpret_cast<float*>(this + 1); }
    const float* values() const { return reinterpret_cast<const float*>(this + 1); }
  };

  // `floats`: of a row, values and state.
  explicit RowTable(std::size_t floats);

  std::size_t size() const { return count_; }
  // That the rows and their index take, and what `rows` more rows will take besides.
  std::size_t bytes() const;
  std::size_t bytes_of_more(std::size_t rows) const;

  // Null if there is none.
  Row* find(std::uint64_t key) const;
  // A row that is not there yet, with undefined values. Throws std::bad_alloc.
  Row& insert(std::uint64_t key);
  void remove(std::uint64_t key);

  // By number, for loops over all rows: null where there is none. Numbers below end() are kept while rows come.
  std::size_t end() const { return end_; }
  Row* at(std::size_t number) const;

  // Asks the processor for the row's place in the index, which find() reads next.
  void prefetch(std::uint64_t key) const;

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  static constexpr std::size_t kSlabBytes = std::size_t{64} << 10;
  struct Free {
    void operator()(std::byte* slab) const;
  };

  std::size_t home(std::uint64_t key) const;
  std::size_t slot_of(std::uint64_t key) const;  // of the key, or the empty one where it would be
  Row& row(std::uint32_t number) const;
  void grow_index();

  const std::size_t row_bytes_;
  const std::size_t rows_per_slab_;
  std::vector<std::unique_ptr<std::byte, Free>> slabs_;
  std::vector<std::uint32_t> index_;   // row numbers; a power of two
  std::vector<std::uint32_t> vacant_;  // numbers of removed rows
  std::vector<bool> is_vacant_;        // by number; empty while no row has been removed
  std::size_t end_ = 0;
  std::size_t count_ = 0;
};

// Rows that a shard has evicted.
struct EvictedRows {
  std::uint16_t table = 0;
  std::vector<std::uint64_t> keys{};
};

// Decides which rows of a table go: where a push needs their places, the least recently used of a sample; with a
// maximum age, those that nobody has used for so long.
class RowEviction {
 public:
  // `rows` outlives this.
  RowEviction(std::uint16_t table, RowTable& rows) : table_(table), rows_(rows) {}

  // For a push: a number that no row has as its RowTable::Row::touch yet. Rows that get it are not evicted meanwhile.
  std::uint32_t begin_push() { return ++touch_; }

  // Evicts one row that the push in progress does not touch; there is one. `now`: in the unit of RowTable::Row::used.
  // `seed`: equal on copies of the shard. Appends to `kept` unless it is null.
  void evict_one(std::uint32_t now, std::uint64_t seed, std::vector<EvictedRows>* kept);

  // So many clocks have passed. Looks at as many rows as make all of them within max_age clocks: a row goes between
  // that and twice that age.
  void evict_aged(std::uint32_t now, std::uint32_t clocks, std::uint32_t max_age, std::vector<EvictedRows>* kept);
  // Nobody knows which rows were used before: none counts as older than now.
  void begin_ages(std::uint32_t now) { aged_since_ = now; }

  // How many rows were evicted: here, or by another copy of the shard.
  std::uint64_t count() const { return count_; }
  void evict(std::uint64_t key, std::vector<EvictedRows>* kept);

 private:
  const std::uint16_t table_;
  RowTable& rows_;
  std::uint64_t count_ = 0;
  std::uint32_t touch_ = 0;
  std::size_t swept_ = 0;  // the number of the row that evict_aged() looks at next
  std::uint32_t aged_since_ = 0;
};

}  // namespace hvd
