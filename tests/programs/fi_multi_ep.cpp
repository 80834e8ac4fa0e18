// SPDX-License-Identifier: BSD-3-Clause
// fi_multi_ep: several endpoints in one domain of each of two processes, as fabtests' program of
// this name has them. Memory is registered with the domain, before the first endpoint and after the
// last, and its one key must be good through each endpoint of either side: messages from each to
// each, writes and reads through each. Then one endpoint is closed, which the others must not
// notice, and another takes its place.
//
//   fi_multi_ep --provider turnout --endpoints 3
//
// All of it with queues and address vectors of the endpoints' own, and with shared ones.
// Exit code 0: every byte arrived where it belongs, and every completion in its endpoint's queue.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/programs/fi_node.h"

namespace {

using turnout::programs::AddressBytes;
using turnout::programs::FiError;
using turnout::programs::FiHandle;

constexpr std::size_t kMost = 8;        // endpoints
constexpr std::size_t kSlot = 100'000;  // what one endpoint writes and reads in a region
constexpr std::size_t kSizes[] = {8, 5'000, kSlot};  // in one packet, in some, by rendezvous

constexpr std::uint64_t kLast = 2'000, kLastTag = 1'000;  // messages: more than there are credits

struct Options {
  std::string provider = "turnout";
  std::size_t endpoints = 3;
};

struct Sharing {
  bool queue;
  bool vector;
};

// What the two processes tell each other beside libfabric.
struct Told {
  std::array<AddressBytes, kMost> address;
  std::array<std::uint64_t, 2> key, base;  // of each region
};
struct Shared {
  Told told[2];
  std::atomic<unsigned> arrived;
};

void check(int code, const char* call) {
  if (code != 0) throw FiError(call, code);
}

// Bytes that tell everything of a transfer apart.
unsigned char byte_of(std::uint64_t transfer, std::size_t at) {
  std::uint64_t x = (transfer << 32) + at / 7 + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return static_cast<unsigned char>((x >> 27) + at);
}
void fill(unsigned char* data, std::size_t size, std::uint64_t transfer) {
  for (std::size_t i = 0; i < size; ++i) data[i] = byte_of(transfer, i);
}
void verify(const unsigned char* data, std::size_t size, std::uint64_t transfer,
            const std::string& what) {
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == byte_of(transfer, i)) continue;
    throw std::runtime_error(fmt::format("{}: byte {} of {} is wrong", what, i, size));
  }
}

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

Info find_info(const std::string& provider) {
  const Info hints(fi_allocinfo());
  if (!hints) throw FiError("fi_allocinfo", -FI_ENOMEM);
  const bool tcp = provider == "tcp";
  hints->fabric_attr->prov_name = strdup(tcp ? "tcp;ofi_rxm" : provider.c_str());
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_TAGGED | FI_MSG | FI_RMA | FI_DIRECTED_RECV;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->av_type = FI_AV_TABLE;
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  fi_info* info = nullptr;
  check(fi_getinfo(FI_VERSION(1, 17), tcp ? "127.0.0.1" : nullptr, nullptr, tcp ? FI_SOURCE : 0,
                   hints.get(), &info),
        "fi_getinfo");
  return Info(info);
}

struct Operation {
  fi_context2 context{};  // first: what a completion names
  std::size_t endpoint = 0;
  bool done = false;
};

// One process with its domain. Members are closed in the reverse order.
class Side {
 public:
  Side(const Options& options, Sharing sharing, int rank, Shared& shared)
      : count_(options.endpoints),
        sharing_(sharing),
        rank_(static_cast<unsigned>(rank)),
        shared_(shared),
        info_(find_info(options.provider)) {
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    for (auto& memory : memory_) memory.resize(count_ * kSlot);
    local_.resize(count_ * kSlot);
    register_region(0);
    fid_mr* local = nullptr;
    check(fi_mr_reg(domain, local_.data(), local_.size(), FI_WRITE | FI_READ, 0, 7, 0, &local,
                    nullptr),
          "fi_mr_reg of local memory");
    local_region_.reset(local);
    vectors_.resize(count_);
    queues_.resize(count_);
    endpoints_.resize(count_);
    addresses_.resize(count_, std::vector<fi_addr_t>(count_));
    for (std::size_t i = 0; i < count_; ++i) open_endpoint(i);
    register_region(1);
    meet();
    for (std::size_t to = 0; to < count_; ++to) learn(to);
  }

