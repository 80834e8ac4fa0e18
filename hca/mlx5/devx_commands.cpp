// SPDX-License-Identifier: BSD-3-Clause
// Commands of DevX but those of queues and keys: the ioctl's side, memory, events.
#include "hca/mlx5/devx_commands.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "hca/device/rules.h"
#include "hca/mlx5/devx_capabilities.h"
#include "hca/mlx5/mapped_pages.h"
#include "hca/mlx5/program_memory.h"

namespace turnout::hca {
namespace {

using Kind = IoctlCommand::Kind;
using Attribute = IoctlCommand::Attribute;
using prm::Answer;
using prm::Opcode;

constexpr std::uint16_t kWordBytes = 4, kLongBytes = 8, kMailbox = prm::kHeadBytes;

constexpr Attribute kGeneral[] = {
    {MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, Kind::list, 1},
    {MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, Kind::answer, kMailbox},
};
constexpr Attribute kQueryPage[] = {
    {MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, Kind::value, kWordBytes},
    {MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, Kind::answer, kWordBytes},
};
constexpr Attribute kQueryEventQueue[] = {
    {MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, Kind::value, kWordBytes},
    {MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, Kind::answer, kWordBytes},
};
constexpr Attribute kSubscribe[] = {
    {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, Kind::handle, 0, false},
    {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, Kind::list, 2},
    {MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, Kind::value, kLongBytes, false},
};
constexpr Attribute kCreate[] = {
    {MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, Kind::new_handle},
    {MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, Kind::list, 1},
    {MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, Kind::answer, kMailbox},
};
constexpr Attribute kDestroy[] = {{MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, Kind::handle}};
constexpr Attribute kModify[] = {
    {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, Kind::list, 1},
    {MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, Kind::answer, kMailbox},
};
constexpr Attribute kQuery[] = {
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, Kind::list, 1},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, Kind::answer, kMailbox},
};
constexpr Attribute kQueryAsync[] = {
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, Kind::list, 1},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, Kind::handle},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, Kind::value, kLongBytes},
    {MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, Kind::value, kLongBytes},
};
constexpr Attribute kAllocAnswers[] = {
    {MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, Kind::new_handle}};
constexpr Attribute kRegisterUmem[] = {
    {MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, Kind::new_handle},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, Kind::value, kLongBytes},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, Kind::value, kLongBytes},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, Kind::flags},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, Kind::value, kLongBytes, false},
    {MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, Kind::answer, kWordBytes},
};
constexpr Attribute kDeregisterUmem[] = {{MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, Kind::handle}};
constexpr Attribute kAllocChannel[] = {
    {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, Kind::new_handle},
    {MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, Kind::flags},
};

// A mailbox of the program's, and the answer that goes back.
class Mailbox {
 public:
  // 0 or errno.
  [[nodiscard]] int read(const IoctlCommand& command, std::uint16_t in, std::uint16_t out) {
    answer_ = out;
    return read_question(command, in, command.answer_bytes(out));
  }
  // The same where the answer comes later.
  [[nodiscard]] int read_question(const IoctlCommand& command, std::uint16_t in,
                                  std::size_t out_bytes) {
    const std::size_t bytes = command.list_bytes(in);
    if (bytes < prm::kHeadBytes) return EINVAL;
    in_.resize(bytes);
    out_.resize(out_bytes);
    return command.list(in, 0, in_.data(), bytes);
  }
  [[nodiscard]] Opcode opcode() const noexcept {
    return static_cast<Opcode>(prm::get(in_, prm::kOpcode));
  }
  [[nodiscard]] prm::In in() const noexcept { return in_; }
  [[nodiscard]] prm::Out out() noexcept { return out_; }
  // The firmware's status is put into the answer. why: of a refusal.
  void finish(Answer status, const char* why) {
    if (status == Answer::ok) return;
    std::fill(out_.begin(), out_.end(), std::byte{0});
    std::uint32_t syndrome = 2166136261U;  // FNV-1a: a number of its own for each reason
    for (const char* c = why; *c != '\0'; ++c) {
      syndrome = (syndrome ^ static_cast<std::uint8_t>(*c)) * 16777619U;
    }
    prm::set(out_, prm::kStatus, static_cast<std::uint32_t>(status));
    prm::set(out_, prm::kSyndrome, syndrome);
    TURNOUT_LOG(hca, debug, "mlx5 firmware command failed: {:#x}: status {:#x}, {}",
                static_cast<unsigned>(opcode()), static_cast<unsigned>(status), why);
  }
  // 0, or EREMOTEIO with the firmware's status in the answer.
  [[nodiscard]] int answer(IoctlCommand& command, Answer status, const char* why) {
    finish(status, why);
    command.answer(answer_, std::span<const std::byte>(out_));
    return status == Answer::ok ? 0 : EREMOTEIO;
  }

