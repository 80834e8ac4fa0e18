// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/test_world.h"

#include <unistd.h>

#include <cstdlib>
#include <deque>

#include "base/settings.h"
#include "base/split_mix.h"

namespace turnout {
namespace {

// Jobs are done in their order, each some calls of done() after it could have been.
class LateBackground final : public Background {
 public:
  explicit LateBackground(std::uint64_t seed) : random_(seed) {}
  void start(std::unique_ptr<Job> job) override {
    job->run();
    jobs_.push_back(std::move(job));
  }
  std::unique_ptr<Job> done() override {
    if (jobs_.empty() || random_.next() % 8 != 0) return nullptr;
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

 private:
  SplitMix64 random_;
  std::deque<std::unique_ptr<Job>> jobs_;
};

}  // namespace

TestWorld::TestWorld(std::size_t endpoints, const Overrides& overrides, std::uint64_t late_seed) {
  // The adapter reads the fabric's name from the environment; one fabric for the process's life.
  setenv("TURNOUT_FABRIC", ("core-test-" + std::to_string(getpid())).c_str(), 1);
  Settings settings = Settings::defaults();
  settings.setup_thread = false;
  EXPECT_TRUE(settings.set("device", "virtual").ok());
  // So that a message of a few pages uses rendezvous; the adapter would have it eager.
  EXPECT_TRUE(settings.set("rendezvous_threshold", "4000").ok());
  EXPECT_TRUE(settings.set("fabric", getenv("TURNOUT_FABRIC")).ok());
  if (const char* path = getenv("TURNOUT_VERBS_PATH")) {
    EXPECT_TRUE(settings.set("verbs_path", path).ok());
  }
  // The same tests on a device without DC.
  if (const char* channel = getenv("TURNOUT_DEFAULT_TRANSPORT")) {
    EXPECT_TRUE(settings.set("default_transport", channel).ok());
  }
  for (const auto& [name, value] : overrides) {
    EXPECT_TRUE(settings.set(name, value).ok()) << name;
  }
  for (std::size_t i = 0; i < endpoints; ++i) {
    EndpointOptions options;
    if (late_seed != 0) options.background = std::make_unique<LateBackground>(late_seed + i);
    auto endpoint = Endpoint::create(settings, clock_, std::move(options));
    if (!endpoint) {
      ADD_FAILURE() << endpoint.status().text();
      throw std::runtime_error(endpoint.status().text());
    }
    endpoints_.push_back(std::move(endpoint).value());
    queues_.push_back(std::make_unique<CompletionQueue>());
  }
}

TestWorld::~TestWorld() = default;

PeerId TestWorld::peer(std::size_t at, std::size_t of) {
  auto id = endpoints_[at]->peer(endpoints_[of]->address());
  EXPECT_TRUE(id.ok()) << id.status().text();
  return id.ok() ? id.value() : kAnyPeer;
}

void TestWorld::progress_all(int rounds) {
  for (int r = 0; r < rounds; ++r) {
    for (auto& endpoint : endpoints_) {
      if (endpoint) endpoint->progress();
    }
  }
}

}  // namespace turnout
