// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_view.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/sample.h"

namespace turnout::cli {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::vector<Watched> sample(int ranks) {
  std::vector<Watched> reports;
  for (int rank = 0; rank < ranks; ++rank) {
    reports.push_back({test::sample_report(rank, ranks), 0.5});
    reports.back().report.connections.failed = 0;  // which would be the warning shown
  }
  return reports;
}

// Reports of a large job, with few peers each.
std::vector<Watched> large(int ranks) {
  std::vector<Watched> reports;
  for (int rank = 0; rank < ranks; ++rank) {
    EndpointReport report = test::sample_report(rank % 4, 4);
    report.rank = rank;
    report.ranks = ranks;
    report.connections.failed = 0;
    report.pid = 5000u + static_cast<std::uint32_t>(rank);
    report.endpoint = 0xabcd000000000000u + static_cast<std::uint64_t>(rank);
    reports.push_back({std::move(report), 0.5});
  }
  return reports;
}

// A second later, `messages` more of 100 bytes in each span's last.
std::vector<Watched> later(std::vector<Watched> reports, std::uint64_t messages) {
  for (Watched& one : reports) {
    one.report.lifetime += kSecond;
    for (PeerReport& peer : one.report.peers) {
      for (DirectionReport* direction : {&peer.send, &peer.receive}) {
        direction->spans.back().messages += messages;
        direction->spans.back().bytes += messages * 100;
      }
    }
  }
  return reports;
}

std::string text_of(const Lines& lines) {
  std::string out;
  for (const Line& line : lines) out += line.text() + "\n";
  return out;
}

bool has(const Lines& lines, std::string_view words) {
  return text_of(lines).find(words) != std::string::npos;
}

// Of a screen: its size, and that nothing in it can move the cursor.
void check(const Lines& lines, std::size_t rows, std::size_t columns) {
  EXPECT_EQ(lines.size(), rows);
  for (const Line& line : lines) {
    EXPECT_LE(line.width(), columns) << line.text();
    for (const char c : line.text()) {
      EXPECT_TRUE(c >= 0x20 && c < 0x7f) << static_cast<int>(c) << " in " << line.text();
    }
  }
}

std::string selected_line(const Lines& lines) {
  std::string found;
  for (const Line& line : lines) {
    if (!line.selected()) continue;
    EXPECT_EQ(found, "") << "two lines are selected";
    found = line.text();
  }
  return found;
}

struct Screen {
  TopModel model;
  TopView view{PageLimits{}};

