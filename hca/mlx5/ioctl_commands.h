// SPDX-License-Identifier: BSD-3-Clause
// IoctlCommands: the commands of one command file that exist only in the newer interface
// (ioctl_command.h): device memory, advice, imports, doorbell pages, queries of mlx5.
//
// Owns the objects that are made here; they end with end(), before those of FileObjects. The lock
// of the command file guards it.
#pragma once

#include "hca/mlx5/file_objects.h"
#include "hca/mlx5/ioctl_command.h"
#include "hca/mlx5/mapped_pages.h"

namespace turnout::hca {

class CommandFile;

class IoctlCommands {
 public:
  IoctlCommands(CommandFile& file, FileObjects& objects, EventFiles& events) noexcept
      : file_(file), objects_(objects), events_(events) {}

  // 0 or errno.
  [[nodiscard]] int run(IoctlCommand& command);
  void end();

 private:
  using Run = int (IoctlCommands::*)(IoctlCommand&);
  struct Entry {
    std::uint16_t object, method;
    std::span<const IoctlCommand::Attribute> attributes;
    Run run;
  };
  static const Entry kCommands[];
  struct DeviceMemory {
    std::shared_ptr<Descriptor> fd;
    std::uint64_t length;
    std::uint16_t page;  // the first of its pages
  };
  struct DoorbellPage {
    std::uint16_t page;
  };

  int query_context(IoctlCommand& command);
  int alloc_event_file(IoctlCommand& command);
  int query_port(IoctlCommand& command);
  int query_domain(IoctlCommand& command);
  int query_region(IoctlCommand& command);
  int advise(IoctlCommand& command);
  int register_file(IoctlCommand& command);
  int alloc_memory(IoctlCommand& command);
  int free_memory(IoctlCommand& command);
  int query_memory(IoctlCommand& command);
  int register_memory(IoctlCommand& command);
  int alloc_doorbells(IoctlCommand& command);
  int free_doorbells(IoctlCommand& command);
  void end(DeviceMemory& memory) noexcept;

  CommandFile& file_;
  FileObjects& objects_;
  EventFiles& events_;
  Handles<DeviceMemory> memories_;
  Handles<DoorbellPage> doorbells_;
};

}  // namespace turnout::hca
