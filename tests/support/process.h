// SPDX-License-Identifier: BSD-3-Clause
// Process: one side of a test that runs two processes over the real provider, as libfabric loads
// it.
//
// The parent starts its own executable twice with --case=NAME --role=0|1; the two exchange their
// names over a socket and then only talk through libfabric. A check that fails ends its process
// with a line that says where; the parent reports it. Every wait has an end.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace turnout::testing {

[[noreturn]] void fail(const char* file, int line, const std::string& what);

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) ::turnout::testing::fail(__FILE__, __LINE__, #condition); \
  } while (false)

template <class A, class B>
void check_equal(const char* file, int line, const char* text, A a, B b) {
  if (std::cmp_equal(a, b)) return;
  fail(file, line, std::string(text) + " is " + std::to_string(a) + ", not " + std::to_string(b));
}

#define CHECK_EQ(a, b) ::turnout::testing::check_equal(__FILE__, __LINE__, #a, +(a), +(b))

// Bytes that differ by message and position, so that what is lost, doubled or shifted shows.
void fill(std::vector<unsigned char>& data, std::size_t seed);

struct ProcessOptions {
  std::uint64_t tx_bind = FI_TRANSMIT;
  std::uint64_t rx_bind = FI_RECV;
  std::uint64_t tx_op_flags = 0;
  bool counters = false;
  fi_wait_obj wait = FI_WAIT_NONE;
  fi_progress progress = FI_PROGRESS_UNSPEC;  // of data
  std::uint64_t caps = 0;                     // beyond the usual ones
};

class Process {
 public:
  Process(int role, int socket, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const int role;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  fid_cntr* tx_counter = nullptr;  // sends, reads and writes
  fid_cntr* rx_counter = nullptr;
  fid_ep* ep = nullptr;  // a case may close it, and leave null
  fi_addr_t peer = FI_ADDR_NOTAVAIL;

  // The next entry; ends the process when none comes for 30 s, or when an error comes.
  fi_cq_tagged_entry next(fi_addr_t* source = nullptr);
  fi_cq_err_entry next_error();
  // Reads entries until each of the contexts has ended once.
  void finish(std::vector<void*> contexts);
  // Calls post until it answers something else than "try again", making progress in between.
  void post(const std::function<ssize_t()>& call);
  void send(const void* data, std::size_t length, std::uint64_t tag);  // blocking
  fi_cq_tagged_entry receive(void* data, std::size_t length, std::uint64_t tag);
  // Both sides have come here (over the socket; makes progress while it waits).
  void barrier();
  // A value to the other side and one from it, over the socket.
  std::uint64_t swap(std::uint64_t value);

 private:
  void exchange(const void* out, void* in, std::size_t length);
  int socket_;
  std::vector<fi_cq_tagged_entry> early_;  // entries that came while waiting for others
};

using Case = std::function<void(int role, int socket)>;
std::map<std::string, Case>& cases();

// Starts both roles and waits; empty when both succeeded, else what went wrong.
// kill_role: this one is expected to die by SIGKILL.
[[nodiscard]] std::string run_case(const std::string& name, int kill_role = -1);

// One process of its own, with these variables set ("NAME=value").
[[nodiscard]] std::string run_alone(const std::string& name,
                                    const std::vector<std::string>& environment);

// Expects both roles to succeed under every way of large messages (sets TURNOUT_RENDEZVOUS
// meanwhile).
void expect_in_every_way(const std::string& name);

// main() of a test executable: runs a role, or the tests. Variables that are not set point to the
// provider and the virtual adapter of the build that the executable belongs to.
int run(int argc, char** argv);

}  // namespace turnout::testing
