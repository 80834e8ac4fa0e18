// SPDX-License-Identifier: BSD-3-Clause
#include "cli/html/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/value.h"
#include "cli/html/escape.h"
#include "core/report/job_findings.h"

namespace turnout::cli {
namespace {

std::string date(std::int64_t nanoseconds) {
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return {};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02} UTC", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// "turnout0", or "turnout0 and 2 others".
std::string names(const std::set<std::string>& all) {
  std::string first = html_text(shortened(*all.begin(), 64));
  if (all.size() == 1) return first;
  return fmt::format("{} and {} other{}", first, all.size() - 1, all.size() == 2 ? "" : "s");
}

std::string facts(std::span<const EndpointReport> reports, const JobTraffic& traffic) {
  std::set<std::string> hosts, devices, policies;
  std::int64_t began = 0, longest = 0;
  for (const EndpointReport& report : reports) {
    hosts.insert(report.host);
    devices.insert(report.device);
    policies.insert(report.policy);
    if (report.started > 0 && (began == 0 || report.started < began)) began = report.started;
    longest = std::max(longest, report.lifetime);
  }
  const std::size_t count = traffic.processes.size();
  std::string out = fmt::format("{} process{}, host {}, device {}, policy {}, {}",
                                value::human_count(count), count == 1 ? "" : "es", names(hosts),
                                names(devices), names(policies), value::human_duration(longest));
  if (began > 0) out += fmt::format(", began {}", date(began));
  return out;
}

std::string findings_list(const std::vector<Finding>& findings) {
  std::string out = "<ul class=\"findings\">\n";
  for (const Finding& finding : findings) {
    const bool warning = finding.level == Finding::Level::warning;
    out += fmt::format("<li class=\"{0}\"><b>{0}</b> {1}", warning ? "warning" : "note",
                       html_text(finding.text));
    if (!finding.advice.empty()) out += fmt::format(" <i>{}</i>", html_text(finding.advice));
    out += "</li>\n";
  }
  return out + "</ul>\n";
}

void replace(std::string* page, std::string_view mark, std::string_view with) {
  const std::size_t at = page->find(mark);
  if (at != std::string::npos) page->replace(at, mark.size(), with);
}

}  // namespace

std::string report_page(std::span<const std::pair<std::string, std::vector<EndpointReport>>> jobs) {
  nlohmann::ordered_json data = nlohmann::ordered_json::array();
  std::string words;
  for (const auto& [job, reports] : jobs.first(std::min(jobs.size(), kMaxPageJobs))) {
    const JobTraffic traffic = job_traffic(reports);
    const std::string title = job.empty() ? "Job without a name" : "Job " + shortened(job, 128);
    words += fmt::format(
        "<section class=\"job\"><h2>{}</h2>\n<p class=\"facts\">{}</p>\n{}</section>\n",
        html_text(title), facts(reports, traffic), findings_list(job_findings(reports, traffic)));
    nlohmann::ordered_json one = page_data(reports, traffic);
    one["title"] = title;
    data.push_back(std::move(one));
  }
  if (jobs.size() > kMaxPageJobs) {
    words += fmt::format("<p>{} more jobs are left out.</p>\n", jobs.size() - kMaxPageJobs);
  }
  using ErrorHandler = nlohmann::ordered_json::error_handler_t;
  // From the end, so that no mark is looked for in what reports say.
  std::string page(kPageTemplate);
  const std::string json = script_json(data.dump(-1, ' ', true, ErrorHandler::replace));
  replace(&page, "{{SCRIPT}}", kPageScript);
  replace(&page, "{{STYLE}}", kPageStyle);
  replace(&page, "{{DATA}}", json);
  replace(&page, "{{FINDINGS}}", words);
  return page;
}

}  // namespace turnout::cli