 private:
  std::vector<std::byte> in_, out_;
  std::uint16_t answer_ = 0;
};

// Numbers of events (PRM), and which of verbs they are.
enum EventType : std::uint16_t {
  kCompletionEvent = 0x00,
  kEstablished = 0x02,
  kDrained = 0x03,
  kCqError = 0x04,
  kQueueFailed = 0x05,
  kInvalidRequest = 0x10,
  kAccessError = 0x11,
  kLastWqe = 0x13,
};
std::uint16_t event_type_of(std::uint32_t type) noexcept {
  switch (type) {
    case kCompletion:
      return kCompletionEvent;
    case IBV_EVENT_COMM_EST:
      return kEstablished;
    case IBV_EVENT_SQ_DRAINED:
      return kDrained;
    case IBV_EVENT_CQ_ERR:
      return kCqError;
    case IBV_EVENT_QP_REQ_ERR:
      return kInvalidRequest;
    case IBV_EVENT_QP_ACCESS_ERR:
      return kAccessError;
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return kLastWqe;
    default:
      return kQueueFailed;
  }
}
// Is it an event that a completion queue, or else a queue pair, may have?
bool may_have(bool cq, std::uint16_t type) noexcept {
  constexpr std::uint16_t kOfQp[] = {kEstablished,    kDrained,     kQueueFailed,
                                     kInvalidRequest, kAccessError, kLastWqe};
  if (cq) return type == kCompletionEvent || type == kCqError;
  return std::find(std::begin(kOfQp), std::end(kOfQp), type) != std::end(kOfQp);
}

// The entry of an event queue: the type in its second byte, the number of the object at its end.
constexpr std::size_t kEntryBytes = 64;
void fill_entry(std::span<std::byte, kEntryBytes> entry, std::uint16_t type,
                std::uint32_t number) noexcept {
  std::fill(entry.begin(), entry.end(), std::byte{0});
  entry[1] = static_cast<std::byte>(type);
  // Of an overrun the number comes first in the data.
  prm::set(entry, prm::field(type == kCqError ? 0x20 : 0x38, 0, 32), number);
}

template <class Verbs>
void acknowledge_event(Verbs& object, std::uint32_t& completed) noexcept {
  pthread_mutex_lock(&object.mutex);
  ++completed;
  pthread_cond_broadcast(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace

const DevxCommands::Entry DevxCommands::kCommands[] = {
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kGeneral, &DevxCommands::general},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryPage, &DevxCommands::query_page},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEventQueue,
     &DevxCommands::query_event_queue},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribe,
     &DevxCommands::subscribe},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreate, &DevxCommands::create},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroy, &DevxCommands::destroy},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModify, &DevxCommands::modify},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQuery, &DevxCommands::query},
    {MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kQueryAsync,
     &DevxCommands::query_asynchronously},
    {MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, kAllocAnswers,
     &DevxCommands::alloc_answers},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, kRegisterUmem,
     &DevxCommands::register_memory},
    {MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, kDeregisterUmem,
     &DevxCommands::deregister_memory},
    {MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, kAllocChannel,
     &DevxCommands::alloc_event_channel},
};

std::optional<int> DevxCommands::run(IoctlCommand& command) {
  for (const Entry& entry : kCommands) {
    if (entry.object != command.object() || entry.method != command.method()) continue;
    if (!objects_.devx) return EINVAL;  // as the kernel's: the context has no number for it
    if (const int error = command.check(entry.attributes); error != 0) return error;
    const int error = (this->*entry.run)(command);
    return error != 0 ? error : command.answer_error();
  }
  return {};
}

void DevxCommands::end() {
  // Those that use others first: queue pairs, then shared receives, which name no other queue.
  devx_.clear_in_order([](const Object& object) { return object.qp != nullptr; },
                       [this](Object& object) { (void)end(object); });
  umems_.clear([](Umem&) {});
  for (const auto& channel : channels_) {
    (void)objects_.verbs().destroy_channel(*channel->channel);
  }
  channels_.clear();
  for (const auto& one : answers_) {
    if (const auto answers = one.lock()) answers->end();
  }
  answers_.clear();
}

