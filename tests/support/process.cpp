// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/settings.h"

namespace turnout::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};  // a hang, not slowness, on any machine

class Deadline {
 public:
  void check(const char* what) const {
    if (Clock::now() > end_) fail(what, 0, "waited too long");
  }

 private:
  Clock::time_point end_ = Clock::now() + kPatience;
};

std::string option(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind(name, 0) == 0) return argument.substr(name.size());
  }
  return {};
}

pid_t start(const std::string& name, int role, int socket,
            const std::vector<std::string>& environment = {}) {
  const std::string arguments[] = {"--case=" + name, "--role=" + std::to_string(role),
                                   "--socket=" + std::to_string(socket)};
  const pid_t pid = fork();
  if (pid != 0) return pid;
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  execl("/proc/self/exe", "turnout-test", arguments[0].c_str(), arguments[1].c_str(),
        arguments[2].c_str(), nullptr);
  _exit(126);
}

// Empty if this process ended as it should.
std::string wait_for(pid_t pid, int role, bool to_be_killed) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return "waitpid; ";
  const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (to_be_killed ? killed : WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return "role " + std::to_string(role) +
         (WIFSIGNALED(status) ? " died by signal " + std::to_string(WTERMSIG(status))
                              : " ended with " + std::to_string(WEXITSTATUS(status))) +
         "; ";
}

}  // namespace

void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::_Exit(1);
}

std::map<std::string, Case>& cases() {
  static std::map<std::string, Case> all;
  return all;
}

void fill(std::vector<unsigned char>& data, std::size_t seed) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<unsigned char>(seed * 131 + i * 7 + (i >> 8));
  }
}

Process::Process(int which, int socket, const ProcessOptions& options)
    : role(which), socket_(socket) {
  fi_info* hints = fi_allocinfo();
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV |
                FI_SOURCE | options.caps;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->data_progress = options.progress;
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->fabric_attr->prov_name = ::strdup("turnout");
  CHECK_EQ(fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info), 0);
  fi_freeinfo(hints);
  CHECK_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
  CHECK_EQ(fi_domain(fabric, info, &domain, nullptr), 0);
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  cq_attr.wait_obj = options.wait;
  CHECK_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
  fi_av_attr av_attr{};
  av_attr.type = FI_AV_TABLE;
  CHECK_EQ(fi_av_open(domain, &av_attr, &av, nullptr), 0);
  CHECK_EQ(fi_endpoint(domain, info, &ep, nullptr), 0);
  CHECK_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
  CHECK_EQ(fi_ep_bind(ep, &cq->fid, options.tx_bind), 0);
  CHECK_EQ(fi_ep_bind(ep, &cq->fid, options.rx_bind), 0);
  if (options.counters) {
    fi_cntr_attr attr{};
    CHECK_EQ(fi_cntr_open(domain, &attr, &tx_counter, nullptr), 0);
    CHECK_EQ(fi_cntr_open(domain, &attr, &rx_counter, nullptr), 0);
    CHECK_EQ(fi_ep_bind(ep, &tx_counter->fid, FI_SEND | FI_READ | FI_WRITE), 0);
    CHECK_EQ(fi_ep_bind(ep, &rx_counter->fid, FI_RECV), 0);
  }
  CHECK_EQ(fi_enable(ep), 0);
  std::array<char, 64> mine{}, theirs{};
  std::size_t length = mine.size();
  CHECK_EQ(fi_getname(&ep->fid, mine.data(), &length), 0);
  exchange(mine.data(), theirs.data(), mine.size());
  CHECK_EQ(fi_av_insert(av, theirs.data(), 1, &peer, 0, nullptr), 1);
}

Process::~Process() {
  if (ep != nullptr) CHECK_EQ(fi_close(&ep->fid), 0);
  if (tx_counter != nullptr) CHECK_EQ(fi_close(&tx_counter->fid), 0);
  if (rx_counter != nullptr) CHECK_EQ(fi_close(&rx_counter->fid), 0);
  CHECK_EQ(fi_close(&av->fid), 0);
  CHECK_EQ(fi_close(&cq->fid), 0);
  CHECK_EQ(fi_close(&domain->fid), 0);
  CHECK_EQ(fi_close(&fabric->fid), 0);
  fi_freeinfo(info);
}

