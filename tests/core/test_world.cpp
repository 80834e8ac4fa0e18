#include "tests/core/test_world.h"

#include <unistd.h>

#include <cstdlib>

#include "base/settings.h"

namespace turnout {

TestWorld::TestWorld(std::size_t endpoints,
                     std::vector<std::pair<std::string, std::string>> overrides) {
  // The adapter reads the fabric's name from the environment; one fabric for the process's life.
  setenv("TURNOUT_FABRIC", ("core-test-" + std::to_string(getpid())).c_str(), 1);
  Settings settings = Settings::defaults();
  EXPECT_TRUE(settings.set("device", "virtual").ok());
  EXPECT_TRUE(settings.set("fabric", getenv("TURNOUT_FABRIC")).ok());
  if (const char* path = getenv("TURNOUT_VERBS_PATH")) {
    EXPECT_TRUE(settings.set("verbs_path", path).ok());
  }
  // The same tests on a device without DC.
  if (const char* channel = getenv("TURNOUT_START_CHANNEL")) {
    EXPECT_TRUE(settings.set("start_channel", channel).ok());
  }
  for (const auto& [name, value] : overrides) {
    EXPECT_TRUE(settings.set(name, value).ok()) << name;
  }
  for (std::size_t i = 0; i < endpoints; ++i) {
    auto endpoint = Endpoint::create(settings, clock_);
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