int DevxCommands::general(IoctlCommand& command) {
  Mailbox box;
  if (const int error =
          box.read(command, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
      error != 0) {
    return error;
  }
  const Refusal refusal = execute_general(box.opcode(), box.in(), box.out());
  return box.answer(command, refusal.answer, refusal.why);
}

DevxCommands::Refusal DevxCommands::execute_general(Opcode opcode, prm::In in, prm::Out out) {
  switch (opcode) {
    case Opcode::query_hca_cap: {
      if (out.size() < prm::cap::kBytes) return {Answer::bad_output_length, "capabilities"};
      const std::uint32_t mode = prm::get(in, prm::kOpMod);
      if (!tell_capabilities(*objects_.context, mode >> 1, prm::behind(out, prm::kHeadBytes))) {
        return {Answer::bad_parameter, "no such group of capabilities"};
      }
      return {};
    }
    case Opcode::query_hca_vport_context: {
      if (out.size() < prm::vport::kBytes) return {Answer::bad_output_length, "port"};
      const std::uint32_t port = prm::get(in, prm::vport::kPort);
      if (port != 0 && port != kPort) return {Answer::bad_parameter, "no such port"};
      tell_port(*objects_.context, prm::behind(out, prm::kHeadBytes));
      return {};
    }
    case Opcode::query_lag:  // nothing of it is in use
      return {};
    default:
      return {Answer::bad_operation, "this device does not have the command"};
  }
}

int DevxCommands::query_page(IoctlCommand& command) {
  const auto index = command.value<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX);
  if (!is_page(index)) return EINVAL;
  command.answer(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, index);
  return 0;
}

bool DevxCommands::is_page(std::uint32_t number) const noexcept {
  const std::uint32_t fixed = objects_.description.tot_bfregs;
  return number < fixed ||
         (number > fixed && MappedPages::instance().has_doorbells(number - fixed - 1));
}

int DevxCommands::query_event_queue(IoctlCommand& command) {
  const auto vector = command.value<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC);
  if (vector >= static_cast<std::uint32_t>(kCompletionVectors)) return EINVAL;
  command.answer(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, vector + 1);
  return 0;
}

int DevxCommands::create(IoctlCommand& command) {
  Mailbox box;
  if (const int error = box.read(command, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN,
                                 MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
      error != 0) {
    return error;
  }
  auto object = std::make_unique<Object>();
  const Refusal refusal = execute_create(box.opcode(), box.in(), box.out(), *object);
  if (refusal.refused()) {
    (void)end(*object);
    return box.answer(command, refusal.answer, refusal.why);
  }
  command.answer_handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, devx_.add(std::move(object)));
  return box.answer(command, Answer::ok, "");
}

int DevxCommands::destroy(IoctlCommand& command) {
  const std::uint32_t handle = command.handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE);
  Object* const object = devx_.find(handle);
  if (object == nullptr) return ENOENT;
  if (const int error = end(*object); error != 0) return error;
  devx_.remove(handle);
  return 0;
}

int DevxCommands::modify(IoctlCommand& command) {
  Mailbox box;
  if (const int error = box.read(command, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN,
                                 MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
      error != 0) {
    return error;
  }
  switch (box.opcode()) {
    case Opcode::rst2init_qp:
    case Opcode::init2rtr_qp:
    case Opcode::rtr2rts_qp:
    case Opcode::rts2rts_qp:
    case Opcode::init2init_qp:
    case Opcode::to_err_qp:
    case Opcode::to_rst_qp:
      break;
    default:
      return EINVAL;  // as the kernel's: no command that modifies
  }
  QpObject* const pair = queue_pair(command.handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE),
                                    prm::get(box.in(), prm::kNumber));
  if (pair == nullptr) return EINVAL;
  const Refusal refusal = modify_qp(*pair, box.opcode(), box.in());
  return box.answer(command, refusal.answer, refusal.why);
}

const QpObject* DevxCommands::queried(std::uint32_t handle, Opcode opcode, prm::In in) const {
  return opcode == Opcode::query_qp ? queue_pair(handle, prm::get(in, prm::kNumber)) : nullptr;
}

