// SPDX-License-Identifier: BSD-3-Clause
// Watch: the other end of core/report_live.h. While it is touched, the processes of this user write
// their reports; read() gives them.
//
// Owns the folders' descriptors; one thread. Reports are untrusted text. Those of processes that
// are gone are removed. Errors: those of open_private().
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/private_folder.h"
#include "core/report.h"

namespace turnout::cli {

struct Watched {
  EndpointReport report;
  double age = 0;  // seconds since it was written
};

class Watch {
 public:
  // Where processes may look: XDG_RUNTIME_DIR, the user's folder below /run/user, /tmp. Launchers
  // do not hand the variable on to all of them.
  [[nodiscard]] static Result<Watch> open();
  Watch(Watch&&) = default;
  Watch& operator=(Watch&&) = delete;
  ~Watch();  // lets the processes know that nobody watches any more

  [[nodiscard]] Status touch();
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
