// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "core/report/json_reader.h"
#include "core/report/report.h"
#include "tests/support/sample.h"

namespace turnout {
namespace {

TEST(ReportJson, ReadsBackWhatItWrote) {
  const std::string text = to_json(test::sample_report(3, 8));
  const Result<EndpointReport> read = report_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(to_json(read.value()), text);
  EXPECT_EQ(read.value().peers.size(), 7u);
  EXPECT_EQ(read.value().peers[0].receive.spans[1].channel, ChannelKind::rc_rdma);
  EXPECT_EQ(read.value().endpoint, 0xabcd000000000003u);
  EXPECT_EQ(read.value().peers[0].observed_gain, 140.5);
  EXPECT_FALSE(read.value().peers[6].observed_gain.has_value());
  ASSERT_EQ(read.value().receive_costs.size(), 2u);
  EXPECT_EQ(read.value().receive_costs[1].messages, 4096u);
  EXPECT_EQ(read.value().registrations.misses, 40u);
  ASSERT_EQ(read.value().history.size(), 3u);
  EXPECT_EQ(read.value().history[2].begin, 2'000'000'000);
  EXPECT_EQ(read.value().history[2].sources.size(), 7u);
  EXPECT_EQ(read.value().memory[1].objects_peak, 32u);
  EXPECT_EQ(read.value().started, 1'700'000'000'003'000'000);
  ASSERT_EQ(read.value().memory_over_time.size(), 4u);
  EXPECT_EQ(read.value().memory_over_time[2].time, 1'000'000'000);
  EXPECT_EQ(read.value().memory_over_time[2].bytes[1], 131'072u);
  ASSERT_TRUE(read.value().waits.has_value());
  const WaitsReport& waits = *read.value().waits;
  ASSERT_EQ(waits.list.size(), 2u);
  EXPECT_FALSE(waits.list[0].peer.has_value());
  EXPECT_EQ(waits.list[0].ignore, 0xffu);
  EXPECT_EQ(waits.list[1].kind, WaitKind::send);
  EXPECT_EQ(waits.list[1].waits_for, WaitFor::credits);
  EXPECT_EQ(waits.list[1].tag, 0x8000000000000007u);
  EXPECT_EQ(waits.total(WaitKind::receive), 70u);
  EXPECT_EQ(waits.mpi, "MPICH Version: 5.0.2");
  ASSERT_TRUE(read.value().selection.has_value());
  EXPECT_EQ(read.value().selection->threshold, 12.5);
  ASSERT_EQ(read.value().selection->costs.size(), 1u);
  EXPECT_EQ(read.value().selection->costs[0].uncertainty, 0.25);
  ASSERT_TRUE(read.value().peers[0].source.has_value());
  EXPECT_EQ(read.value().peers[0].source->switched, 0.5);
  EXPECT_FALSE(read.value().peers[1].source.has_value());
  ASSERT_TRUE(read.value().profile.has_value());
  const ProfileReport& profile = *read.value().profile;
  EXPECT_EQ(profile.counts.sent[2][size_bin(1 << 20)].messages, 1000u);
  EXPECT_EQ(profile.counts.unexpected.total().messages, 400u);
  EXPECT_EQ(profile.counts.low_watermark_events, 2u);
  EXPECT_EQ(profile.rnr_retries, 3u);
  EXPECT_EQ(profile.library_time_error, 10'000'000u);
}

TEST(ReportJson, ExtremesSurvive) {
  EndpointReport report = test::sample_report(0, 2);
  report.rank = report.ranks = -1;
  report.endpoint = report.budget = std::numeric_limits<std::uint64_t>::max();
  report.lifetime = std::numeric_limits<std::int64_t>::min();
  report.peers[0].predicted_gain = std::numeric_limits<double>::quiet_NaN();
  report.host = "\xff\"\\\n\x01";
  const Result<EndpointReport> read = report_from_json(to_json(report));
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(read.value().endpoint, report.endpoint);
  EXPECT_EQ(read.value().budget, report.budget);
  EXPECT_EQ(read.value().lifetime, report.lifetime);
  EXPECT_EQ(read.value().rank, -1);
  EXPECT_EQ(read.value().peers[0].predicted_gain, 0);
}

TEST(ReportJson, DamageIsNamed) {
  const std::string text = to_json(test::sample_report(1, 3));
  const auto expect_named = [](const std::string& damaged, const std::string& words) {
    const Result<EndpointReport> read = report_from_json(damaged);
    ASSERT_FALSE(read.ok()) << damaged.substr(0, 200);
    EXPECT_NE(read.status().text().find(words), std::string::npos) << read.status().text();
  };
  expect_named(text.substr(0, text.size() / 2), "cut off");
  expect_named("", "not JSON");
  expect_named("[]", "not an object");
  expect_named("{}", "without \"turnout_report\"");
  struct Change {
    std::string from, to, words;
  };
  for (const auto& [from, to, words] : std::initializer_list<Change>{
           {R"("turnout_report": 1)", R"("turnout_report": 2)", "layout 2"},
           {R"("hits": 900)", R"("hits": -1)", "registrations.hits"},
           {R"("rank": 1)", R"("rank": 99999999999)", R"("rank")"},
           {R"("rank": 1)", R"("rank": 1.5)", R"("rank")"},
           {R"("pid": 5001)", R"("pid": -1)", R"("pid")"},
           {"DC-sendrecv", "carrier pigeon", "peers[0].send.spans[0].channel"},
           {"0xabcd000000000001", "0xnothing", R"("endpoint")"},
           {R"("observed_gain_ns": 140.5)", R"("observed_gain_ns": "x")",
            "peers[0].observed_gain_ns"},
           {R"("mean_ns": 330.25)", R"("mean_ns": [])", "receive_costs[0].mean_ns"},
           {R"("end_ns": 1000000000)", R"("end_ns": -5)", "history[0].end_ns"},
           {R"("lost": false)", R"("lost": 0)", "peers[0].lost"},
           {R"("objects_peak": 16)", R"("objects_peak": -16)", "memory[0].objects_peak"},
           {R"("below": 128)", R"("below": 129)", "profile.sent.control[0].below"},
           {R"("below": 128)", R"("below": 0)", "profile.sent.control[0].below"},
           {R"("below": 128)", R"("below": 4398046511104)", "profile.sent.control[0].below"},
           {R"("below": 16)", R"("below": 1)", "profile.unexpected[1].below"},
           {R"("rnr_retries": 1)", R"("rnr_retries": "1")", "profile.rnr_retries"},
           {R"("calls_measured": 2000)", R"("calls_measured": 2000000)", "profile.calls_measured"},
           {R"("library_time_ns": 500000000)", R"("library_time_ns": -1)",
            "profile.library_time_ns"},
           {R"("unexpected": [)", R"("unexpected": 1, "x": [)", "profile.unexpected"},
           {R"("started_unix_ns": 17)", R"("started_unix_ns": -17)", "started_unix_ns"},
           {R"("memory_over_time": [)", R"("memory_over_time": 1, "x": [)", "memory_over_time"},
           {"   131072,", "   -131072,", "memory_over_time[2][2]"},
           {"   131072,", "", R"(memory_over_time[2]")"},
           {"   1000000,", "   2000000000,", R"(memory_over_time[2]")"},
           {R"("quiet_ns": 15)", R"("quiet_ns": -15)", "waits.quiet_ns"},
           {R"("age_ns": 2)", R"("age_ns": -2)", "waits.list"},
           {R"("waits_for": "credits")", R"("waits_for": "luck")", "waits.list[1].waits_for"},
           {R"("kind": "send")", R"("kind": 2)", "waits.list[1].kind"},
           {R"("tag": "0x8)", R"("tag": "0x88)", "waits.list[1].tag"},
           {R"("receive": 70)", R"("receive": -70)", "waits.totals.receive"},
           {R"("spans": [)", R"("spans": 7, "x": [)", "peers[0].send.spans"}}) {
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    expect_named(std::string(text).replace(at, from.size(), to), words);
  }
}

TEST(ReportJson, RnrRetriesMayBeUnknown) {
  EndpointReport report = test::sample_report(0, 2);
  report.profile->rnr_retries.reset();
  const std::string text = to_json(report);
  const Result<EndpointReport> read = report_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_FALSE(read.value().profile->rnr_retries.has_value());
  EXPECT_EQ(to_json(read.value()), text);
}

// Reports of before had neither, nor a profile.
TEST(ReportJson, HistoryAndWhatWasObservedMayBeMissing) {
  EndpointReport report = test::sample_report(0, 3);
  report.history.clear();
  report.receive_costs.clear();
  report.profile.reset();
  report.started = 0;
  report.memory_over_time.clear();
  report.waits.reset();
  std::string text = to_json(report);
  EXPECT_EQ(text.find("history"), std::string::npos);
  EXPECT_EQ(text.find("profile"), std::string::npos);
  for (std::string_view line : {"\"observed_gain_ns\": null,", "\"receive_costs\": []"}) {
    for (auto at = text.find(line); at != std::string::npos; at = text.find(line)) {
      text.replace(at, line.size(), line.back() == ',' ? "" : "\"more\": 1");
    }
  }
  const Result<EndpointReport> read = report_from_json(text);
  ASSERT_TRUE(read.ok()) << read.status().text();
  EXPECT_EQ(to_json(read.value()), to_json(report));
}

TEST(ReportJson, AHistoryThatIsTooLongIsRefused) {
  EndpointReport report = test::sample_report(0, 2);
  HistoryInterval interval{0, 1, 0, {}};
  for (std::size_t i = 0; i < 2 * EndpointReport::kMaxHistory; ++i) {
    interval.sources.emplace_back(report.peers[0].peer, i);
  }
  report.history = {interval};
  EXPECT_NE(report_from_json(to_json(report)).status().text().find("\"history\""),
            std::string::npos);
}

TEST(ReportJson, WaitsThatAreTooLongAreRefused) {
  EndpointReport report = test::sample_report(0, 2);
  report.waits->list.resize(WaitsReport::kMost * kWaitKinds.size());
  EXPECT_TRUE(report_from_json(to_json(report)).ok());
  report.waits->list.emplace_back();
  EXPECT_NE(report_from_json(to_json(report)).status().text().find("\"waits.list\""),
            std::string::npos);
  report.waits->list.clear();
  report.waits->mpi.assign(WaitsReport::kMostText + 1, 'M');
  EXPECT_NE(report_from_json(to_json(report)).status().text().find("\"waits.mpi\""),
            std::string::npos);
}

TEST(ReportJson, DeepNestingIsRefusedWithoutRecursion) {
  EXPECT_FALSE(report_from_json(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(report_from_json(std::string(100'000, '[') + std::string(100'000, ']')).ok());
}

// Calls see(value, place) for everything in a JSON text, with its place as messages name it.
template <class See>
void visit(Json& value, const std::string& place, See see) {
  std::size_t i = 0;
  for (auto& [key, inner] : value.items()) {
    const std::string at = value.is_array() ? fmt::format("{}[{}]", place, i++)
                           : place.empty()  ? key
                                            : fmt::format("{}.{}", place, key);
    see(inner, at);
    if (inner.is_structured()) visit(inner, at, see);
  }
}

TEST(ReportJson, AnythingOfAWrongTypeIsNamed) {
  Json json = Json::parse(to_json(test::sample_report(1, 3)));
  std::size_t places = 0;
  visit(json, "", [&](Json& value, const std::string& place) {
    const Json kept = std::exchange(value, value.is_object() ? Json(7) : Json::object());
    const Result<EndpointReport> read = report_from_json(json.dump());
    ASSERT_FALSE(read.ok()) << place;
    const std::string text = read.status().text();
    // An element that is a number is named by the array that it is in.
    const auto names = [&](const std::string& at) {
      return text.find(fmt::format("\"{}\"", at)) != std::string::npos ||
             text.find(fmt::format("\"{}.\"", at)) != std::string::npos;
    };
    const bool named = names(place) || names(place.substr(0, place.rfind('[')));
    EXPECT_TRUE(named) << place << ": " << text;
    value = kept;
    ++places;
  });
  EXPECT_GT(places, 200U);
}

RC_GTEST_PROP(ReportJsonProperty, OtherTextIsRefused, ()) {
  const std::string text = *rc::gen::oneOf(rc::gen::arbitrary<std::string>(),
                                           rc::gen::container<std::string>(rc::gen::elementOf(
                                               std::string("{}[]\"\",:01e-.ntruefals "))));
  const Result<EndpointReport> read = report_from_json(text);
  RC_ASSERT(!read.ok());
  RC_ASSERT(read.status().code() == Code::invalid);
  const bool is_json = read.status().text().find("not JSON") == std::string::npos;
  RC_ASSERT(is_json == Json::accept(text));
}

RC_GTEST_PROP(ReportJsonProperty, ADamagedReportIsRefusedOrReadsBack, ()) {
  std::string text = to_json(test::sample_report(1, 3));
  const int n = *rc::gen::inRange(1, 4);
  const bool digits = *rc::gen::arbitrary<bool>();  // another number is often one that is accepted
  for (int i = 0; i < n; ++i) {
    auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    if (digits) at = text.find_last_of("0123456789", at);
    if (at == std::string::npos) continue;
    text[at] = digits ? *rc::gen::inRange('1', '9') : *rc::gen::arbitrary<char>();
  }
  const Result<EndpointReport> read = report_from_json(text);
  if (!read.ok()) {
    RC_ASSERT(read.status().text().find("JSON") != std::string::npos ||
              read.status().text().find("report") != std::string::npos);
    return;
  }
  const std::string written = to_json(read.value());
  const Result<EndpointReport> again = report_from_json(written);
  RC_ASSERT(again.ok());
  RC_ASSERT(to_json(again.value()) == written);
  RC_ASSERT(!format_reports({&read.value(), 1}).empty());
}

}  // namespace
}  // namespace turnout