  void run() {
    all_to_all();
    through_each();
    // One goes; the keys stay good through the others, and through one that comes later.
    // What it sent last is for another endpoint of a process that closes one as well.
    send_last();
    endpoints_[0].reset();
    closed_ = true;
    receive_last();
    meet();
    all_to_all();
    through_each();
    open_endpoint(0);
    closed_ = false;
    meet();
    learn(0);
    all_to_all();
    through_each();
  }

 private:
  void register_region(std::size_t which) {
    fid_mr* region = nullptr;
    check(fi_mr_reg(domain_.get(), memory_[which].data(), memory_[which].size(),
                    FI_REMOTE_READ | FI_REMOTE_WRITE, 0, which + 1, 0, &region, nullptr),
          "fi_mr_reg");
    regions_[which].reset(region);
    Told& told = shared_.told[rank_];
    told.key[which] = fi_mr_key(region);
    told.base[which] = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0
                           ? reinterpret_cast<std::uint64_t>(memory_[which].data())
                           : 0;
  }

  void open_endpoint(std::size_t i) {
    if (!queues_[sharing_.queue ? 0 : i]) {
      fi_cq_attr attr{};
      attr.size = 1024;
      attr.format = FI_CQ_FORMAT_TAGGED;
      attr.wait_obj = FI_WAIT_NONE;
      fid_cq* cq = nullptr;
      check(fi_cq_open(domain_.get(), &attr, &cq, nullptr), "fi_cq_open");
      queues_[i].reset(cq);
    }
    if (!vectors_[sharing_.vector ? 0 : i]) {
      fi_av_attr attr{};
      attr.type = FI_AV_TABLE;
      fid_av* av = nullptr;
      check(fi_av_open(domain_.get(), &attr, &av, nullptr), "fi_av_open");
      vectors_[i].reset(av);
    }
    fid_ep* ep = nullptr;
    check(fi_endpoint(domain_.get(), info_.get(), &ep, nullptr), "fi_endpoint");
    endpoints_[i].reset(ep);
    check(fi_ep_bind(ep, &vectors_[sharing_.vector ? 0 : i]->fid, 0), "fi_ep_bind of the vector");
    check(fi_ep_bind(ep, &queues_[sharing_.queue ? 0 : i]->fid, FI_TRANSMIT | FI_RECV),
          "fi_ep_bind of the queue");
    check(fi_enable(ep), "fi_enable");
    AddressBytes& name = shared_.told[rank_].address[i];
    std::size_t length = name.size();
    check(fi_getname(&ep->fid, name.data(), &length), "fi_getname");
  }