void Process::exchange(const void* out, void* in, std::size_t length) {
  CHECK_EQ(::send(socket_, out, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  auto* at = static_cast<char*>(in);
  const Deadline deadline;
  while (length != 0) {
    const ssize_t n = ::recv(socket_, at, length, MSG_DONTWAIT);
    CHECK(n != 0);  // the other side ended
    if (n > 0) {
      at += n;
      length -= static_cast<std::size_t>(n);
    } else if (cq != nullptr) {
      fi_cq_tagged_entry entry;
      if (early_.size() < 100000 && fi_cq_read(cq, &entry, 1) == 1) early_.push_back(entry);
    }
    sched_yield();
    deadline.check("exchange");
  }
}

std::uint64_t Process::swap(std::uint64_t value) {
  std::uint64_t other = 0;
  exchange(&value, &other, sizeof(other));
  return other;
}

void Process::barrier() {
  static_cast<void>(swap(0));
}

fi_cq_tagged_entry Process::next(fi_addr_t* source) {
  const Deadline deadline;
  fi_cq_tagged_entry entry;
  if (!early_.empty() && source == nullptr) {
    entry = early_.front();
    early_.erase(early_.begin());
    return entry;
  }
  for (;;) {
    const ssize_t n =
        source != nullptr ? fi_cq_readfrom(cq, &entry, 1, source) : fi_cq_read(cq, &entry, 1);
    if (n == 1) return entry;
    if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(cq, &error, 0);
      char text[256] = {};
      fi_cq_strerror(cq, error.prov_errno, error.err_data, text, sizeof(text));
      fail("completion", 0, std::string(fi_strerror(error.err)) + ": " + text);
    }
    CHECK_EQ(n, -FI_EAGAIN);
    sched_yield();
    deadline.check("next");
  }
}

fi_cq_err_entry Process::next_error() {
  const Deadline deadline;
  fi_cq_tagged_entry entry;
  for (;;) {
    const ssize_t n = fi_cq_read(cq, &entry, 1);
    if (n == -FI_EAVAIL) break;
    if (n == 1) early_.push_back(entry);
    sched_yield();
    deadline.check("next_error");
  }
  fi_cq_err_entry error{};
  CHECK_EQ(fi_cq_readerr(cq, &error, 0), 1);
  return error;
}

void Process::finish(std::vector<void*> contexts) {
  while (!contexts.empty()) {
    const fi_cq_tagged_entry entry = next();
    const auto at = std::find(contexts.begin(), contexts.end(), entry.op_context);
    CHECK(at != contexts.end());
    contexts.erase(at);
  }
}

void Process::post(const std::function<ssize_t()>& call) {
  const Deadline deadline;
  for (;;) {
    const ssize_t n = call();
    if (n == 0) return;
    CHECK_EQ(n, -FI_EAGAIN);
    fi_cq_tagged_entry entry;
    if (fi_cq_read(cq, &entry, 1) == 1) early_.push_back(entry);
    deadline.check("post");
  }
}

void Process::send(const void* data, std::size_t length, std::uint64_t tag) {
  int context = 0;
  post([&] { return fi_tsend(ep, data, length, nullptr, peer, tag, &context); });
  finish({&context});
}

fi_cq_tagged_entry Process::receive(void* data, std::size_t length, std::uint64_t tag) {
  int context = 0;
  post([&] { return fi_trecv(ep, data, length, nullptr, peer, tag, 0, &context); });
  const fi_cq_tagged_entry entry = next();
  CHECK(entry.op_context == &context);
  return entry;
}

std::string run_case(const std::string& name, int kill_role) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return "socketpair";
  const pid_t pids[2] = {start(name, 0, sockets[0]), start(name, 1, sockets[1])};
  close(sockets[0]);
  close(sockets[1]);
  return wait_for(pids[0], 0, kill_role == 0) + wait_for(pids[1], 1, kill_role == 1);
}

std::string run_alone(const std::string& name, const std::vector<std::string>& environment) {
  return wait_for(start(name, 0, -1, environment), 0, false);
}

void expect_in_every_way(const std::string& name) {
  for (const std::string_view way : kRendezvousNames) {
    setenv("TURNOUT_RENDEZVOUS", std::string(way).c_str(), 1);
    EXPECT_EQ(run_case(name), "") << way;
  }
  unsetenv("TURNOUT_RENDEZVOUS");
}

int run(int argc, char** argv) {
  const std::string name = option(argc, argv, "--case=");
  if (name.empty()) {
    ::testing::InitGoogleTest(&argc, argv);
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    setenv("FI_PROVIDER_PATH", (self.parent_path().parent_path() / "lib").c_str(), 0);
    setenv("FI_PROVIDER", "turnout", 0);
    setenv("TURNOUT_DEVICE", "virtual", 0);
    // Jobs of other tests share the machine: a fabric of its own for each run.
    setenv("TURNOUT_FABRIC", ("test-" + std::to_string(getpid())).c_str(), 0);
    return RUN_ALL_TESTS();
  }
  const auto found = cases().find(name);
  if (found == cases().end()) return 125;
  alarm(120);  // the last resort against a hang inside the library
  found->second(std::stoi(option(argc, argv, "--role=")),
                std::stoi(option(argc, argv, "--socket=")));
  return 0;
}

}  // namespace turnout::testing