int DevxCommands::query(IoctlCommand& command) {
  Mailbox box;
  if (const int error = box.read(command, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN,
                                 MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT);
      error != 0) {
    return error;
  }
  const QpObject* const pair =
      queried(command.handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE), box.opcode(), box.in());
  if (pair == nullptr) return EINVAL;
  const Refusal refusal = query_qp(*pair, box.out());
  return box.answer(command, refusal.answer, refusal.why);
}

// The firmware answers at once: only the way of the answer is another.
int DevxCommands::query_asynchronously(IoctlCommand& command) {
  const auto bytes = command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN);
  if (bytes < prm::kHeadBytes || bytes > UINT16_MAX) return EINVAL;
  const auto fd = static_cast<int>(command.handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD));
  const auto answers = events_.answers_of(file_, fd);
  if (answers == nullptr) return EINVAL;
  Mailbox box;
  if (const int error = box.read_question(command, MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, bytes);
      error != 0) {
    return error;
  }
  const QpObject* const pair =
      queried(command.handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE), box.opcode(), box.in());
  if (pair == nullptr) return EINVAL;
  const Refusal refusal = query_qp(*pair, box.out());
  box.finish(refusal.answer, refusal.why);
  return answers->put(command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID),
                      box.out());
}

int DevxCommands::alloc_answers(IoctlCommand& command) {
  const auto answers = std::make_shared<AsyncAnswers>();
  if (const int error = answers->open(); error != 0) return error;
  const int fd = events_.add(file_, answers);
  if (fd < 0) return errno;
  std::erase_if(answers_, [](const auto& one) { return one.expired(); });
  answers_.push_back(answers);
  command.answer_handle(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE,
                        static_cast<std::uint32_t>(fd));
  return 0;
}

int DevxCommands::register_memory(IoctlCommand& command) {
  const auto address = command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR);
  const auto length = command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN);
  const auto access = known_rights(
      static_cast<std::uint32_t>(command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS)));
  constexpr unsigned kAllowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;
  if ((access & ~kAllowed) != 0 || !valid_access(access) || length == 0) return EINVAL;
  if (length > kMaxMrBytes || address > UINT64_MAX - length) return EINVAL;
  // Queues are checked again by those who make them; what is only read may be so.
  std::byte byte;
  if (!copy_from_program(&byte, address, 1) || !copy_from_program(&byte, address + length - 1, 1)) {
    return EFAULT;
  }
  const std::uint32_t handle = umems_.add(std::unique_ptr<Umem>(new Umem{address, length}));
  command.answer_handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, handle);
  command.answer(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, handle + 1);
  return 0;
}

int DevxCommands::deregister_memory(IoctlCommand& command) {
  const std::uint32_t handle = command.handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE);
  const Umem* const umem = umems_.find(handle);
  if (umem == nullptr) return ENOENT;
  if (umem->users != 0) return EBUSY;
  umems_.remove(handle);
  return 0;
}

DevxCommands::Refusal DevxCommands::place(std::uint32_t number, std::uint64_t offset,
                                          std::uint64_t bytes, Object& object, __u64& address) {
  Umem* const umem = number != 0 ? umems_.find(number - 1) : nullptr;
  if (umem == nullptr) return {Answer::bad_resource, "no such memory"};
  if (!covers(0, umem->length, offset, bytes)) {
    return {Answer::bad_parameter, "the memory is too short"};
  }
  address = umem->address + offset;
  ++umem->users;
  object.memory.push_back(umem);
  return {};
}

int DevxCommands::end(Object& object) {
  int error = 0;
  if (object.cq != nullptr) error = queues_.end(*object.cq);
  if (object.srq != nullptr) error = queues_.end(*object.srq);
  if (object.qp != nullptr) error = queues_.end(*object.qp);
  if (object.key != nullptr) error = objects_.engine->indirect_keys().destroy(*object.key);
  if (object.region != nullptr) error = objects_.engine->regions().remove(*object.region);
  if (object.made_by == Opcode::create_general_object && object.number != 0) {
    (void)objects_.verbs().release_number(object.number);  // EINVAL: it is a hint
  }
  if (error != 0) return error;
  for (Umem* const umem : object.memory) --umem->users;
  return 0;
}

