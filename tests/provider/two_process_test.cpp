// SPDX-License-Identifier: BSD-3-Clause
// Two processes over libturnout-fi.so as libfabric loads it: data, order, errors, remote memory.
#include <gtest/gtest.h>
#include <rdma/fi_atomic.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "tests/support/process.h"

namespace turnout::testing {
namespace {

const std::size_t kSizes[] = {0,    1,    8,    191,   192,   193,   1000,    4000,
                              4095, 4096, 4097, 16384, 65536, 65537, 1 << 20, (4 << 20) + 3};

void ping_pong(int role, int socket) {
  Process p(role, socket);
  for (std::size_t round = 0; round < std::size(kSizes); ++round) {
    std::vector<unsigned char> out(kSizes[round]), in(kSizes[round], 0);
    fill(out, round);
    for (int turn = 0; turn < 20; ++turn) {
      if (role == 0) p.send(out.data(), out.size(), round);
      std::fill(in.begin(), in.end(), 0);
      const fi_cq_tagged_entry got = p.receive(in.data(), in.size(), round);
      CHECK_EQ(got.len, in.size());
      CHECK_EQ(got.tag, round);
      CHECK(in == out);
      if (role == 1) p.send(out.data(), out.size(), round);
    }
  }
  p.barrier();
}

// Sizes and ways to send mixed, receives posted late: order is kept, nothing is lost.
void stream(int role, int socket) {
  Process p(role, socket);
  constexpr std::size_t kMessages = 20000;
  const auto size_of = [](std::size_t i) {
    return i % 500 == 499 ? std::size_t{100000} : (i * 37) % (i % 50 == 49 ? 9000 : 300);
  };
  if (role == 0) {
    std::vector<std::vector<unsigned char>> buffers(64);
    std::vector<int> busy(buffers.size(), 0);
    std::size_t pending = 0;
    const auto reap = [&] {
      const fi_cq_tagged_entry entry = p.next();
      --*static_cast<int*>(entry.op_context);
      --pending;
    };
    for (std::size_t i = 0; i < kMessages; ++i) {
      const std::size_t slot = i % buffers.size();
      while (busy[slot] != 0) reap();
      buffers[slot].resize(size_of(i));
      fill(buffers[slot], i);
      const auto& b = buffers[slot];
      if (b.size() <= 192 && i % 3 == 0) {
        p.post([&] { return fi_tinjectdata(p.ep, b.data(), b.size(), i, p.peer, 7); });
      } else {
        ++busy[slot];
        ++pending;
        p.post([&] {
          return fi_tsenddata(p.ep, b.data(), b.size(), nullptr, i, p.peer, 7, &busy[slot]);
        });
      }
    }
    while (pending != 0) reap();
  } else {
    std::vector<unsigned char> in(100000), expected;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const fi_cq_tagged_entry got = p.receive(in.data(), in.size(), 7);
      CHECK_EQ(got.data, i);
      CHECK_EQ(got.len, size_of(i));
      CHECK((got.flags & FI_REMOTE_CQ_DATA) != 0);
      expected.resize(got.len);
      fill(expected, i);
      CHECK(std::equal(expected.begin(), expected.end(), in.begin()));
    }
  }
  p.barrier();
}

void matching(int role, int socket) {
  Process p(role, socket);
  char in[8] = {};
  int contexts[4] = {};
  const auto peek = [&](std::uint64_t tag, std::uint64_t flags, void* context) {
    fi_msg_tagged msg{};
    msg.addr = FI_ADDR_UNSPEC;
    msg.tag = tag;
    msg.context = context;
    p.post([&] { return fi_trecvmsg(p.ep, &msg, flags); });
  };
  if (role == 0) {
    p.barrier();  // the other side has peeked in vain
    for (const char* text : {"one", "two", "six", "ten"}) p.send(text, 3, 1);
    p.send("toolong", 7, 2);
    std::vector<unsigned char> big(300000);
    fill(big, 3);
    int context = 0;
    p.post([&] { return fi_tsend(p.ep, big.data(), big.size(), nullptr, p.peer, 3, &context); });
    p.finish({&context});
    p.barrier();
    return;
  }
  peek(1, FI_PEEK, &contexts[0]);
  CHECK_EQ(p.next_error().err, FI_ENOMSG);
  p.post([&] { return fi_trecv(p.ep, in, 8, nullptr, p.peer, 99, 0, &contexts[3]); });
  CHECK_EQ(fi_cancel(&p.ep->fid, &contexts[3]), 0);
  const fi_cq_err_entry canceled = p.next_error();
  CHECK_EQ(canceled.err, FI_ECANCELED);
  CHECK(canceled.op_context == &contexts[3]);
  p.barrier();
  // Wait for the first by peeking, claim it, drop the second, receive the others around the claim.
  for (;;) {
    peek(1, FI_PEEK | FI_CLAIM, &contexts[0]);
    fi_cq_tagged_entry entry;
    ssize_t n = -FI_EAGAIN;
    while (n == -FI_EAGAIN) n = fi_cq_read(p.cq, &entry, 1);
    if (n == 1) {
      CHECK_EQ(entry.len, 3u);
      break;
    }
    CHECK_EQ(p.next_error().err, FI_ENOMSG);
  }
  for (;;) {
    peek(1, FI_PEEK | FI_DISCARD, &contexts[1]);
    fi_cq_tagged_entry entry;
    ssize_t n = -FI_EAGAIN;
    while (n == -FI_EAGAIN) n = fi_cq_read(p.cq, &entry, 1);
    if (n == 1) break;
    CHECK_EQ(p.next_error().err, FI_ENOMSG);
  }
  fi_addr_t source = FI_ADDR_NOTAVAIL;
  p.post([&] {
    return fi_trecv(p.ep, in, 8, nullptr, FI_ADDR_UNSPEC, 0, ~std::uint64_t{2}, &contexts[2]);
  });
  fi_cq_tagged_entry got = p.next(&source);
  CHECK_EQ(source, p.peer);
  CHECK_EQ(got.tag, 1u);
  CHECK(std::memcmp(in, "six", 3) == 0);
  const iovec part{in, 8};
  fi_msg_tagged msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  msg.context = &contexts[0];  // address 0, tag 0: a claim is found by its context
  p.post([&] { return fi_trecvmsg(p.ep, &msg, FI_CLAIM); });
  got = p.next();
  CHECK(got.op_context == &contexts[0]);
  CHECK(std::memcmp(in, "one", 3) == 0);
  got = p.receive(in, 8, 1);
  CHECK(std::memcmp(in, "ten", 3) == 0);
  p.post([&] { return fi_trecv(p.ep, in, 4, nullptr, p.peer, 2, 0, &contexts[1]); });
  const fi_cq_err_entry truncated = p.next_error();
  CHECK_EQ(truncated.err, FI_ETRUNC);
  CHECK_EQ(truncated.olen, 3u);
  CHECK(std::memcmp(in, "tool", 4) == 0);
  // A large message that was claimed before it was received.
  for (;;) {
    peek(3, FI_PEEK | FI_CLAIM, &contexts[0]);
    fi_cq_tagged_entry entry;
    ssize_t n = -FI_EAGAIN;
    while (n == -FI_EAGAIN) n = fi_cq_read(p.cq, &entry, 1);
    if (n == 1) {
      CHECK_EQ(entry.len, 300000u);
      break;
    }
    CHECK_EQ(p.next_error().err, FI_ENOMSG);
  }
  std::vector<unsigned char> big(300000), expected(300000);
  fill(expected, 3);
  const iovec halves[2] = {{big.data(), 100000}, {big.data() + 100000, 200000}};
  msg.msg_iov = halves;
  msg.iov_count = 2;
  p.post([&] { return fi_trecvmsg(p.ep, &msg, FI_CLAIM); });
  got = p.next();
  CHECK_EQ(got.len, 300000u);
  CHECK(big == expected);
  p.barrier();
}

void multi_receive(int role, int socket) {
  Process p(role, socket);
  constexpr int kMessages = 3000;
  constexpr std::size_t kBuffer = 65536, kLeast = 4096;
  if (role == 0) {
    for (int i = 0; i < kMessages; ++i) {
      std::vector<unsigned char> out(static_cast<std::size_t>(i) % 3000);
      fill(out, static_cast<std::size_t>(i));
      int context = 0;
      p.post([&] { return fi_send(p.ep, out.data(), out.size(), nullptr, p.peer, &context); });
      p.finish({&context});
    }
    p.barrier();
    return;
  }
  std::size_t least = kLeast;
  CHECK_EQ(fi_setopt(&p.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
  std::vector<unsigned char> buffers[2] = {std::vector<unsigned char>(kBuffer),
                                           std::vector<unsigned char>(kBuffer)};
  const auto post = [&](std::vector<unsigned char>& buffer) {
    const iovec part{buffer.data(), buffer.size()};
    fi_msg msg{};
    msg.msg_iov = &part;
    msg.iov_count = 1;
    msg.addr = FI_ADDR_UNSPEC;
    msg.context = &buffer;
    p.post([&] { return fi_recvmsg(p.ep, &msg, FI_MULTI_RECV | FI_COMPLETION); });
  };
  post(buffers[0]);
  post(buffers[1]);
  for (int i = 0; i < kMessages;) {
    const fi_cq_tagged_entry got = p.next();
    auto& buffer = *static_cast<std::vector<unsigned char>*>(got.op_context);
    if ((got.flags & FI_RECV) != 0) {
      const auto* at = static_cast<unsigned char*>(got.buf);
      CHECK(at >= buffer.data() && at + got.len <= buffer.data() + buffer.size());
      std::vector<unsigned char> expected(static_cast<std::size_t>(i) % 3000);
      fill(expected, static_cast<std::size_t>(i));
      CHECK_EQ(got.len, expected.size());
      CHECK(std::equal(expected.begin(), expected.end(), at));
      ++i;
    }
    if ((got.flags & FI_MULTI_RECV) != 0) post(buffer);
  }
  p.barrier();
}

// The target blocks in fi_cntr_wait until its peer has done what it counts.
void remote_events(int role, int socket) {
  constexpr std::uint64_t kRounds = 200;
  ProcessOptions options;
  options.caps = FI_RMA_EVENT;
  Process p(role, socket, options);
  std::vector<unsigned char> window(64 << 10), local(64 << 10), expected(64 << 10);
  fid_mr* mr = nullptr;
  CHECK_EQ(fi_mr_reg(p.domain, window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0,
                     0, &mr, nullptr),
           0);
  fid_cntr *reads = nullptr, *writes = nullptr;
  fi_cntr_attr attr{};
  CHECK_EQ(fi_cntr_open(p.domain, &attr, &reads, nullptr), 0);
  CHECK_EQ(fi_cntr_open(p.domain, &attr, &writes, nullptr), 0);
  CHECK_EQ(fi_ep_bind(p.ep, &reads->fid, FI_REMOTE_READ), 0);
  CHECK_EQ(fi_ep_bind(p.ep, &writes->fid, FI_REMOTE_WRITE), 0);
  const std::uint64_t key = p.swap(fi_mr_key(mr));
  const std::uint64_t base = p.swap(reinterpret_cast<std::uint64_t>(window.data()));
  int context = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    fill(expected, round);
    if (role == 0) {
      local = expected;
      p.post([&] {
        return fi_write(p.ep, local.data(), local.size(), nullptr, p.peer, base, key, &context);
      });
      p.finish({&context});
      p.post([&] { return fi_read(p.ep, local.data(), 8, nullptr, p.peer, base, key, &context); });
      p.finish({&context});
    } else {
      CHECK_EQ(fi_cntr_wait(writes, round, 20'000), 0);
      CHECK(window == expected);  // what is counted is there
      CHECK_EQ(fi_cntr_wait(reads, round, 20'000), 0);
      CHECK_EQ(fi_cntr_read(writes), round);
    }
    p.barrier();
  }
  CHECK_EQ(fi_cntr_read(reads), role == 1 ? kRounds : 0);
  p.barrier();
  CHECK_EQ(fi_close(&mr->fid), 0);
  CHECK_EQ(fi_close(&p.ep->fid), 0);
  CHECK_EQ(fi_close(&reads->fid), 0);
  CHECK_EQ(fi_close(&writes->fid), 0);
  p.ep = nullptr;
}

// Counters of one region of two, with which operations reach the target by RDMA, with data and
// as atomics. They are bound to no endpoint.
void region_counters(int role, int socket) {
  constexpr std::uint64_t kRounds = 50;
  ProcessOptions options;
  options.caps = FI_RMA_EVENT;
  Process p(role, socket, options);
  std::vector<std::uint64_t> window(16 << 10), local(8 << 10);
  fid_mr *counted = nullptr, *other = nullptr;
  const std::uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE;
  const std::size_t bytes = local.size() * sizeof local[0];
  std::uint64_t* const second = window.data() + local.size();
  CHECK_EQ(fi_mr_reg(p.domain, window.data(), bytes, access, 0, 0, FI_RMA_EVENT, &counted, nullptr),
           0);
  CHECK_EQ(fi_mr_reg(p.domain, second, bytes, access, 0, 0, 0, &other, nullptr), 0);
  fid_cntr *reads = nullptr, *writes = nullptr;
  fi_cntr_attr attr{};
  CHECK_EQ(fi_cntr_open(p.domain, &attr, &reads, nullptr), 0);
  CHECK_EQ(fi_cntr_open(p.domain, &attr, &writes, nullptr), 0);
  CHECK_EQ(fi_mr_bind(counted, &reads->fid, FI_REMOTE_READ), 0);
  CHECK_EQ(fi_mr_bind(counted, &writes->fid, FI_REMOTE_WRITE), 0);
  const std::uint64_t keys[] = {p.swap(fi_mr_key(counted)), p.swap(fi_mr_key(other))};
  const std::uint64_t base = p.swap(reinterpret_cast<std::uint64_t>(window.data()));
  int context = 0;
  const auto finish = [&](auto&& call) {
    p.post(call);
    p.finish({&context});
  };
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (role == 1) {
      CHECK_EQ(fi_cntr_wait(writes, 3 * round, 20'000), 0);
      CHECK_EQ(fi_cntr_wait(reads, 2 * round, 20'000), 0);
      CHECK_EQ(window[1], round);
      CHECK_EQ(window[0], 2 * round);
      for (int i = 0; i < 2; ++i) CHECK_EQ(p.next().data, 77u);
    } else {
      for (const std::size_t place : {std::size_t{1}, std::size_t{0}}) {
        const std::uint64_t at = base + place * bytes, key = keys[place];
        local[0] = round;
        finish([&] { return fi_read(p.ep, &local[2], 8, nullptr, p.peer, at, key, &context); });
        finish([&] {
          return fi_writedata(p.ep, &local[0], 8, nullptr, 77, p.peer, at + 8, key, &context);
        });
        finish([&] {
          return fi_write(p.ep, &local[2], bytes - 16, nullptr, p.peer, at + 16, key, &context);
        });
        local[0] = 1;
        finish([&] {
          return fi_atomic(p.ep, &local[0], 1, nullptr, p.peer, at, key, FI_UINT64, FI_SUM,
                           &context);
        });
        finish([&] {
          return fi_fetch_atomic(p.ep, &local[0], 1, nullptr, &local[1], nullptr, p.peer, at, key,
                                 FI_UINT64, FI_SUM, &context);
        });
      }
    }
    p.barrier();
  }
  CHECK_EQ(fi_cntr_read(writes), role == 1 ? 3 * kRounds : 0);
  CHECK_EQ(fi_cntr_read(reads), role == 1 ? 2 * kRounds : 0);
  CHECK_EQ(fi_close(&writes->fid), -FI_EBUSY);
  p.barrier();
  for (fid* one : {&counted->fid, &other->fid, &reads->fid, &writes->fid})
    CHECK_EQ(fi_close(one), 0);
}

void remote_memory(int role, int socket) {
  Process p(role, socket);
  std::vector<unsigned char> window(1 << 20), local(1 << 20), expected(1 << 20);
  fid_mr* mr = nullptr;
  CHECK_EQ(fi_mr_reg(p.domain, window.data(), window.size(), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0,
                     0, &mr, nullptr),
           0);
  fill(window, static_cast<std::size_t>(role) + 10);
  const std::uint64_t key = p.swap(fi_mr_key(mr));
  const std::uint64_t base = p.swap(reinterpret_cast<std::uint64_t>(window.data()));
  int context = 0;
  fill(expected, static_cast<std::size_t>(1 - role) + 10);
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 20}) {
    std::fill(local.begin(), local.end(), 0);
    p.post([&] { return fi_read(p.ep, local.data(), size, nullptr, p.peer, base, key, &context); });
    const fi_cq_tagged_entry done = p.next();
    CHECK_EQ(done.flags, FI_RMA | FI_READ);
    CHECK(std::equal(expected.begin(), expected.begin() + static_cast<long>(size), local.begin()));
  }
  p.barrier();
  if (role == 0) {
    fill(local, 77);
    p.post([&] {
      return fi_write(p.ep, local.data(), local.size(), nullptr, p.peer, base, key, &context);
    });
    p.finish({&context});
    p.post([&] { return fi_inject_write(p.ep, "inject", 6, p.peer, base, key); });
    const iovec parts[2] = {{local.data(), 3}, {local.data() + 3, 5}};
    const fi_rma_iov remote{base + 100, 8, key};
    fi_msg_rma msg{};
    msg.msg_iov = parts;
    msg.iov_count = 2;
    msg.addr = p.peer;
    msg.rma_iov = &remote;
    msg.rma_iov_count = 1;
    msg.context = &context;
    p.post([&] { return fi_writemsg(p.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION); });
    p.finish({&context});
    p.post([&] {
      return fi_writedata(p.ep, "data", 4, nullptr, 0x1122334455667788, p.peer, base + 200, key,
                          &context);
    });
    p.finish({&context});
    p.barrier();
  } else {
    const fi_cq_tagged_entry arrived = p.next();
    CHECK_EQ(arrived.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
    CHECK_EQ(arrived.data, 0x1122334455667788u);
    fill(expected, 77);
    std::memcpy(expected.data(), "inject", 6);
    std::copy_n(expected.begin() + 3, 5, expected.begin() + 103);
    fill(local, 77);
    std::copy_n(local.begin(), 8, expected.begin() + 100);
    std::memcpy(expected.data() + 200, "data", 4);
    CHECK(window == expected);
    p.barrier();
  }
  // A key that was given back is refused, and the endpoint lives on.
  CHECK_EQ(fi_close(&mr->fid), 0);
  p.barrier();
  if (role == 0) {
    p.post([&] { return fi_read(p.ep, local.data(), 8, nullptr, p.peer, base, key, &context); });
    const fi_cq_err_entry refused = p.next_error();
    CHECK(refused.err != 0);
    CHECK(refused.op_context == &context);
  }
  p.barrier();
  char hello[6] = "hello", in[6] = {};
  if (role == 0) {
    p.send(hello, 6, 5);
  } else {
    p.receive(in, 6, 5);
    CHECK(std::memcmp(in, hello, 6) == 0);
  }
  p.barrier();
}

// Both count in both windows, and each in its own by its processor's atomics.
void atomics(int role, int socket) {
  constexpr int kTimes = 3000;
  Process p(role, socket);
  alignas(8) std::uint64_t window[2] = {};
  fid_mr* mr = nullptr;
  CHECK_EQ(fi_mr_reg(p.domain, window, sizeof(window), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 0, 0,
                     &mr, nullptr),
           0);
  const std::uint64_t key = p.swap(fi_mr_key(mr));
  const std::uint64_t base = p.swap(reinterpret_cast<std::uint64_t>(window));
  std::uint64_t one = 1, last = 0;
  for (int i = 0; i < kTimes; ++i) {
    std::uint64_t fetched = 0;
    p.post([&] {
      return fi_fetch_atomic(p.ep, &one, 1, nullptr, &fetched, nullptr, p.peer, base, key,
                             FI_UINT64, FI_SUM, &one);
    });
    p.post(
        [&] { return fi_inject_atomic(p.ep, &one, 1, p.peer, base + 8, key, FI_UINT64, FI_SUM); });
    std::atomic_ref(window[0]).fetch_add(1);
    const fi_cq_tagged_entry done = p.next();
    CHECK_EQ(done.flags, FI_ATOMIC | FI_READ);
    CHECK(done.op_context == &one);
    CHECK(i == 0 || fetched > last);
    last = fetched;
  }
  // Behind what was injected.
  std::uint64_t there = 0;
  p.post([&] {
    return fi_fetch_atomic(p.ep, nullptr, 1, nullptr, &there, nullptr, p.peer, base + 8, key,
                           FI_UINT64, FI_ATOMIC_READ, &one);
  });
  p.finish({&one});
  CHECK_EQ(there, static_cast<std::uint64_t>(kTimes));
  std::uint64_t wrong = 5, swapped = 9;
  p.post([&] {
    return fi_compare_atomic(p.ep, &swapped, 1, nullptr, &wrong, nullptr, &there, nullptr, p.peer,
                             base + 8, key, FI_UINT64, FI_CSWAP, &one);
  });
  p.finish({&one});
  CHECK_EQ(there, static_cast<std::uint64_t>(kTimes));
  p.barrier();
  CHECK_EQ(std::atomic_ref(window[0]).load(), 2u * kTimes);
  CHECK_EQ(window[1], static_cast<std::uint64_t>(kTimes));
  // A key that was given back is refused, and the pair lives on.
  CHECK_EQ(fi_close(&mr->fid), 0);
  p.barrier();
  p.post([&] {
    return fi_atomic(p.ep, &one, 1, nullptr, p.peer, base, key, FI_UINT64, FI_SUM, &there);
  });
  const fi_cq_err_entry refused = p.next_error();
  CHECK_EQ(refused.err, FI_EACCES);
  CHECK(refused.op_context == &there);
  p.barrier();
  CHECK_EQ(window[0], 2u * kTimes);
}

void completion_levels(int role, int socket) {
  ProcessOptions options;
  options.tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
  options.tx_op_flags = FI_MATCH_COMPLETE | FI_COMPLETION;
  options.counters = true;
  Process p(role, socket, options);
  if (role == 0) {
    int contexts[2] = {};
    p.post([&] { return fi_tsend(p.ep, "abc", 3, nullptr, p.peer, 1, &contexts[0]); });
    fi_cq_tagged_entry entry;
    for (int i = 0; i < 1000; ++i) CHECK_EQ(fi_cq_read(p.cq, &entry, 1), -FI_EAGAIN);
    p.barrier();  // only now the other side posts its receive
    p.finish({&contexts[0]});
    CHECK_EQ(fi_cntr_wait(p.tx_counter, 1, 30000), 0);
    // Without FI_COMPLETION there is an increment and no entry.
    char text[] = "def";
    const iovec part{text, 3};
    fi_msg_tagged msg{};
    msg.msg_iov = &part;
    msg.iov_count = 1;
    msg.addr = p.peer;
    msg.tag = 1;
    p.post([&] { return fi_tsendmsg(p.ep, &msg, 0); });
    CHECK_EQ(fi_cntr_wait(p.tx_counter, 2, 30000), 0);
    CHECK_EQ(fi_cq_read(p.cq, &entry, 1), -FI_EAGAIN);
    // A message can be delivered before there is a receive for it.
    msg.context = &contexts[1];
    p.post([&] { return fi_tsendmsg(p.ep, &msg, FI_DELIVERY_COMPLETE | FI_COMPLETION); });
    p.finish({&contexts[1]});
    p.barrier();
  } else {
    p.barrier();
    char in[4] = {};
    p.receive(in, 3, 1);
    p.receive(in, 3, 1);
    CHECK(std::memcmp(in, "def", 3) == 0);
    p.barrier();
    p.receive(in, 3, 1);
    CHECK_EQ(fi_cntr_wait(p.rx_counter, 3, 30000), 0);
  }
  p.barrier();
}

// Role 1 dies while role 0 waits for it and sends to it: both operations end with an error.
void lost_peer(int role, int socket) {
  auto p = std::make_unique<Process>(role, socket);
  char in[8];
  if (role == 0) p->send("hello", 5, 1);
  if (role == 1) {
    p->receive(in, 8, 1);
    p->barrier();
    std::raise(SIGKILL);
  }
  int contexts[2] = {};
  p->post([&] { return fi_trecv(p->ep, in, 8, nullptr, p->peer, 2, 0, &contexts[0]); });
  p->barrier();
  std::vector<unsigned char> big(1 << 20);
  const ssize_t sent = fi_tsend(p->ep, big.data(), big.size(), nullptr, p->peer, 3, &contexts[1]);
  std::size_t expected =
      sent == 0 ? 2 : 1;  // a send may be refused at once, if it is known already
  while (expected-- != 0) CHECK(p->next_error().err != 0);
  p.reset();  // and everything closes
}

// What a program sees when it cannot have an endpoint: an error, never a crash.
int getinfo(fi_info*& info) {
  fi_info* hints = fi_allocinfo();
  hints->fabric_attr->prov_name = ::strdup("turnout");
  hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  const int error = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
  fi_freeinfo(hints);
  return error;
}

// Receives that stand together share their memory, as those of bandwidth benchmarks do: what it
// holds in the end nobody says, but each message ends one receive.
void shared_buffer(int role, int socket) {
  constexpr std::size_t kMessages = 64, kBytes = 1 << 20;
  Process p(role, socket);
  std::vector<unsigned char> data(kBytes);
  std::vector<int> contexts(kMessages);
  std::vector<void*> all;
  for (int& context : contexts) all.push_back(&context);
  for (std::size_t round = 0; round < 4; ++round) {
    if (role == 0) fill(data, round);
    for (int& context : contexts) {
      p.post([&] {
        return role == 0 ? fi_tsend(p.ep, data.data(), kBytes, nullptr, p.peer, 5, &context)
                         : fi_trecv(p.ep, data.data(), kBytes, nullptr, p.peer, 5, 0, &context);
      });
    }
    p.finish(all);
    p.barrier();
  }
}

void bad_setting(int, int) {
  fi_info* info = nullptr;
  CHECK_EQ(getinfo(info), -FI_ENODATA);
}

void bad_device(int, int) {
  fi_info* info = nullptr;
  CHECK_EQ(getinfo(info), 0);
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_ep* ep = nullptr;
  CHECK_EQ(fi_fabric(info->fabric_attr, &fabric, nullptr), 0);
  CHECK_EQ(fi_domain(fabric, info, &domain, nullptr), 0);
  const int error = fi_endpoint(domain, info, &ep, nullptr);
  const char* expected = std::getenv("EXPECTED_ERROR");
  CHECK_EQ(error, -std::stoi(expected));
  fid_mr* mr = nullptr;
  char memory[8];
  // The domain registers, which needs the device and none of an endpoint's memory.
  const int refused = error == -FI_ENODEV ? error : 0;
  CHECK_EQ(fi_mr_reg(domain, memory, 8, FI_REMOTE_READ, 0, 0, 0, &mr, nullptr), refused);
  if (mr != nullptr) CHECK_EQ(fi_close(&mr->fid), 0);
  CHECK_EQ(fi_close(&domain->fid), 0);
  CHECK_EQ(fi_close(&fabric->fid), 0);
  fi_freeinfo(info);
}

// One process inserts, the other reads the same vector by its name, and sends with what it finds.
void shared_addresses(int role, int socket) {
  Process p(role, socket, {.caps = FI_SHARED_AV | FI_SOURCE});
  const std::uint64_t number = p.swap(role == 0 ? static_cast<std::uint64_t>(::getpid()) : 0);
  const std::string name =
      "pair-" + std::to_string(role == 0 ? static_cast<std::uint64_t>(::getpid()) : number);
  fi_av_attr attr{};
  attr.name = name.c_str();
  if (role == 1) {
    attr.flags = FI_READ;
    p.barrier();
  }
  fid_av* av = nullptr;
  CHECK_EQ(fi_av_open(p.domain, &attr, &av, nullptr), 0);
  if (role == 0) p.barrier();
  fid_ep* ep = nullptr;
  CHECK_EQ(fi_endpoint(p.domain, p.info, &ep, nullptr), 0);
  CHECK_EQ(fi_ep_bind(ep, &av->fid, 0), 0);
  CHECK_EQ(fi_ep_bind(ep, &p.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  CHECK_EQ(fi_enable(ep), 0);
  std::array<unsigned char, 64> mine{}, theirs{}, found{};
  std::size_t length = mine.size();
  CHECK_EQ(fi_getname(&ep->fid, mine.data(), &length), 0);
  if (role == 1) {
    p.send(mine.data(), mine.size(), 1);
    p.barrier();  // both are inserted
    CHECK_EQ(fi_av_lookup(av, 1, found.data(), &length), 0);
    CHECK(found == mine);
    p.post([&] { return fi_tsend(ep, "hello", 5, nullptr, 0, 2, &ep); });
    p.finish({&ep});
    p.barrier();  // the second was removed
    CHECK_EQ(fi_av_lookup(av, 1, found.data(), &length), -FI_EINVAL);
    CHECK_EQ(fi_av_lookup(av, 0, found.data(), &length), 0);
  } else {
    CHECK_EQ(p.receive(theirs.data(), theirs.size(), 1).len, theirs.size());
    CHECK_EQ(fi_av_insert(av, mine.data(), 1, nullptr, 0, nullptr), 1);
    CHECK_EQ(fi_av_insert(av, theirs.data(), 1, nullptr, 0, nullptr), 1);
    p.barrier();
    char text[8] = {};
    p.post([&] { return fi_trecv(ep, text, sizeof text, nullptr, 1, 2, 0, &ep); });
    fi_addr_t source = 0;
    const fi_cq_tagged_entry got = p.next(&source);
    CHECK(got.op_context == &ep);
    CHECK_EQ(source, 1u);
    CHECK(std::string(text) == "hello");
    fi_addr_t second = 1;
    CHECK_EQ(fi_av_remove(av, &second, 1, 0), 0);
    p.barrier();
  }
  p.barrier();
  CHECK_EQ(fi_close(&ep->fid), 0);
  CHECK_EQ(fi_close(&av->fid), 0);
  p.barrier();
  attr.flags = FI_READ;
  CHECK_EQ(fi_av_open(p.domain, &attr, &av, nullptr), -FI_EINVAL);  // gone with the last of the two
  p.barrier();
}

const bool registered = [] {
  cases().insert({{"ping_pong", ping_pong},
                  {"stream", stream},
                  {"shared_addresses", shared_addresses},
                  {"matching", matching},
                  {"multi_receive", multi_receive},
                  {"remote_events", remote_events},
                  {"region_counters", region_counters},
                  {"remote_memory", remote_memory},
                  {"atomics", atomics},
                  {"completion_levels", completion_levels},
                  {"lost_peer", lost_peer},
                  {"shared_buffer", shared_buffer},
                  {"bad_setting", bad_setting},
                  {"bad_device", bad_device}});
  return true;
}();

TEST(TwoProcesses, ShareAnAddressVectorByItsName) {
  EXPECT_EQ(run_case("shared_addresses"), "");
}

TEST(TwoProcesses, PingPongOfAllSizes) {
  EXPECT_EQ(run_case("ping_pong"), "");
}
TEST(TwoProcesses, StreamKeepsOrder) {
  EXPECT_EQ(run_case("stream"), "");
}
TEST(TwoProcesses, MatchingPeeksClaimsAndErrors) {
  EXPECT_EQ(run_case("matching"), "");
}
TEST(TwoProcesses, MultiReceive) {
  EXPECT_EQ(run_case("multi_receive"), "");
}
TEST(TwoProcesses, RemoteEvents) {
  EXPECT_EQ(run_case("remote_events"), "");
}
TEST(TwoProcesses, RegionCounters) {
  EXPECT_EQ(run_case("region_counters"), "");
}
TEST(TwoProcesses, RemoteMemory) {
  EXPECT_EQ(run_case("remote_memory"), "");
}
TEST(TwoProcesses, Atomics) {
  EXPECT_EQ(run_case("atomics"), "");
}
TEST(TwoProcesses, CompletionLevelsAndCounters) {
  EXPECT_EQ(run_case("completion_levels"), "");
}
TEST(TwoProcesses, ReceivesMayShareTheirMemory) {
  expect_in_every_way("shared_buffer");
}
TEST(TwoProcesses, ALostPeerEndsItsOperations) {
  EXPECT_EQ(run_case("lost_peer", 1), "");
}

TEST(BadInput, AMalformedSettingIsNotOffered) {
  EXPECT_EQ(run_alone("bad_setting", {"TURNOUT_RING_ENTRIES=7"}), "");
  EXPECT_EQ(run_alone("bad_setting", {"TURNOUT_PROGRESS_THREAD=2h"}), "");
  EXPECT_EQ(run_alone("bad_setting", {"TURNOUT_MEMORY_BUDGET=much"}), "");
  EXPECT_EQ(run_alone("bad_setting", {"TURNOUT_CONFIG=/nowhere/turnout.toml"}), "");
}

TEST(BadInput, AMissingDeviceIsAnError) {
  EXPECT_EQ(run_alone("bad_device",
                      {"TURNOUT_DEVICE=mlx5_99", "EXPECTED_ERROR=" + std::to_string(FI_ENODEV)}),
            "");
}

TEST(BadInput, ABudgetTooSmallForAnEndpointIsAnError) {
  EXPECT_EQ(run_alone("bad_device", {"TURNOUT_MEMORY_BUDGET=1MiB",
                                     "EXPECTED_ERROR=" + std::to_string(FI_ENOMEM)}),
            "");
}

}  // namespace
}  // namespace turnout::testing

int main(int argc, char** argv) {
  return turnout::testing::run(argc, argv);
}
