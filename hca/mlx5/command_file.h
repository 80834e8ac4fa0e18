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
#include "hca/mlx5/doorbells.h"
#include "hca/mlx5/file_objects.h"
#include "hca/mlx5/handles.h"
#include "hca/mlx5/ioctl_commands.h"
#include "hca/mlx5/memory_commands.h"
#include "hca/mlx5/send_queue.h"

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
  // The same of a completion channel, as ib_uverbs_comp_event_desc.
  [[nodiscard]] int read_completion(Channel& channel, void* to);
  // Ends all objects; commands fail from then on.
  void end();

 private:
  // What its program calls an object, and how many of its events it has read. The context pointer
  // of the engine's object. Once the object has ended no event is counted any more.
  struct Told {
    explicit Told(std::uint64_t handle) noexcept : user_handle(handle) {}
    std::uint64_t user_handle;
    std::atomic<std::uint32_t> completions{0}, events{0};
  };
  struct Queue {
    Told told;
    Cq* cq = nullptr;
    Mlx5Cq doorbell;
  };
  struct Pair {
    Told told;
    Qp* qp;
    std::optional<Mlx5SendQueue> queue;
    struct {
      std::uint32_t entries = 0, max_sge = 0;
    } receives;  // as they lie in the program's memory
  };
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
  // What both forms of a command say.
  struct CqRequest;
  struct SrqRequest;

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
  int make_cq(const CqRequest& request, const mlx5_ib_create_cq& mlx5, std::uint32_t& handle);
  int resize_cq(Mlx5Command& command);
  int modify_cq(Mlx5Command& command);
  int destroy_cq(Mlx5Command& command);
  int create_srq(Mlx5Command& command);
  int create_xsrq(Mlx5Command& command);
  int create_srq(IoctlCommand& command);
  int make_srq(const SrqRequest& request, const mlx5_ib_create_srq& mlx5,
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

  int end(Queue& queue);
  int end(Pair& pair);
  // There is a context; false: none yet, or none any more.
  [[nodiscard]] bool is_open();
  [[nodiscard]] ObjectVerbs& verbs() noexcept { return objects_.verbs(); }

  EventFiles& events_;
  std::mutex mutex_;
  FileObjects objects_;
  MemoryCommands memory_commands_{objects_};
  IoctlCommands ioctl_commands_{*this, objects_, events_};
  struct XrcDomain {
    Xrcd* xrcd;
  };
  struct Shared {
    Told told;
    Srq* srq = nullptr;
  };
  Handles<XrcDomain> xrc_domains_;
  Handles<Queue> cqs_;
  Handles<Shared> srqs_;
  Handles<Pair> qps_;
  std::vector<Channel*> channels_;
  // What was made since the context was opened; told in the log when it ends.
  struct {
    std::uint32_t queue_pairs = 0, shared_queues = 0, completion_queues = 0;
    std::uint64_t bytes = 0;  // of the program's memory, for their entries
  } made_;
};

}  // namespace turnout::hca
