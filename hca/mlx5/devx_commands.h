// SPDX-License-Identifier: BSD-3-Clause
// DevxCommands: the commands of one command file that go to the firmware (DevX): queries,
// memory, memory keys and queues of a program that speaks to the device itself, and their events.
//
// A command is a mailbox (prm.h) within an ioctl(2). What is wrong with the ioctl is an errno
// value, as the kernel's; what the firmware refuses is answered with its status, and EREMOTEIO.
// Owns its objects; they end with end(), before the queues of verbs. The lock of the command file
// guards it, except read(). Sources: rdma/mlx5_user_ioctl_cmds.h; Linux,
// drivers/infiniband/hw/mlx5/devx.c; mlx5dv_devx_obj_create(3), mlx5dv_devx_umem_reg(3),
// mlx5dv_devx_create_event_channel(3), mlx5dv_devx_obj_query_async(3).
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "hca/live/events.h"
#include "hca/mlx5/file_objects.h"
#include "hca/mlx5/ioctl_command.h"
#include "hca/mlx5/prm.h"
#include "hca/mlx5/queue_maker.h"

namespace turnout::hca {

class DevxCommands {
 public:
  DevxCommands(CommandFile& file, FileObjects& objects, QueueMaker& queues,
               EventFiles& events) noexcept
      : file_(file), objects_(objects), queues_(queues), events_(events) {}

  // 0 or errno; nothing: it is none of these commands.
  [[nodiscard]] std::optional<int> run(IoctlCommand& command);
  void end();

  // A channel that events are read from, or null: it is none of DevX.
  struct EventChannel {
    Channel* channel;
    bool omits_data;
  };
  [[nodiscard]] const EventChannel* channel(const Channel& channel) const noexcept;
  // The next event, as mlx5_ib_uapi_devx_async_event_hdr. Bytes, or -errno. Any thread, no lock.
  [[nodiscard]] static ssize_t read(LiveEvents& events, const EventChannel& channel, void* to,
                                    std::size_t count);

 private:
  // What the firmware says to a command that it does not execute.
  struct Refusal {
    prm::Answer answer = prm::Answer::ok;
    const char* why = "";
    [[nodiscard]] bool refused() const noexcept { return answer != prm::Answer::ok; }
  };
  struct Umem {
    std::uint64_t address, length;
    std::uint32_t users = 0;
  };
  struct Subscription {
    std::uint16_t type;
    std::uint64_t cookie;
  };
  struct Object {
    prm::Opcode made_by{};
    std::uint32_t number = 0;
    // One of these, or none: a reserved number, a hint.
    std::unique_ptr<CqObject> cq;
    std::unique_ptr<SrqObject> srq;
    std::unique_ptr<QpObject> qp;
    std::unique_ptr<IndirectKey> key;
    Mr* region = nullptr;
    std::vector<Umem*> memory;  // that it lies in
    Channel* channel = nullptr;
    std::mutex mutex;  // guards what is below
    std::vector<Subscription> subscriptions;
  };
  using Run = int (DevxCommands::*)(IoctlCommand&);
  struct Entry {
    std::uint16_t object, method;
    std::span<const IoctlCommand::Attribute> attributes;
    Run run;
  };
  static const Entry kCommands[];

  int general(IoctlCommand& command);
  int query_page(IoctlCommand& command);
  int query_event_queue(IoctlCommand& command);
  int subscribe(IoctlCommand& command);
  int create(IoctlCommand& command);
  int destroy(IoctlCommand& command);
  int modify(IoctlCommand& command);
  int query(IoctlCommand& command);
  int query_asynchronously(IoctlCommand& command);
  int register_memory(IoctlCommand& command);
  int deregister_memory(IoctlCommand& command);
  int alloc_event_channel(IoctlCommand& command);
  int alloc_answers(IoctlCommand& command);

  Refusal execute_general(prm::Opcode opcode, prm::In in, prm::Out out);
  Refusal execute_create(prm::Opcode opcode, prm::In in, prm::Out out, Object& object);
  Refusal create_cq(prm::In in, Object& object);
  Refusal create_qp(prm::In in, Object& object);
  Refusal create_rmp(prm::In in, Object& object);
  Refusal create_dct(prm::In in, Object& object);
  Refusal create_key(prm::In in, Object& object);
  Refusal create_list_key(prm::In in, Pd& pd, bool fixed, Object& object);
  Refusal create_page_key(prm::In in, Pd& pd, Object& object);
  Refusal create_general_object(prm::In in, Object& object);
  Refusal modify_qp(QpObject& pair, prm::Opcode opcode, prm::In in);
  Refusal query_qp(const QpObject& pair, prm::Out out);

  // An object that a program names by number, its own or one of verbs; null: there is none.
  [[nodiscard]] Pd* domain(std::uint32_t number) const;
  [[nodiscard]] Cq* completion_queue(std::uint32_t number) const;
  [[nodiscard]] Srq* shared_queue(std::uint32_t number) const;
  // The queue pair of this handle, of DevX or of verbs, if it has this number.
  [[nodiscard]] QpObject* queue_pair(std::uint32_t handle, std::uint32_t number) const;
  // The one that a query is of; null: it is of nothing that there is.
  [[nodiscard]] const QpObject* queried(std::uint32_t handle, prm::Opcode opcode, prm::In in) const;
  [[nodiscard]] bool is_page(std::uint32_t number) const noexcept;
  // `bytes` of the memory with this number, which `object` uses from now on.
  Refusal place(std::uint32_t umem, std::uint64_t offset, std::uint64_t bytes, Object& object,
                __u64& address);
  [[nodiscard]] int end(Object& object);

  CommandFile& file_;
  FileObjects& objects_;
  QueueMaker& queues_;
  EventFiles& events_;
  Handles<Umem> umems_;  // number is handle + 1
  Handles<Object> devx_;
  std::vector<std::unique_ptr<EventChannel>> channels_;
  std::vector<std::weak_ptr<AsyncAnswers>> answers_;
  std::uint32_t next_hint_ = 1;
};

}  // namespace turnout::hca