  // The other side's endpoint of this number, for all of ours.
  void learn(std::size_t to) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (sharing_.vector && i > 0) {
        addresses_[i][to] = addresses_[0][to];
        continue;
      }
      const int done = fi_av_insert(vectors_[i].get(), other().address[to].data(), 1,
                                    &addresses_[i][to], 0, nullptr);
      if (done != 1) throw FiError("fi_av_insert", done < 0 ? done : -FI_EINVAL);
    }
  }

  // From each of ours to each of theirs and back, all at once.
  void all_to_all() {
    for (const std::size_t size : kSizes) {
      const std::size_t pairs = count_ * count_;
      std::vector<Operation> sends(pairs), receives(pairs);
      std::vector<std::vector<unsigned char>> out(pairs), in(pairs);
      each_pair([&](std::size_t mine, std::size_t theirs, std::size_t at) {
        in[at].resize(size);
        start(receives[at], mine, [&](void* context) {
          return fi_trecv(endpoints_[mine].get(), in[at].data(), size, nullptr,
                          addresses_[mine][theirs], theirs, 0, context);
        });
      });
      each_pair([&](std::size_t mine, std::size_t theirs, std::size_t at) {
        out[at].resize(size);
        fill(out[at].data(), size, message(rank_, mine, theirs));
        start(sends[at], mine, [&](void* context) {
          return fi_tsend(endpoints_[mine].get(), out[at].data(), size, nullptr,
                          addresses_[mine][theirs], mine, context);
        });
      });
      each_pair([&](std::size_t mine, std::size_t theirs, std::size_t at) {
        wait(sends[at]);
        wait(receives[at]);
        verify(in[at].data(), size, message(1 - rank_, theirs, mine),
               fmt::format("the message of endpoint {} to endpoint {}", theirs, mine));
      });
      meet();
    }
  }

  void send_last() {
    for (std::uint64_t i = 0; i < kLast; ++i) {
      ssize_t rc = 0;
      while ((rc = fi_tinject(endpoints_[0].get(), &i, sizeof i, addresses_[0][1], kLastTag)) ==
             -FI_EAGAIN) {
        poll();
      }
      if (rc != 0) throw FiError("fi_tinject", static_cast<int>(rc));
    }
  }
  void receive_last() {
    for (std::uint64_t i = 0; i < kLast; ++i) {
      std::uint64_t got = kLast;
      Operation receive;
      start(receive, 1, [&](void* context) {
        return fi_trecv(endpoints_[1].get(), &got, sizeof got, nullptr, addresses_[1][0], kLastTag,
                        0, context);
      });
      wait(receive);
      if (got != i)
        throw std::runtime_error(fmt::format("of the last messages {} came as number {}", got, i));
    }
  }

  // Writes into and reads from the other's regions through each endpoint, to each in turn.
  void through_each() {
    for (std::size_t region = 0; region < 2; ++region) {
      for (std::size_t shift = 0; shift < count_; ++shift) {
        for (const std::size_t size : kSizes) {
          ++round_;
          write(region, shift, size);
          meet();
          for (std::size_t i = first(); i < count_; ++i) {
            verify(memory_[region].data() + i * kSlot, size, remote(1 - rank_, i),
                   fmt::format("what endpoint {} wrote", i));
            fill(memory_[region].data() + i * kSlot, size, remote(rank_, kMost + i));
          }
          meet();
          read(region, shift, size);
          meet();
        }
      }
    }
  }

  void write(std::size_t region, std::size_t shift, std::size_t size) {
    one_sided(shift, [&](std::size_t i, fi_addr_t to, std::uint64_t offset, void* context) {
      fill(local_.data() + i * kSlot, size, remote(rank_, i));
      iovec local{local_.data() + i * kSlot, size};
      void* descriptor = descriptor_of(i);
      fi_rma_iov target{other().base[region] + offset, size, other().key[region]};
      fi_msg_rma request{};
      request.msg_iov = &local;
      request.desc = &descriptor;
      request.iov_count = 1;
      request.addr = to;
      request.rma_iov = &target;
      request.rma_iov_count = 1;
      request.context = context;
      return fi_writemsg(endpoints_[i].get(), &request, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    });
  }

  void read(std::size_t region, std::size_t shift, std::size_t size) {
    std::fill(local_.begin(), local_.end(), static_cast<unsigned char>(0));
    one_sided(shift, [&](std::size_t i, fi_addr_t to, std::uint64_t offset, void* context) {
      return fi_read(endpoints_[i].get(), local_.data() + i * kSlot, size, descriptor_of(i), to,
                     other().base[region] + offset, other().key[region], context);
    });
    for (std::size_t i = first(); i < count_; ++i) {
      verify(local_.data() + i * kSlot, size, remote(1 - rank_, kMost + i),
             fmt::format("what endpoint {} read", i));
    }
  }

  template <class Start>
  void one_sided(std::size_t shift, Start&& begin) {
    std::vector<Operation> operations(count_);
    for (std::size_t i = first(); i < count_; ++i) {
      const std::size_t to = first() + (i - first() + shift) % (count_ - first());
      start(operations[i], i,
            [&](void* context) { return begin(i, addresses_[i][to], i * kSlot, context); });
    }
    for (std::size_t i = first(); i < count_; ++i) wait(operations[i]);
  }

  // With a descriptor of the domain's and without: both are good at every endpoint.
  void* descriptor_of(std::size_t i) {
    return (round_ + i) % 2 == 0 ? fi_mr_desc(local_region_.get()) : nullptr;
  }

  template <class Call>
  void each_pair(Call&& call) {
    for (std::size_t mine = first(); mine < count_; ++mine) {
      for (std::size_t theirs = first(); theirs < count_; ++theirs) {
        call(mine, theirs, mine * count_ + theirs);
      }
    }
  }
  [[nodiscard]] std::size_t first() const { return closed_ ? 1 : 0; }
  [[nodiscard]] const Told& other() const { return shared_.told[1 - rank_]; }
  [[nodiscard]] static std::uint64_t message(unsigned from, std::size_t ours, std::size_t theirs) {
    return (from * kMost + ours) * kMost + theirs;
  }
  [[nodiscard]] std::uint64_t remote(unsigned from, std::size_t what) const {
    return 1000 + round_ * 100 + from * 2 * kMost + what;
  }

  template <class Call>
  void start(Operation& operation, std::size_t endpoint, Call&& call) {
    operation.endpoint = endpoint;
    ssize_t rc = 0;
    while ((rc = call(&operation.context)) == -FI_EAGAIN) poll();
    if (rc != 0) throw FiError("starting an operation", static_cast<int>(rc));
  }
  void wait(const Operation& operation) {
    while (!operation.done) poll();
  }
  // Both sides have come here; makes progress meanwhile, which the other may wait for.
  void meet() {
    const unsigned all = (shared_.arrived.fetch_add(1) / 2 + 1) * 2;
    while (shared_.arrived.load() < all) poll();
  }
  void poll() {
    bool moved = false;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!queues_[i]) continue;
      fi_cq_tagged_entry entry{};
      const ssize_t n = fi_cq_read(queues_[i].get(), &entry, 1);
      if (n == -FI_EAGAIN) continue;
      if (n != 1) {
        fi_cq_err_entry error{};
        if (n == -FI_EAVAIL) fi_cq_readerr(queues_[i].get(), &error, 0);
        throw std::runtime_error(
            fmt::format("an operation failed: {} ({})", fi_strerror(error.err), error.prov_errno));
      }
      auto& operation = *static_cast<Operation*>(entry.op_context);
      if (operation.done) throw std::runtime_error("an operation ended twice");
      if (!sharing_.queue && operation.endpoint != i) {
        throw std::runtime_error(fmt::format("an operation of endpoint {} ended in the queue of {}",
                                             operation.endpoint, i));
      }
      operation.done = true;
      moved = true;
    }
    if (!moved) usleep(0);
  }

  std::size_t count_;
  Sharing sharing_;
  unsigned rank_;
  Shared& shared_;
  bool closed_ = false;                               // endpoint 0 is, on both sides
  std::uint64_t round_ = 0;                           // of writes and reads
  std::array<std::vector<unsigned char>, 2> memory_;  // for the other side
  std::vector<unsigned char> local_;
  std::vector<std::vector<fi_addr_t>> addresses_;  // [of ours][of theirs]
  Info info_;
  FiHandle<fid_fabric> fabric_;
  FiHandle<fid_domain> domain_;
  FiHandle<fid_mr> local_region_;
  std::array<FiHandle<fid_mr>, 2> regions_;
  std::vector<FiHandle<fid_av>> vectors_;
  std::vector<FiHandle<fid_cq>> queues_;
  std::vector<FiHandle<fid_ep>> endpoints_;
};

