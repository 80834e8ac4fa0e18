// SPDX-License-Identifier: BSD-3-Clause
// CommandFile: an open /dev/infiniband/uverbsN: a context of the device, and the objects that
// commands made in it.
//
// Owns them: they end with the file. write() takes a lock, so commands run one after another, as
// slow as they may be; data does not come by here. Errors: errno values, as the kernel's. Any
// thread.
#pragma once

#include <rdma/ib_user_verbs.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "hca/mlx5/command.h"
#include "hca/mlx5/devx_commands.h"
#include "hca/mlx5/file_objects.h"
#include "hca/mlx5/handles.h"
#include "hca/mlx5/ioctl_commands.h"
#include "hca/mlx5/memory_commands.h"
#include "hca/mlx5/queue_maker.h"

namespace turnout::hca {

class CommandFile {
 public:
  explicit CommandFile(EventFiles& events) noexcept : events_(events) {}
  ~CommandFile() { end(); }
  CommandFile(const CommandFile&) = delete;
  CommandFile& operator=(const CommandFile&) = delete;

  // One command. 0 or errno.
  [[nodiscard]] int write(const void* bytes, std::size_t count);
  // The same in the newer interface (ioctl_command.h). 0 or errno.
  [[nodiscard]] int control(unsigned long request, const void* argument);
  // The next event of the device, as ib_uverbs_async_event_desc: into `to`. 0 or errno.
  [[nodiscard]] int read_event(void* to);
  // The same of a completion channel, as ib_uverbs_comp_event_desc, or of one of DevX. Bytes, or
  // -errno.
  [[nodiscard]] ssize_t read_channel(Channel& channel, void* to, std::size_t count);
  // Ends all objects; commands fail from then on.
  void end();

 private:
  using Run = int (CommandFile::*)(Mlx5Command&);
  struct Entry {
    std::uint32_t number;
    bool extended;
    Run run;
  };
  static const Entry kCommands[];
  // Those of the newer interface that make queues: libibverbs wants them of imported contexts.
  struct IoctlEntry {
    std::uint16_t object, method;
    std::span<const IoctlCommand::Attribute> attributes;
    int (CommandFile::*run)(IoctlCommand&);
  };
  static const IoctlEntry kIoctlCommands[];
  struct XrcParts {
    std::uint32_t domain, cq;  // handles
  };

  int get_context(Mlx5Command& command);
  int query_device(Mlx5Command& command);
  int query_device_extended(Mlx5Command& command);
  int query_port(Mlx5Command& command);
  int open_xrcd(Mlx5Command& command);
  int close_xrcd(Mlx5Command& command);
  int change_mcast(Mlx5Command& command);
  int create_channel(Mlx5Command& command);
  int create_cq(Mlx5Command& command);
  int create_cq_extended(Mlx5Command& command);
  int create_cq(IoctlCommand& command);
  // channel: a descriptor, or -1.
  int make_cq(CqRequest request, std::int32_t channel, const mlx5_ib_create_cq& mlx5,
              std::uint32_t& handle);
  int resize_cq(Mlx5Command& command);
  int modify_cq(Mlx5Command& command);
  int destroy_cq(Mlx5Command& command);
  int create_srq(Mlx5Command& command);
  int create_xsrq(Mlx5Command& command);
  int create_srq(IoctlCommand& command);
  // xrc: null for a basic one.
  int make_srq(const ibv_srq_attr& limits, std::uint64_t user_handle, std::uint32_t pd,
               const XrcParts* xrc, const mlx5_ib_create_srq& mlx5,
               ib_uverbs_create_srq_resp& answer);
  int modify_srq(Mlx5Command& command);
  int query_srq(Mlx5Command& command);
  int destroy_srq(Mlx5Command& command);
  int create_qp(Mlx5Command& command);
  int create_qp_extended(Mlx5Command& command);
  int create_qp(IoctlCommand& command);
  int make_qp(const ib_uverbs_ex_create_qp& asked, const mlx5_ib_create_qp& mlx5,
              std::uint32_t& handle);
  int open_qp(Mlx5Command& command);
  int modify_qp(Mlx5Command& command);
  int query_qp(Mlx5Command& command);
  int destroy_qp(Mlx5Command& command);

  // There is a context; false: none yet, or none any more.
  [[nodiscard]] bool is_open();
  [[nodiscard]] ObjectVerbs& verbs() noexcept { return objects_.verbs(); }

  EventFiles& events_;
  std::mutex mutex_;
  FileObjects objects_;
  QueueMaker queues_{objects_};
  MemoryCommands memory_commands_{objects_};
  IoctlCommands ioctl_commands_{*this, objects_, events_};
  DevxCommands devx_commands_{*this, objects_, queues_, events_};
  struct XrcDomain {
    Xrcd* xrcd;
  };
  Handles<XrcDomain> xrc_domains_;
  std::vector<Channel*> channels_;
};

}  // namespace turnout::hca