  Lines draw(std::size_t rows = 24, std::size_t columns = 80) {
    Lines lines = view.draw(model, rows, columns);
    check(lines, rows, columns);
    return lines;
  }
  Lines after(TopKey key) {
    EXPECT_TRUE(view.press(key, model));
    return draw();
  }
};

TEST(TopText, PrintableAscii) {
  EXPECT_EQ(printable("a\x1b[2Jb\tc\x7f"), "a?[2Jb?c?");
  EXPECT_EQ(printable("na\xc3\xafve \xe2\x80\xae"), "na?ve ?");
  EXPECT_EQ(printable("\xff\xfe"), "??");
  EXPECT_EQ(printable(""), "");
}

TEST(TopText, LinesAreCut) {
  Line line;
  line.add("abc").add("defg", Style::bad).add("hij");
  line.cut(10);
  EXPECT_EQ(line.text(), "abcdefghij");
  line.cut(5);
  EXPECT_EQ(line.text(), "abcd~");
  EXPECT_EQ(line.pieces().size(), 2u);
  line.cut(0);
  EXPECT_EQ(line.text(), "");
  Line cells;
  cells.left("ab", 4).right("cd", 4).left("abcdef", 4);
  EXPECT_EQ(cells.text(), "ab    cdabc~");
}

TEST(TopText, Wrapped) {
  Lines lines;
  wrap(&lines, "Label ", "one two three four five", 20);
  EXPECT_EQ(text_of(lines), "Label one two three\n      four five\n");
  lines.clear();
  wrap(&lines, "L ", "", 20);
  EXPECT_EQ(text_of(lines), "L \n");
  lines.clear();
  wrap(&lines, "", std::string(50, 'x'), 20);
  EXPECT_EQ(lines.size(), 3u);
  for (std::size_t width = 1; width < 15; ++width) {
    lines.clear();
    wrap(&lines, "Processes  ", "words of which some are inseparable", width);
    for (const Line& line : lines) EXPECT_LE(line.width(), width);
  }
}

TEST(TopText, ShortNumbers) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(0.25), "0.25");
  EXPECT_EQ(short_count(9.5), "9.50");
  EXPECT_EQ(short_count(123), "123");
  EXPECT_EQ(short_count(45'123), "45.1k");
  EXPECT_EQ(short_count(999'600), "1.00M");
  EXPECT_EQ(short_count(2'310'000), "2.31M");
  EXPECT_EQ(short_count(-1), "-");
  EXPECT_EQ(short_count(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_LE(short_count(1e300).size(), 7u);
  EXPECT_EQ(short_bytes(2048), "2.00 KiB");
  EXPECT_LE(short_bytes(1e300).size(), 9u);
  EXPECT_EQ(short_age(0.9), "0s");
  EXPECT_EQ(short_age(59.9), "59s");
  EXPECT_EQ(short_age(60), "1m");
  EXPECT_EQ(short_age(7200), "2h");
  EXPECT_EQ(short_age(-5), "0s");
  EXPECT_EQ(long_age(192), "3 min 12 s");
  EXPECT_EQ(long_age(7500), "2 h 5 min");
  EXPECT_EQ(percent(1, 4), "25%");
  EXPECT_EQ(percent(1, 0), "-");
  EXPECT_EQ(percent(1, 1000), "<1%");
  EXPECT_EQ(percent(0, 1000), "0%");
  EXPECT_EQ(bar(1, 2, 10), "[||||    ]");
  EXPECT_EQ(bar(1, 1000, 6), "[|   ]");
  EXPECT_EQ(bar(999, 1000, 6), "[||| ]");
  EXPECT_EQ(bar(5, 4, 6), "[||||]");
  EXPECT_EQ(bar(0, 0, 6), "[    ]");
  EXPECT_EQ(fill_style(95, 100), Style::bad);
  EXPECT_EQ(fill_style(10, 100), Style::good);
}

TEST(TopModel, RatesAreOfTwoReports) {
  TopModel model;
  std::vector<Watched> reports = sample(4);
  model.add(reports);
  EXPECT_FALSE(model.jobs()[0].sent);
  EXPECT_FALSE(model.jobs()[0].processes[0].sent);

  std::vector<Watched> next = later(reports, 500);
  model.add(next);
  const auto expect_rates = [&model] {
    const TopJob& job = model.jobs()[0];
    ASSERT_TRUE(job.sent);
    EXPECT_DOUBLE_EQ(job.sent->messages, 4 * 3 * 500);
    EXPECT_DOUBLE_EQ(job.sent->bytes, 4 * 3 * 500 * 100);
    EXPECT_DOUBLE_EQ(job.processes[1].received->messages, 1500);
    EXPECT_DOUBLE_EQ(job.processes[1].rate().messages, 3000);
    EXPECT_DOUBLE_EQ(model.peers(job.processes[1])[0].sent->messages, 500);
  };
  expect_rates();
  // Read again before the processes wrote: the rates stay as they are.
  model.add(next);
  expect_rates();
  // Half a second of a process's own clock counts, not when it was read.
  next = later(next, 500);
  for (Watched& one : next) one.report.lifetime -= kSecond / 2;
  model.add(next);
  EXPECT_DOUBLE_EQ(model.jobs()[0].processes[1].rate().messages, 6000);
}

TEST(TopModel, CountsThatDecreaseGiveNoRate) {
  TopModel model;
  std::vector<Watched> reports = sample(2);
  model.add(later(reports, 500));
  for (Watched& one : reports) one.report.lifetime += 5 * kSecond;
  model.add(reports);
  EXPECT_FALSE(model.jobs()[0].processes[0].sent);
  // A clock that went back, and one of nonsense.
  reports[0].report.lifetime = std::numeric_limits<std::int64_t>::min();
  model.add(reports);
  reports[0].report.lifetime = std::numeric_limits<std::int64_t>::max();
  model.add(reports);
  EXPECT_FALSE(model.jobs()[0].processes[0].sent);
}

TEST(TopModel, PeersAndPairsByChannel) {
  TopModel model;
  model.add(sample(4));
  const TopJob& job = model.jobs()[0];
  const auto dc = static_cast<std::size_t>(ChannelKind::dc_sendrecv);
  const auto rc = static_cast<std::size_t>(ChannelKind::rc_rdma);
  EXPECT_EQ(job.pairs[dc], 6u);
  EXPECT_EQ(job.pairs[rc], 6u);
  EXPECT_EQ(job.processes[2].peers[rc], 2u);
  EXPECT_EQ(job.processes[2].peers[dc], 1u);
  EXPECT_EQ(job.processes[0].decision.has_value(), false);
  ASSERT_TRUE(job.processes[2].decision);
  EXPECT_EQ(job.processes[2].decision->peer, "rank 1");
  EXPECT_NEAR(job.processes[2].decision->age, 2.21 + 0.5, 1e-9);
  EXPECT_EQ(job.memory.used, 4 * 365'536u);
}

TEST(TopModel, EndpointsOfAProcessAreOneLine) {
  std::vector<Watched> reports = sample(2);
  Watched second = reports[0];
  second.report.endpoint = 77;
  second.age = 100;
  reports.push_back(second);
  TopModel model;
  model.add(reports);
  ASSERT_EQ(model.jobs()[0].processes.size(), 2u);
  const TopProcess& process = model.jobs()[0].processes[0];
  EXPECT_EQ(process.endpoints.size(), 2u);
  EXPECT_EQ(process.memory.used, 2 * 365'536u);
  EXPECT_FALSE(process.stale());
  EXPECT_EQ(model.peers(process).size(), 2u);
}

TEST(TopModel, PeersBusiestFirst) {
  TopModel model;
  std::vector<Watched> reports = sample(4);
  model.add(reports);
  EXPECT_EQ(model.peers(model.jobs()[0].processes[3])[0].name, "rank 0");
  reports = later(reports, 10);
  reports[3].report.peers[1].send.spans.back().messages += 1000;
  model.add(reports);
  EXPECT_EQ(model.peers(model.jobs()[0].processes[3])[0].name, "rank 1");
}

TEST(TopModel, WarningsComeFirst) {
  TopModel model;
  std::vector<Watched> reports = sample(4);
  model.add(reports);
  EXPECT_FALSE(model.jobs()[0].notice.warning) << model.jobs()[0].notice.text;
  reports[1].age = 42;
  model.add(reports);
  EXPECT_TRUE(model.jobs()[0].notice.warning);
  EXPECT_EQ(model.jobs()[0].notice.text,
            "rank 1 has not called the library for 42 s: its numbers are from then.");
  // Four of eight ranks are on this host: that is no warning. A lost peer is one.
  for (Watched& one : reports) one.report.ranks = 8;
  reports[1].age = 0;
  model.add(reports);
  EXPECT_FALSE(model.jobs()[0].notice.warning) << model.jobs()[0].notice.text;
  reports[2].report.peers[0].lost = true;
  model.add(reports);
  EXPECT_TRUE(model.jobs()[0].notice.warning);
  EXPECT_NE(model.jobs()[0].notice.text.find("lost"), std::string::npos);
}

TEST(TopView, AllSizes) {
  for (const int ranks : {1, 4, 1024}) {
    Screen screen;
    std::vector<Watched> reports = ranks > 4 ? large(ranks) : sample(4);
    if (ranks == 1) reports.resize(1);  // its peers are on other hosts
    screen.model.add(reports);
    screen.model.add(later(reports, 1234));
    for (const std::size_t columns : {1u, 10u, 40u, 80u, 120u, 300u}) {
      for (const std::size_t rows : {1u, 2u, 5u, 10u, 24u, 60u}) {
        for (const TopKey key :
             {TopKey::none, TopKey::open, TopKey::help, TopKey::back, TopKey::back}) {
          EXPECT_TRUE(screen.view.press(key, screen.model));
          screen.draw(rows, columns);
        }
      }
    }
  }
}

TEST(TopView, JobFirstThenRanks) {
  Screen screen;
  std::vector<Watched> reports = sample(4);
  screen.model.add(reports);
  screen.model.add(later(reports, 1000));
  const Lines lines = screen.draw();
  EXPECT_EQ(lines[0].text().substr(0, 24), "turnout top - job sample");
  EXPECT_EQ(lines[1].text(), "Processes  4 of 4 ranks on host node7, policy aqps, running 4 s");
  EXPECT_EQ(lines[2].text().substr(0, 51), "Traffic    12.0k messages/s, 1.14 MiB/s sent; so fa");
  EXPECT_EQ(lines[3].text(),
            "Memory     [|          ] 1.39 MiB used, 2.03 MiB peak, 1.00 GiB budget");
  EXPECT_EQ(lines[4].text(), "Pairs      6 DC-sendrecv, 6 RC-RDMA");
  EXPECT_EQ(lines[5].text().substr(0, 10), "Status    ");
  EXPECT_EQ(lines[6].text(), "");
  EXPECT_EQ(lines[7].text().substr(0, 49), "rank   DC RC-RDMA   msg/s   bytes/s memory       ");
  EXPECT_EQ(lines[8].text().substr(0, 35), "   0    3       -   6.00k   586 KiB");
  EXPECT_EQ(lines[11].text().substr(0, 35), "   3    -       3   6.00k   586 KiB");
  EXPECT_TRUE(has(lines, "3s 2 DC->RC-RDMA"));
  EXPECT_NE(lines[23].text().find("q quit"), std::string::npos);
}

TEST(TopView, WideTablesSayMoreNarrowOnesLess) {
  Screen screen;
  screen.model.add(sample(4));
  EXPECT_TRUE(has(screen.draw(24, 120), "ago, rank 2: DC-sendrecv -> RC-RDMA"));
  EXPECT_FALSE(has(screen.draw(24, 40), "last decision"));
  EXPECT_TRUE(has(screen.draw(24, 40), "msg/s"));
  EXPECT_TRUE(has(screen.draw(24, 20), "msg/s"));
}

TEST(TopView, KeysSelectARank) {
  Screen screen;
  screen.model.add(large(1024));
  EXPECT_EQ(selected_line(screen.draw()).substr(0, 4), "   0");
  EXPECT_EQ(selected_line(screen.after(TopKey::up)).substr(0, 4), "   0");
  EXPECT_EQ(selected_line(screen.after(TopKey::down)).substr(0, 4), "   1");
  EXPECT_EQ(selected_line(screen.after(TopKey::page_down)).substr(0, 4), "  16");
  EXPECT_EQ(selected_line(screen.after(TopKey::end)).substr(0, 4), "1023");
  EXPECT_EQ(selected_line(screen.after(TopKey::down)).substr(0, 4), "1023");
  EXPECT_EQ(selected_line(screen.after(TopKey::page_up)).substr(0, 4), "1008");
  EXPECT_EQ(selected_line(screen.after(TopKey::home)).substr(0, 4), "   0");
  EXPECT_FALSE(screen.view.press(TopKey::quit, screen.model));
}

TEST(TopView, SortedWithTheSameRankSelected) {
  Screen screen;
  std::vector<Watched> reports = sample(4);
  screen.model.add(reports);
  reports = later(reports, 10);
  reports[2].report.peers[0].send.spans.back().messages += 1000;
  reports[1].report.used = reports[1].report.budget / 2;
  screen.model.add(reports);
  screen.draw();
  EXPECT_EQ(selected_line(screen.after(TopKey::down)).substr(0, 4), "   1");
  Lines lines = screen.after(TopKey::sort);
  EXPECT_TRUE(has(lines, "by rate"));
  EXPECT_EQ(lines[8].text().substr(0, 4), "   2");
  EXPECT_EQ(selected_line(lines).substr(0, 4), "   1");
  lines = screen.after(TopKey::sort);
  EXPECT_TRUE(has(lines, "by memory"));
  EXPECT_EQ(lines[8].text().substr(0, 4), "   1");
  EXPECT_EQ(selected_line(lines).substr(0, 4), "   1");
  EXPECT_TRUE(has(screen.after(TopKey::sort), "by rank"));
  // The selected rank ends: the one at its place is selected.
  reports.erase(reports.begin() + 1);
  screen.model.add(reports);
  EXPECT_EQ(selected_line(screen.draw()).substr(0, 4), "   2");
}

TEST(TopView, PageOfARank) {
  Screen screen;
  screen.model.add(sample(4));
  screen.draw();
  static_cast<void>(screen.after(TopKey::end));
  Lines lines = screen.after(TopKey::open);
  EXPECT_EQ(lines[0].text().substr(0, 39), "turnout top - job sample - rank 3 of 4 ");
  EXPECT_TRUE(has(lines, "pid 5003 on host node7, device virtual_0, policy aqps"));
  EXPECT_TRUE(has(lines, "Peers: 3, busiest first"));
  EXPECT_TRUE(has(lines, "DC -> RC-RDMA @1.0s"));
  EXPECT_TRUE(has(lines, "more lines below"));
  EXPECT_TRUE(has(lines, "Esc back"));
  lines = screen.after(TopKey::end);
  EXPECT_TRUE(has(lines, "Memory by kind"));
  EXPECT_TRUE(has(lines, "queue pairs"));
  EXPECT_TRUE(has(lines, "done in 120 us: message rate justifies"));
  EXPECT_FALSE(has(lines, "more lines below"));
  lines = screen.after(TopKey::home);
  EXPECT_EQ(lines[0].text().substr(0, 39), "turnout top - job sample - rank 3 of 4 ");
  // It stays on this page when the rank ends, and says so.
  screen.model.add(sample(2));
  EXPECT_TRUE(has(screen.draw(), "This process has ended"));
  EXPECT_TRUE(has(screen.after(TopKey::back), "turnout top - job sample"));
}

TEST(TopView, PageShowsAFewOrAll) {
  Screen screen;
  screen.model.add(sample(12));
  screen.draw();
  static_cast<void>(screen.after(TopKey::end));
  EXPECT_TRUE(has(screen.after(TopKey::open), "Peers: 8 of 11, busiest first"));
  EXPECT_TRUE(has(screen.after(TopKey::all), "Peers: 11, busiest first"));
}

TEST(TopView, StaleProcesses) {
  Screen screen;
  std::vector<Watched> reports = sample(4);
  reports[1].age = 75;
  screen.model.add(reports);
  const Lines lines = screen.draw();
  EXPECT_TRUE(has(lines, "no calls for 1m"));
  EXPECT_TRUE(has(lines, "rank 1 has not called the library for 1 min 15 s"));
  static_cast<void>(screen.after(TopKey::down));
  EXPECT_TRUE(has(screen.after(TopKey::open), "Stale"));
}

TEST(TopView, NothingToShow) {
  Screen screen;
  EXPECT_TRUE(has(screen.draw(), "No reports yet."));
  screen.model.add({}, {"a folder open to others", "another"});
  EXPECT_TRUE(has(screen.draw(), "a folder open to others (and 1 more)"));
  for (const TopKey key : {TopKey::up, TopKey::down, TopKey::end, TopKey::open, TopKey::sort,
                           TopKey::next_job, TopKey::all, TopKey::help, TopKey::back}) {
    static_cast<void>(screen.after(key));
  }
  // Reports without peers, launcher, decisions, memory or budget.
  EndpointReport bare;
  bare.pid = 4711;
  screen.model.add({{bare, 0}});
  const Lines lines = screen.draw();
  EXPECT_TRUE(has(lines, "1 process on host"));
  EXPECT_TRUE(has(lines, "\n pid   msg/s"));
  EXPECT_TRUE(has(lines, "\n4711       -"));
  EXPECT_TRUE(has(lines, "no messages yet"));
  EXPECT_TRUE(has(screen.after(TopKey::open), "Peers: none"));
  EXPECT_TRUE(has(screen.draw(), "Decisions: none"));
}

TEST(TopView, JobsOneByOne) {
  Screen screen;
  std::vector<Watched> reports = sample(4);
  reports[3].report.job = "other";
  screen.model.add(reports);
  EXPECT_TRUE(has(screen.draw(), "turnout top - job other (1 of 2, n: next)"));
  EXPECT_TRUE(has(screen.after(TopKey::next_job), "turnout top - job sample (2 of 2, n: next)"));
  EXPECT_TRUE(has(screen.after(TopKey::next_job), "turnout top - job other (1 of 2"));
}

TEST(TopView, PausedAndHelp) {
  Screen screen;
  screen.model.add(sample(4));
  EXPECT_FALSE(screen.view.paused());
  EXPECT_TRUE(has(screen.after(TopKey::pause), "paused"));
  EXPECT_TRUE(screen.view.paused());
  EXPECT_TRUE(has(screen.after(TopKey::help), "last decision"));
  EXPECT_TRUE(has(screen.after(TopKey::back), "Processes  4 of 4"));
  EXPECT_FALSE(has(screen.after(TopKey::pause), "paused"));
}

TEST(TopView, TextOfReportsIsHarmless) {
  const std::string evil = "\x1b[2J\x1b]0;x\x07\r\n\t\xe2\x80\xae\xff" + std::string(300, 'w');
  Screen screen;
  std::vector<Watched> reports = sample(3);
  for (Watched& one : reports) {
    EndpointReport& report = one.report;
    report.host = report.device = report.policy = report.job = evil;
    for (MemoryLine& line : report.memory) line.kind = evil;
    for (PeerReport& peer : report.peers) peer.reason = evil;
    for (DecisionReport& decision : report.decisions) decision.reason = decision.outcome = evil;
  }
  screen.model.add(reports, {evil});
  screen.draw();
  screen.draw(24, 40);
  static_cast<void>(screen.after(TopKey::end));
  static_cast<void>(screen.after(TopKey::open));
  static_cast<void>(screen.after(TopKey::all));
  screen.draw(500, 200);
}

TEST(TopView, StrangeNumbers) {
  Screen screen;
  std::vector<Watched> reports = sample(3);
  for (Watched& one : reports) {
    EndpointReport& report = one.report;
    one.age = -1e18;
    report.rank = std::numeric_limits<int>::max() - static_cast<int>(report.pid % 3);
    report.ranks = std::numeric_limits<int>::max();
    report.pid = std::numeric_limits<std::uint32_t>::max() - report.pid % 3;
    report.used = report.peak = report.budget = std::numeric_limits<std::uint64_t>::max();
    report.lifetime = std::numeric_limits<std::int64_t>::min();
    for (PeerReport& peer : report.peers) {
      peer.bytes = peer.tear_downs = std::numeric_limits<std::uint64_t>::max();
      peer.receive.switches = std::numeric_limits<std::uint64_t>::max();
      for (ChannelSpan& span : peer.receive.spans) {
        span.messages = span.bytes = std::numeric_limits<std::uint64_t>::max();
        span.since = std::numeric_limits<std::int64_t>::min();
      }
    }
    for (DecisionReport& decision : report.decisions) {
      decision.time = std::numeric_limits<std::int64_t>::max();
      decision.peer = 4'000'000'000;
    }
  }
  screen.model.add(reports);
  for (Watched& one : reports) {
    one.age = 1e18;
    one.report.lifetime = std::numeric_limits<std::int64_t>::max();
  }
  screen.model.add(reports);
  screen.draw();
  screen.draw(24, 40);
  static_cast<void>(screen.after(TopKey::end));
  static_cast<void>(screen.after(TopKey::open));
  screen.draw(200, 80);
}

}  // namespace
}  // namespace turnout::cli