void run(const Options& options, int rank, Shared& shared) {
  for (const bool queue : {false, true}) {
    for (const bool vector : {false, true}) {
      Side(options, {queue, vector}, rank, shared).run();
      if (rank != 0) continue;
      fmt::print("{} endpoints, {} queue, {} address vector: all verified\n", options.endpoints,
                 queue ? "one" : "each its own", vector ? "one" : "each its own");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("several endpoints in one domain");
  Options options;
  app.add_option("--provider", options.provider, "provider's name")->capture_default_str();
  app.add_option("--endpoints", options.endpoints, "endpoints of each process")
      ->check(CLI::Range(std::size_t{2}, kMost))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  setenv("TURNOUT_FABRIC", fmt::format("multi-ep-{}", getpid()).c_str(), 0);
  void* at =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 1;
  auto& shared = *new (at) Shared{};
  pid_t child[2];
  for (int rank = 0; rank < 2; ++rank) {
    child[rank] = fork();
    if (child[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      run(options, rank, shared);
    } catch (const std::exception& e) {
      fmt::print(stderr, "rank {}: {}\n", rank, e.what());
      code = 1;
    }
    std::exit(code);
  }
  // The first to fail ends the test.
  int code = 0;
  for (int left = 2; left > 0; --left) {
    int status = 0;
    wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    code = 1;
    for (const pid_t pid : child) kill(pid, SIGKILL);
  }
  fmt::print("{}\n", code == 0 ? "ok" : "FAILED");
  return code;
}
