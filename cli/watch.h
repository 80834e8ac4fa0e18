// SPDX-License-Identifier: BSD-3-Clause
// Watch: the reader's side of core/report/report_live.h. While touch() is called, the processes of
// this user write their reports; read() returns them.
//
// Owns the folders' descriptors; one thread. Reports are untrusted text. read() removes those of
// processes that have ended. Errors: those of open_private().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/private_folder.h"
#include "base/status.h"
#include "core/report/report.h"

namespace turnout::cli {

struct Watched {
  EndpointReport report;
  double age = 0;  // seconds since it was written
};

class Watch {
 public:
  // Watches every folder that a process may use: below XDG_RUNTIME_DIR, the user's folder below
  // /run/user, and /tmp. Launchers do not pass the variable to all processes.
  [[nodiscard]] static Result<Watch> open();
  Watch(Watch&&) = default;
  Watch& operator=(Watch&&) = delete;
  ~Watch();  // removes the watch files, so that processes stop writing reports

  [[nodiscard]] Status touch();
  // Touches until no new process appears any more: what all of them wrote since. Empty: none did
  // within `wait` seconds, or go_on() ended it. `wanted`: of these processes only; empty: of all.
  [[nodiscard]] Result<std::vector<Watched>> settle(
      double wait, const std::function<bool(const Watched&)>& wanted,
      std::vector<std::string>* damaged, const std::function<bool()>& go_on = {});
  // By rank, then process. `damaged`: what could not be read, and why.
  [[nodiscard]] std::vector<Watched> read(std::vector<std::string>* damaged) const;

 private:
  struct Folder {
    std::string path;
    Descriptor fd;
  };
  Watch(std::vector<Folder> folders, std::vector<std::string> refused)
      : folders_(std::move(folders)), refused_(std::move(refused)) {}
  void read_folder(const Folder& folder, std::vector<Watched>* reports,
                   std::vector<std::string>* damaged) const;

  std::vector<Folder> folders_;
  std::vector<std::string> refused_;  // why a folder is not among them
};

}  // namespace turnout::cli
