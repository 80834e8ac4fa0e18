// SPDX-License-Identifier: BSD-3-Clause
// FaultPlan: the faults that a user asked the virtual adapter for (the setting `fault`), and which
// requests, completions and calls each of them hits.
//
// A plan is text: items separated by semicolons, each `NAME` or `NAME:KEY=VALUE,KEY=VALUE`, or
// `seed=N`:
//     loss:probability=0.01; rnr:after=100,times=3; link_down:at=2s,time=500ms; seed=7
// The names, their keys and defaults: docs/faults.md. Pure; nothing here acts. Times are
// nanoseconds. Errors: invalid, with the item, the key and what is accepted.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hca/device/layout.h"

namespace turnout::hca {

enum class FaultKind : std::uint8_t {
  loss,          // a message of UD or UC is lost
  delay,         // a request is carried out later
  rnr,           // the target answers "receiver not ready"
  timeout,       // nobody acknowledges
  error,         // a request ends with a status
  qp_fatal,      // a queue pair fails: IBV_EVENT_QP_FATAL
  create,        // an object cannot be created, memory cannot be registered
  slow,          // the process is slow to handle its completions
  cq_overrun,    // a completion queue overflows
  link_down,     // the port goes down, and comes up again
  device_fatal,  // the adapter fails: IBV_EVENT_DEVICE_FATAL
};

enum class FaultObject : std::uint8_t { any, pd, mr, mw, ah, channel, cq, srq, qp, xrcd };

// Does `limit` count such objects?
[[nodiscard]] constexpr bool is_counted(FaultObject object) noexcept {
  return object == FaultObject::mr || object == FaultObject::cq || object == FaultObject::srq ||
         object == FaultObject::qp;
}

// Kinds of queue pairs and of requests, one bit each; 0: all.
enum : std::uint8_t { kFaultRc = 1, kFaultUc = 2, kFaultUd = 4, kFaultDc = 8, kFaultXrc = 16 };
enum : std::uint8_t { kFaultSend = 1, kFaultWrite = 2, kFaultRead = 4, kFaultAtomic = 8 };

struct Fault {
  FaultKind kind = FaultKind::loss;
  std::string text;         // the item
  double probability = 1;   // of each that it may hit
  std::uint64_t after = 0;  // so many are spared first
  std::uint64_t count = 0;  // at most so many are hit; 0: no limit
  std::uint64_t times = 0;  // rnr, timeout: attempts at one request; 0: all
  std::uint64_t limit = 0;  // create: while there are so many objects; 0: always
  std::int64_t time = 0;    // delay, slow: how long; link_down: until it is up again, 0: never
  std::int64_t at = 0;      // link_down, device_fatal: after the adapter was opened
  std::int64_t every = 0;   // link_down: again after so long; 0: once
  std::int64_t rank = -1;   // only in this process of the job; -1: in all
  std::uint8_t qp = 0;      // kFaultRc and others
  std::uint8_t opcode = 0;  // kFaultSend and others
  FaultObject object = FaultObject::any;
  ibv_wc_status status = IBV_WC_LOC_QP_OP_ERR;
  int error = 0;  // errno

  // Has the request the queue pair and the operation that the fault is for?
  [[nodiscard]] bool is_for(QpKind kind, std::uint8_t opcode) const noexcept;
};

class FaultPlan {
 public:
  // Empty text: no faults. What is for another rank than `rank` is left out.
  [[nodiscard]] static Result<FaultPlan> parse(std::string_view text, int rank = -1);

  [[nodiscard]] bool empty() const noexcept { return faults_.empty(); }
  [[nodiscard]] const std::vector<Fault>& faults() const noexcept { return faults_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  // Does the fault with this index hit number `n`, from 0 on, of those that it may hit? Without
  // regard to `count`. The same in every run.
  [[nodiscard]] bool hits(std::size_t fault, std::uint64_t n) const noexcept;

 private:
  std::vector<Fault> faults_;
  std::vector<std::uint64_t> streams_;  // of random numbers, for each
  std::uint64_t seed_ = 1;
};

}  // namespace turnout::hca
