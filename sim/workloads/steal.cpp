// SPDX-License-Identifier: BSD-3-Clause
// Random work stealing: all tasks begin on rank 0; a rank without work asks ranks drawn at random,
// and gets half of what the one asked still has.
//
// The number of tasks handed over is the answer's length. The end is found by the token of
// Dijkstra, Feijen and van Gasteren (EWD 840): it goes round from rank to rank, each passes it on
// when it has no work and no question open; who gave work away since makes it black. A white token
// back at a rank 0 that gave nothing away ends the run: a second round tells all to ask no more, a
// third, a question nobody answers, ends each rank's last receive. A thief's question stays open
// until its answer is here, so no work is ever on its way to an idle rank. Ranks begin at different
// times of a polling interval: if all polled at the same times, a message that arrives a little
// sooner would be found a whole interval sooner.

#include <algorithm>

#include "sim/workloads/families.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kQuestionTag = 1, kAnswerTag = 2, kTokenTag = 3;
// Lengths that mean something.
constexpr std::uint64_t kAsk = 1, kLeave = 2;
constexpr std::uint64_t kWhite = 1, kBlack = 2, kStop = 3;

struct Pattern {
  std::uint64_t tasks, task_bytes;
  std::uint64_t work;  // mean of a task, ns
  std::uint64_t most_tasks, reach;
  Picoseconds poll, most_wait;
};

// One rank's part. Lives in the coroutine's frame.
class Thief {
 public:
  Thief(Rank rank, const Pattern& p)
      : rank_(rank), p_(p), tasks_(rank.id() == 0 ? p.tasks : 0), wait_(p.poll) {}

  Task run() {
    question_ = co_await rank_.irecv(kAnySource, kLeave, kQuestionTag);
    token_ = co_await rank_.irecv(before(), kStop, kTokenTag);
    const auto poll = static_cast<std::uint64_t>(p_.poll);
    co_await rank_.compute(static_cast<Picoseconds>(rank_.random().below(poll)));
    while (!stopped_) {
      co_await serve();
      if (tasks_ > 0) {
        co_await work();
      } else if (asked_) {
        co_await look_for_answer();
      } else {
        co_await pass_token();
        if (!stopped_) co_await ask();
      }
    }
    while (!left_) co_await answer_one();
  }

 private:
  [[nodiscard]] std::uint32_t before() const {
    return (rank_.id() + rank_.size() - 1) % rank_.size();
  }
  [[nodiscard]] std::uint32_t next() const { return (rank_.id() + 1) % rank_.size(); }

  Task work() {
    --tasks_;
    const std::uint64_t time = p_.work / 2 + rank_.random().below(p_.work + 1);
    co_await rank_.compute(static_cast<Picoseconds>(time) * hca::kNanosecond);
  }

  Task serve() {
    while (rank_.test(question_)) co_await answer_one();
  }

  // Waits for a question; gives half of the tasks, or none.
  Task answer_one() {
    const Received asked = co_await rank_.wait(question_);
    if (asked.bytes == kLeave) {
      left_ = true;
      if (rank_.id() != 0) co_await rank_.send(next(), kLeave, kQuestionTag);
      co_return;
    }
    question_ = co_await rank_.irecv(kAnySource, kLeave, kQuestionTag);
    const std::uint64_t given = std::min(tasks_ / 2, p_.most_tasks);
    tasks_ -= given;
    if (given > 0) black_ = true;
    co_await rank_.send(asked.source, given * p_.task_bytes, kAnswerTag);
  }

  Task ask() {
    const std::uint32_t n = rank_.size();
    const std::uint64_t others = p_.reach == 0 ? n - 1 : std::min<std::uint64_t>(p_.reach, n - 1);
    const auto victim =
        static_cast<std::uint32_t>((rank_.id() + 1 + rank_.random().below(others)) % n);
    answer_ = co_await rank_.irecv(victim, p_.most_tasks * p_.task_bytes, kAnswerTag);
    asked_ = true;
    co_await rank_.send(victim, kAsk, kQuestionTag);
  }

  Task look_for_answer() {
    if (!rank_.test(answer_)) {
      co_await rank_.compute(p_.poll);
      co_return;
    }
    const Received answer = co_await rank_.wait(answer_);
    asked_ = false;
    tasks_ += answer.bytes / p_.task_bytes;
    if (answer.bytes > 0) {
      wait_ = p_.poll;
      co_return;
    }
    // Nothing there: ask less and less often, but go on answering, and never hold the token up.
    for (Picoseconds waited = 0; waited < wait_ && !rank_.test(token_); waited += p_.poll) {
      co_await serve();
      co_await rank_.compute(p_.poll);
    }
    wait_ = std::min(2 * wait_, p_.most_wait);
  }

  // Idle, with no question open.
  Task pass_token() {
    if (rank_.id() == 0 && !started_) {
      started_ = true;
      black_ = false;
      co_await rank_.send(next(), kWhite, kTokenTag);
    }
    if (!rank_.test(token_)) co_return;
    const std::uint64_t colour = (co_await rank_.wait(token_)).bytes;
    if (colour == kStop) {
      stopped_ = true;
      if (rank_.id() != 0) {
        co_await rank_.send(next(), kStop, kTokenTag);
      } else {
        // All have stopped asking; the last questions were answered.
        co_await rank_.send(next(), kLeave, kQuestionTag);
      }
      co_return;
    }
    token_ = co_await rank_.irecv(before(), kStop, kTokenTag);
    const bool white = colour == kWhite && !black_;
    black_ = false;
    if (rank_.id() == 0) {
      co_await rank_.send(next(), white ? kStop : kWhite, kTokenTag);
    } else {
      co_await rank_.send(next(), white ? kWhite : kBlack, kTokenTag);
    }
  }

  Rank rank_;
  Pattern p_;
  std::uint64_t tasks_;
  Picoseconds wait_;
  Request question_, answer_, token_;
  bool asked_ = false, black_ = false, started_ = false, stopped_ = false, left_ = false;
};

Task steal(Rank rank, Pattern p, SharedPhases phases) {
  if (rank.id() == 0) phases->begin("steal", rank.now());
  Thief thief(rank, p);
  co_await thief.run();
  if (rank.id() == 0) phases->end(rank.now(), 0);
}

Result<Program> make(const Values& v, const Place&, const SharedPhases& phases) {
  const Pattern p{v["tasks"], v["task_bytes"], v["work"],          v["most_tasks"],
                  v["reach"], v.time("poll"),  v.time("most_wait")};
  return Program([p, phases](Rank rank) { return steal(rank, p, phases); });
}

}  // namespace

std::vector<Workload> steal_family() {
  using namespace parameter;
  return {{"steal",
           "random work stealing: idle ranks ask randomly chosen ranks for half of their tasks",
           {count("tasks", 10'000, 1, kMostCount, "total number of tasks, all on rank 0 at first"),
            {"task_bytes", Parameter::Unit::bytes, 64, 1, 65536, "bytes per transferred task"},
            count("most_tasks", 64, 1, 16384, "most tasks per transfer"),
            count("reach", 0, 0, UINT32_MAX, "number of following ranks that a rank asks; 0: all"),
            time("work", 10'000, "mean time per task"),
            {"poll", Parameter::Unit::duration, 1'000, 100, kMostTime,
             "polling interval of an idle rank"},
            {"most_wait", Parameter::Unit::duration, 16'000, 100, kMostTime,
             "longest time between two requests of an idle rank"}},
           make}};
}

}  // namespace turnout::sim
