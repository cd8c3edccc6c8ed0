#include "core/base/hazard_pointer.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("an object is destroyed when the last of nested uses has ended") {
  HazardPointers pointers;
  HazardPointers::Pointer& own = pointers.take();
  HazardPointers::Pointer& other = pointers.take();
  auto object = std::make_shared<int>();
  const std::weak_ptr<int> seen = object;

  const void* const outer = own.exchange(object.get());
  const void* const inner = own.exchange(object.get());
  const void* const by_other = other.exchange(object.get());
  pointers.retire(std::move(object), Clock::now());
  const auto is_destroyed = [&] {
    pointers.retire(std::make_shared<int>(), Clock::now());
    return seen.expired();
  };
  CHECK_FALSE(is_destroyed());
  own.restore(inner);
  other.restore(by_other);
  CHECK_FALSE(is_destroyed());
  own.restore(outer);
  CHECK(is_destroyed());
}

TEST_CASE("an object to which others have references is not destroyed") {
  HazardPointers pointers;
  auto object = std::make_shared<int>();
  std::shared_ptr<int> another = object;
  const std::weak_ptr<int> seen = object;
  pointers.retire(std::move(object), Clock::now());
  CHECK_FALSE(seen.expired());
  another.reset();
  pointers.retire(std::make_shared<int>(), Clock::now());
  CHECK(seen.expired());
}

TEST_CASE("a pointer that a thread has given back serves the next thread") {
  HazardPointers pointers;
  HazardPointers::Pointer& first = pointers.take();
  HazardPointers::Pointer& second = pointers.take();
  CHECK(&first != &second);
  HazardPointers::give_back(first);
  CHECK(&pointers.take() == &first);
}

TEST_CASE("no thread finds an object destroyed that it uses") {
  constexpr std::size_t kObjects = 500;
  HazardPointers pointers;
  std::vector<std::atomic<bool>> destroyed(kObjects);
  const auto make = [&](std::size_t i) {
    return std::shared_ptr<std::atomic<bool>>(&destroyed[i], [](std::atomic<bool>* own) { *own = true; });
  };
  std::shared_ptr<std::atomic<bool>> owned = make(0);
  std::atomic<std::atomic<bool>*> current{owned.get()};
  std::atomic<int> destroyed_in_use{0};
  std::vector<std::thread> users;
  for (int i = 0; i < 2; ++i) {
    users.emplace_back([&] {
      HazardPointers::Pointer& own = pointers.take();
      while (const std::atomic<bool>* const object = current.load()) {
        const void* const before = own.exchange(object);
        if (current.load() == object) {
          for (int again = 0; again < 20; ++again) destroyed_in_use += *object ? 1 : 0;
        }
        own.restore(before);
      }
      HazardPointers::give_back(own);
    });
  }
  for (std::size_t i = 1; i <= kObjects; ++i) {
    std::shared_ptr<std::atomic<bool>> next = i < kObjects ? make(i) : nullptr;
    current = next.get();
    pointers.retire(std::exchange(owned, std::move(next)), deadline_after(10s));
  }
  for (std::thread& user : users) user.join();
  CHECK(destroyed_in_use == 0);
  CHECK(std::ranges::all_of(destroyed, [](const std::atomic<bool>& one) { return one.load(); }));
}
