// Submissions by name: an intrusive hash table, so that inserting allocates nothing. Owns nothing.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/operation/name_map.h"
#include "core/operation/submission.h"

namespace hvd {

// kNext: the link member; a submission can be in one table for each.
template <Submission* Submission::*kNext>
class SubmissionIndex {
 public:
  // Null if no submission has the name.
  Submission* find(std::size_t hash, std::string_view name) const {
    Submission* found = chain(hash);
    while (found != nullptr && (found->hash != hash || found->request.name != name)) found = found->*kNext;
    return found;
  }

  // Requires that no submission has its name.
  void insert(Submission& submission) {
    if (size_ == chains_.size()) grow();
    ++size_;
    link(submission);
  }

  // Requires that the submission is in the table.
  void remove(Submission& submission) {
    Submission** place = &chain(submission.hash);
    while (*place != &submission) place = &((*place)->*kNext);
    *place = submission.*kNext;
    --size_;
  }

  std::size_t size() const { return size_; }

  // Calls visit(submission) for each, in no order; it may remove the submission that it is given.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (Submission* first : chains_) {
      for (Submission* one = first; one != nullptr;) {
        Submission& visited = *one;
        one = one->*kNext;
        visit(visited);
      }
    }
  }

 private:
  static constexpr std::size_t kFirstChains = 16;

  Submission*& chain(std::size_t hash) { return chains_[hash & (chains_.size() - 1)]; }
  Submission* chain(std::size_t hash) const { return chains_[hash & (chains_.size() - 1)]; }

  void link(Submission& submission) {
    Submission*& first = chain(submission.hash);
    submission.*kNext = first;
    first = &submission;
  }

  void grow() {
    std::vector<Submission*> old(chains_.size() * 2);
    old.swap(chains_);
    for (Submission* one : old) {
      while (one != nullptr) {
        Submission* const next = one->*kNext;
        link(*one);
        one = next;
      }
    }
  }

  std::vector<Submission*> chains_ = std::vector<Submission*>(kFirstChains);  // a power of two
  std::size_t size_ = 0;
};

}  // namespace hvd
