// The choice in whole jobs: what init makes of HVD_ALGORITHM, what a job says of its table, and which sums come out.
#include <algorithm>
#include <future>
#include <string>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "ops/registry.h"
#include "tests/support/catch.h"
#include "tests/support/link_costs.h"
#include "tests/support/run_ranks.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

const Layout kOneHost{{3}}, kTcp{{4}, false}, kTwoHosts{{2, 2}}, kFourHosts{{1, 1, 1, 1}};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// How starting ended on each rank, with HVD_ALGORITHM by rank.
std::vector<Status> start(const Layout& layout, const std::vector<std::string>& algorithm) {
  Store store;
  const JobKey key = JobKey::random();
  std::vector<std::future<Status>> ranks;
  for (int rank = 0; rank < layout.size(); ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank]() -> Status {
      try {
        const Environment environment{{"HVD_SIZE", std::to_string(layout.size())},
                                      {"HVD_RANK", std::to_string(rank)},
                                      {"HVD_START_TIMEOUT", "10"},
                                      {"HVD_LOG_LEVEL", "off"},
                                      {"HVD_SHARED_MEMORY", layout.shared_memory ? "1" : "0"},
                                      {"HVD_ALGORITHM", algorithm[static_cast<std::size_t>(rank)]}};
        const std::string host = "h" + std::to_string(rank / layout.ranks_by_host.front());
        Runtime runtime(read_config(environment).config, {.store = store,
                                                          .job_key = key,
                                                          .identity = {.host_key = host, .hostname = host, .pid = 1},
                                                          .local_host_address = "127.0.0.1",
                                                          .make_data_plane = data_plane_with(kTenGigabit),
                                                          .make_channel = make_channel});
        return {};
      } catch (...) {
        return current_exception_status();
      }
    }));
  }
  std::vector<Status> ended;
  for (auto& rank : ranks) ended.push_back(rank.get());
  return ended;
}

std::vector<float> allreduce(Runtime& runtime, std::vector<float> values) {
  CallArguments call;
  call.inputs = call.outputs = {{.data = values.data(), .shape = {static_cast<std::int64_t>(values.size())}}};
  perform(runtime, call);
  return values;
}

}  // namespace

TEST_CASE("an HVD_ALGORITHM that makes no sense ends init on every rank, with what is wrong") {
  for (const Layout& layout : {kOneHost, kTcp, kTwoHosts}) {
    CAPTURE(layout.name());
    const std::vector<std::string> text(static_cast<std::size_t>(layout.size()), "allreduce:0-64k=rign");
    for (const Status& status : start(layout, text)) {
      CAPTURE(status.message());
      CHECK(status.code() == StatusCode::invalid_argument);
      CHECK(contains(status.message(), "HVD_ALGORITHM='allreduce:0-64k=rign': 'rign' is no algorithm"));
      CHECK(contains(status.message(), "one_shot, bruck, direct, halving_doubling, ring"));
    }
  }
}

TEST_CASE("ranks that want other algorithms do not start") {
  for (const Status& status : start({{2}}, {"allreduce:-=ring", "allreduce:-=direct"})) {
    CHECK(status.code() == StatusCode::mismatch);
    CHECK(contains(status.message(), "HVD_ALGORITHM=allreduce:-=ring"));
    CHECK(contains(status.message(), "HVD_ALGORITHM=allreduce:-=direct"));
  }
}

TEST_CASE("a job says which algorithm serves what, the same on all ranks of a host") {
  struct Case {
    Layout layout;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases{
      {{{1}}, {"one rank", "0-  alone"}},
      {kOneHost, {"3 ranks of a host", "0-113", "inline_payload", "sliced", "resident"}},
      {kTcp, {"4 ranks over TCP", "one_shot", "ring", "bfloat16", "links: 20 us"}},
      {kTwoHosts, {"2 hosts over TCP", "one_shot", "links: 20 us"}},
      {kFourHosts, {"4 ranks over TCP", "nothing by halving_doubling"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.layout.name());
    std::vector<std::string> texts(static_cast<std::size_t>(c.layout.size()));
    REQUIRE_NOTHROW(run_ranks({c.layout, {}}, [&texts](Runtime& runtime) {
      texts[static_cast<std::size_t>(runtime.topology().rank)] = runtime.algorithms();
    }));
    CAPTURE(texts.front());
    for (const std::string& text : texts) CHECK(text == texts.front());
    for (const std::string& word : c.words) CHECK(contains(texts.front(), word));
  }
}

TEST_CASE("links that are measured at start give every rank the same table") {
  for (const Layout& layout : {kTcp, kTwoHosts, Layout{{2, 1, 2}}}) {
    CAPTURE(layout.name());
    std::vector<std::string> texts(static_cast<std::size_t>(layout.size()));
    REQUIRE_NOTHROW(run_ranks({layout, {}, true}, [&texts](Runtime& runtime) {
      texts[static_cast<std::size_t>(runtime.topology().rank)] = runtime.algorithms();
      require(
          allreduce(runtime, std::vector<float>(100'000, 1.0f)).back() == static_cast<float>(runtime.topology().size),
          "the sum is wrong");
    }));
    CHECK(contains(texts.front(), "links: "));
    for (const std::string& text : texts) CHECK(text == texts.front());
  }
}

TEST_CASE("whatever HVD_ALGORITHM says, sums are right") {
  for (const Layout& layout : {kTcp, kTwoHosts, kFourHosts, Layout{{1, 2}}}) {
    for (const char* algorithm : {"one_shot", "bruck", "direct", "halving_doubling", "ring"}) {
      CAPTURE(layout.name(), algorithm);
      const Environment environment{{"HVD_ALGORITHM", std::string("allreduce:-=") + algorithm},
                                    {"HVD_DETERMINISTIC", "0"}};
      REQUIRE_NOTHROW(run_ranks({layout, environment}, [algorithm](Runtime& runtime) {
        require(contains(runtime.algorithms(), "0-  " + std::string(algorithm) + "  HVD_ALGORITHM says so"),
                "the table");
        for (const std::size_t elements : {1u, 1000u, 300'000u}) {
          const auto sums = allreduce(runtime, std::vector<float>(elements, 1.0f));
          require(sums == std::vector<float>(elements, static_cast<float>(runtime.topology().size)),
                  "the sum is wrong");
        }
      }));
    }
  }
}

TEST_CASE("halving and doubling runs where it is wanted: its order shows in the sum") {
  // Partners two apart first: (large - large) + (1 + 1). The others go round: ((1 - large) + 1) + large.
  const auto sum_by = [](const std::string& algorithm) {
    const Environment environment{{"HVD_ALGORITHM", "allreduce:-=" + algorithm}, {"HVD_DETERMINISTIC", "0"}};
    std::vector<float> sums(4);
    run_ranks({kFourHosts, environment}, [&sums](Runtime& runtime) {
      const int rank = runtime.topology().rank;
      const float values[] = {1e8f, 1.0f, -1e8f, 1.0f};
      sums[static_cast<std::size_t>(rank)] = allreduce(runtime, {values[rank]}).front();
    });
    return sums;
  };
  CHECK(sum_by("halving_doubling") == std::vector<float>(4, 2.0f));
  for (const char* other : {"one_shot", "bruck", "direct", "ring"}) CHECK(sum_by(other) == std::vector<float>(4, 0.0f));
}
