// SPDX-License-Identifier: BSD-3-Clause
// MemoryCommands: the commands of protection domains, regions and memory windows of one command
// file.
//
// Owns the windows; they and the regions end with end(). The lock of the command file guards it.
#pragma once

#include <optional>

#include "hca/mlx5/command.h"
#include "hca/mlx5/file_objects.h"

namespace turnout::hca {

class MemoryCommands {
 public:
  explicit MemoryCommands(FileObjects& objects) noexcept : objects_(objects) {}

  // 0 or errno; nothing: it is none of these commands.
  [[nodiscard]] std::optional<int> run(Mlx5Command& command);
  void end();

 private:
  struct Entry {
    std::uint32_t number;
    int (MemoryCommands::*run)(Mlx5Command&);
  };
  static const Entry kCommands[];
  struct Window {
    Mw* mw;
  };

  int alloc_pd(Mlx5Command& command);
  int dealloc_pd(Mlx5Command& command);
  int reg_mr(Mlx5Command& command);
  int rereg_mr(Mlx5Command& command);
  int dereg_mr(Mlx5Command& command);
  int alloc_mw(Mlx5Command& command);
  int dealloc_mw(Mlx5Command& command);

  FileObjects& objects_;
  Handles<Window> windows_;
};

}  // namespace turnout::hca
