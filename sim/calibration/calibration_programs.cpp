// SPDX-License-Identifier: BSD-3-Clause
#include "sim/calibration/calibration_programs.h"

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim::calibration {
namespace {

constexpr std::uint64_t kBytes = 8;
constexpr std::uint64_t kAnswerTag = 2;
// Tags of the batches of streams, above all others.
constexpr std::uint64_t kBatchTags = 16;

double nanoseconds(Picoseconds time) {
  return static_cast<double>(time) / static_cast<double>(hca::kNanosecond);
}

Task trip(Rank rank, std::uint32_t peer) {
  const Request answer = co_await rank.irecv(peer, kBytes, kAnswerTag);
  co_await rank.send(peer, kBytes, kDataTag);
  co_await rank.wait(answer);
}

Task answer_trips(Rank rank, std::uint64_t count) {
  Request question = co_await rank.irecv(0, kBytes, kDataTag);
  for (std::uint64_t i = 1; i <= count; ++i) {
    co_await rank.wait(question);
    if (i < count) question = co_await rank.irecv(0, kBytes, kDataTag);
    co_await rank.send(0, kBytes, kAnswerTag);
  }
}

Task ping(Rank rank, PingPong p, std::vector<double>* out) {
  const std::uint32_t first = p.targets + 1, half = (first + rank.size()) / 2;
  for (std::uint32_t other = first; other < half; ++other) co_await trip(rank, other);
  for (std::uint32_t i = 0; i < p.warmup * p.targets; ++i) co_await trip(rank, 1 + i % p.targets);
  for (std::uint32_t other = half; other < rank.size(); ++other) co_await trip(rank, other);
  for (std::uint32_t r = 0; r < p.rounds; ++r) {
    for (std::uint32_t other = first; other < rank.size(); ++other) co_await trip(rank, other);
    for (std::uint32_t i = 0; i < p.targets; ++i) co_await trip(rank, 1 + i);  // connects again
    const Picoseconds begin = rank.now();
    for (std::uint32_t i = 0; i < p.batch * p.targets; ++i) co_await trip(rank, 1 + i % p.targets);
    out->push_back(nanoseconds(rank.now() - begin) / (2.0 * p.batch * p.targets));
  }
}

Task ping_pong_rank(Rank rank, PingPong p, std::vector<double>* out) {
  if (rank.id() == 0) return ping(rank, p, out);
  if (rank.id() > p.targets) return answer_trips(rank, 1 + p.rounds);
  return answer_trips(rank, p.warmup + std::uint64_t{p.rounds} * (p.batch + 1));
}

Task cold_ping(Rank rank, std::uint32_t trips, std::vector<Trip>* out) {
  const Picoseconds first = rank.now();
  for (std::uint32_t i = 0; i < trips; ++i) {
    const Picoseconds begin = rank.now();
    co_await trip(rank, 1);
    out->push_back({nanoseconds(rank.now() - begin), nanoseconds(rank.now() - first)});
  }
}

// To targets 1 to `asked`; their answers come from anyone in bursts, else one from each.
struct Question {
  std::uint32_t asked, answers;
};
struct Questions {
  std::vector<Question> list;
  std::uint32_t warmup, batch, rounds;
  bool bursts;
};

// For each question, mean times from asking to the last answer.
Task ask(Rank rank, Questions q, std::vector<std::vector<double>>* times) {
  std::vector<Request> answers;
  for (std::uint32_t r = 0; r <= q.rounds; ++r) {
    const std::uint32_t batch = r == 0 ? q.warmup : q.batch;
    for (std::size_t k = 0; k < q.list.size(); ++k) {
      const Picoseconds begin = rank.now();
      for (std::uint32_t i = 0; i < batch; ++i) {
        answers.clear();
        for (std::uint32_t n = 1; n <= q.list[k].answers; ++n) {
          const std::uint32_t from = q.bursts ? kAnySource : n;
          answers.push_back(co_await rank.irecv(from, kBytes, kAnswerTag));
        }
        for (std::uint32_t t = 1; t <= q.list[k].asked; ++t) {
          co_await rank.send(t, kBytes, kDataTag);
        }
        co_await rank.wait_all(answers);
      }
      if (r > 0) (*times)[k].push_back(nanoseconds(rank.now() - begin) / batch);
    }
  }
}

Task send_bursts(Rank rank, Bursts p) {
  Window sends(64);
  for (std::uint32_t r = 0; r <= p.rounds; ++r) {
    for (const std::uint32_t length : p.lengths) {
      for (std::uint32_t i = 0; i < (r == 0 ? p.warmup : p.batch); ++i) {
        co_await rank.recv(0, kBytes, kDataTag);
        for (std::uint32_t m = 0; m < length; ++m) {
          sends.push(co_await rank.isend(0, kBytes, kAnswerTag));
        }
        while (!sends.empty()) co_await rank.wait(sends.pop());
      }
    }
  }
}

// Messages to each target in the batch: one to warm up, then the short and the long run in turn.
std::uint32_t share(const Streams& p, std::uint32_t batch) {
  if (batch < p.warmup) return 1;
  return (batch - p.warmup) % 2 == 0 ? p.per_target : 3 * p.per_target;
}
std::uint32_t batches(const Streams& p) {
  return p.warmup + 2 * p.rounds;
}
// Senders begin at places spread over the targets, so that no target is the bottleneck.
std::uint32_t target(const Streams& p, std::uint32_t sender, std::uint32_t i) {
  return p.senders + (sender * (p.targets / p.senders) + i) % p.targets;
}

Task stream_out(Rank rank, Streams p, std::vector<double>* times) {
  const std::uint32_t collector = rank.size() - 1;
  Window sends(64);
  double shorter = 0;
  for (std::uint32_t b = 0; b < batches(p); ++b) {
    const Request done = co_await rank.irecv(collector, kBytes, kAnswerTag);
    const Picoseconds begin = rank.now();
    for (std::uint32_t n = 0; n < share(p, b); ++n) {
      for (std::uint32_t i = 0; i < p.each; ++i) {
        if (sends.full()) co_await rank.wait(sends.pop());
        sends.push(co_await rank.isend(target(p, rank.id(), i), kBytes, kBatchTags + b));
      }
    }
    while (!sends.empty()) co_await rank.wait(sends.pop());
    co_await rank.wait(done);
    if (rank.id() != 0 || b < p.warmup) continue;
    const double time = nanoseconds(rank.now() - begin);
    if ((b - p.warmup) % 2 == 0) {
      shorter = time;
    } else {
      times->push_back((time - shorter) / (2.0 * p.per_target * p.each * p.senders));
    }
  }
}

Task stream_in(Rank rank, Streams p) {
  std::uint32_t from = 0;  // senders that send here
  for (std::uint32_t s = 0; s < p.senders; ++s) {
    for (std::uint32_t i = 0; i < p.each; ++i) from += target(p, s, i) == rank.id() ? 1 : 0;
  }
  Window receives(64);
  for (std::uint32_t b = 0; b < batches(p); ++b) {
    for (std::uint32_t left = from * share(p, b), posted = left; left > 0; --left) {
      for (; posted > 0 && !receives.full(); --posted) {
        receives.push(co_await rank.irecv(kAnySource, kBytes, kBatchTags + b));
      }
      co_await rank.wait(receives.pop());
    }
    co_await rank.send(rank.size() - 1, kBytes, kDataTag);
  }
}

Task collect(Rank rank, Streams p) {
  for (std::uint32_t b = 0; b < batches(p); ++b) {
    for (std::uint32_t t = 0; t < p.targets; ++t) {
      co_await rank.recv(p.senders + t, kBytes, kDataTag);
    }
    for (std::uint32_t s = 0; s < p.senders; ++s) co_await rank.send(s, kBytes, kAnswerTag);
  }
}

}  // namespace

Program ping_pong(PingPong pattern, std::vector<double>* half_round_trips) {
  return [=](Rank rank) { return ping_pong_rank(rank, pattern, half_round_trips); };
}

Program cold_ping_pong(std::uint32_t trips, std::vector<Trip>* out) {
  return [=](Rank rank) {
    return rank.id() == 0 ? cold_ping(rank, trips, out) : answer_trips(rank, trips);
  };
}

Program bursts(Bursts pattern, std::vector<std::vector<double>>* times) {
  Questions questions{{}, pattern.warmup, pattern.batch, pattern.rounds, /*bursts=*/true};
  for (const std::uint32_t length : pattern.lengths) {
    questions.list.push_back({pattern.senders, length * pattern.senders});
  }
  return [=](Rank rank) {
    return rank.id() == 0 ? ask(rank, questions, times) : send_bursts(rank, pattern);
  };
}

Program scatter(Scatter pattern, std::vector<std::vector<double>>* times) {
  Questions questions{{}, pattern.batch, pattern.batch, pattern.rounds, /*bursts=*/false};
  for (const std::uint32_t targets : pattern.targets) questions.list.push_back({targets, targets});
  return [=](Rank rank) {
    if (rank.id() == 0) return ask(rank, questions, times);
    std::uint64_t messages = 0;
    for (const std::uint32_t targets : pattern.targets) {
      if (rank.id() <= targets) messages += std::uint64_t{pattern.rounds + 1} * pattern.batch;
    }
    return answer_trips(rank, messages);
  };
}

Program streams(Streams pattern, std::vector<double>* times) {
  return [=](Rank rank) {
    if (rank.id() < pattern.senders) return stream_out(rank, pattern, times);
    if (rank.id() < pattern.senders + pattern.targets) return stream_in(rank, pattern);
    return collect(rank, pattern);
  };
}

}  // namespace turnout::sim::calibration