int DevxCommands::alloc_event_channel(IoctlCommand& command) {
  const auto flags = command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS);
  constexpr std::uint64_t kOmitsData = MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA;
  if ((flags & ~kOmitsData) != 0) return EINVAL;
  Channel* const channel = objects_.verbs().create_channel(*objects_.context);
  if (channel == nullptr) return errno;
  const int fd = events_.add(file_, channel, channel->verbs.fd);
  if (fd < 0) {
    const int error = errno;
    (void)objects_.verbs().destroy_channel(*channel);
    return error;
  }
  channels_.push_back(
      std::unique_ptr<EventChannel>(new EventChannel{channel, (flags & kOmitsData) != 0}));
  command.answer_handle(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE,
                        static_cast<std::uint32_t>(fd));
  return 0;
}

const DevxCommands::EventChannel* DevxCommands::channel(const Channel& channel) const noexcept {
  for (const auto& known : channels_) {
    if (known->channel == &channel) return known.get();
  }
  return nullptr;
}

int DevxCommands::subscribe(IoctlCommand& command) {
  const auto fd = static_cast<int>(command.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE));
  Channel* const to = events_.channel_of(file_, fd);
  if (to == nullptr || channel(*to) == nullptr) return EINVAL;
  // Events of the device itself come by the asynchronous events of verbs.
  if (!command.has(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE)) return EINVAL;
  Object* const object = devx_.find(command.handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE));
  if (object == nullptr) return ENOENT;
  if (object->cq == nullptr && object->qp == nullptr) return EINVAL;
  if (object->channel != nullptr && object->channel != to) return EBUSY;
  constexpr std::uint16_t kList = MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST;
  constexpr std::size_t kMostTypes = 64;
  const std::size_t count = command.list_bytes(kList) / sizeof(std::uint16_t);
  std::uint16_t types[kMostTypes];
  if (count > kMostTypes) return EINVAL;
  if (const int error = command.list(kList, 0, types, count * sizeof types[0]); error != 0) {
    return error;
  }
  const std::span given(types, count);
  if (!std::all_of(given.begin(), given.end(),
                   [&](std::uint16_t type) { return may_have(object->cq != nullptr, type); })) {
    return EINVAL;
  }
  const auto cookie = command.value<std::uint64_t>(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE);
  {
    const std::lock_guard lock(object->mutex);
    for (const std::uint16_t type : given) {
      std::erase_if(object->subscriptions, [=](const Subscription& s) { return s.type == type; });
      object->subscriptions.push_back({type, cookie});
    }
  }
  object->channel = to;
  LiveEvents& events = objects_.engine->events();
  if (object->cq != nullptr) {
    events.direct(*object->cq->cq, to);
  } else {
    LiveEvents::direct(*object->qp->qp, to);
  }
  return 0;
}

ssize_t DevxCommands::read(LiveEvents& events, const EventChannel& channel, void* to,
                           std::size_t count) {
  struct {
    std::uint64_t cookie;
    std::byte entry[kEntryBytes];
  } out;
  const std::size_t bytes = sizeof out.cookie + (channel.omits_data ? 0 : kEntryBytes);
  if (count < bytes) return -EINVAL;
  for (;;) {
    AnyEvent event;
    if (const int error = events.take_any(*channel.channel, event); error != 0) return -error;
    const std::uint16_t type = event_type_of(event.type);
    std::optional<std::uint64_t> cookie;
    const auto look = [&](const void* context) {
      Object& object =
          *reinterpret_cast<Object*>(static_cast<const QueueTold*>(context)->user_handle);
      const std::lock_guard lock(object.mutex);
      for (const Subscription& s : object.subscriptions) {
        if (s.type == type) cookie = s.cookie;
      }
      fill_entry(out.entry, type, object.number);
    };
    // Behind the acknowledgement the object may end.
    if (event.cq != nullptr) {
      look(event.cq->verbs.cq_context);
      acknowledge_event(event.cq->verbs, event.type == kCompletion
                                             ? event.cq->verbs.comp_events_completed
                                             : event.cq->verbs.async_events_completed);
    } else if (event.qp != nullptr) {
      ibv_qp& qp = event.qp->verbs.qp_base;
      look(qp.qp_context);
      acknowledge_event(qp, qp.events_completed);
    }
    if (!cookie) continue;
    out.cookie = *cookie;
    std::memcpy(to, &out, bytes);
    return static_cast<ssize_t>(bytes);
  }
}

}  // namespace turnout::hca
