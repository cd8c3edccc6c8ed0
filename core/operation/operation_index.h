// Operations by name: an intrusive hash table, so that inserting allocates nothing. Owns nothing.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/operation/operation.h"
#include "core/operation/operation_name.h"

namespace hvd {

// kNext: the link member; an operation can be in one table for each.
template <Operation* Operation::*kNext>
class OperationIndex {
 public:
  // Null if no operation has the name.
  Operation* find(std::size_t hash, std::string_view name) const {
    Operation* found = chain(hash);
    while (found != nullptr && (found->hash != hash || found->spec.name != name)) found = found->*kNext;
    return found;
  }

  // Requires that no operation has its name.
  void insert(Operation& operation) {
    if (size_ == chains_.size()) grow();
    ++size_;
    link(operation);
  }

  // Requires that the operation is in the table.
  void remove(Operation& operation) {
    Operation** place = &chain(operation.hash);
    while (*place != &operation) place = &((*place)->*kNext);
    *place = operation.*kNext;
    --size_;
  }

  std::size_t size() const { return size_; }

  // Calls visit(operation) for each, in no order; it may remove the operation that it is given.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (Operation* first : chains_) {
      for (Operation* one = first; one != nullptr;) {
        Operation& visited = *one;
        one = one->*kNext;
        visit(visited);
      }
    }
  }

 private:
  static constexpr std::size_t kFirstChains = 16;

  Operation*& chain(std::size_t hash) { return chains_[hash & (chains_.size() - 1)]; }
  Operation* chain(std::size_t hash) const { return chains_[hash & (chains_.size() - 1)]; }

  void link(Operation& operation) {
    Operation*& first = chain(operation.hash);
    operation.*kNext = first;
    first = &operation;
  }

  void grow() {
    std::vector<Operation*> old(chains_.size() * 2);
    old.swap(chains_);
    for (Operation* one : old) {
      while (one != nullptr) {
        Operation* const next = one->*kNext;
        link(*one);
        one = next;
      }
    }
  }

  std::vector<Operation*> chains_ = std::vector<Operation*>(kFirstChains);  // a power of two
  std::size_t size_ = 0;
};

}  // namespace hvd
