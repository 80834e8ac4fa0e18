// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hca/mlx5_library.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <set>

extern "C" const turnout::hca::Mlx5DeviceCalls* turnout_mlx5_device(void (*mark)(int fd, bool ours,
                                                                                 bool command));

#if defined(__SANITIZE_THREAD__)
// The handler runs at a store of the program's: nothing is interrupted that it could meet again.
extern "C" __attribute__((visibility("default"))) const char*
__tsan_default_options() {  // NOLINT: the sanitizer's name
  return "report_signal_unsafe=0";
}
#endif

namespace turnout::hca::test {
namespace {

std::mutex marks_mutex;
std::set<int> marks;  // guarded by marks_mutex

void mark(int fd, bool ours, bool) {
  const std::lock_guard lock(marks_mutex);
  if (ours) {
    marks.insert(fd);
  } else {
    marks.erase(fd);
  }
}

const Mlx5DeviceCalls* calls = nullptr;

void on_bus_error(int, siginfo_t* info, void* context) {
  const int kept = errno;
  if (!calls->bus_error(info, context)) signal(SIGBUS, SIG_DFL);  // the fault comes again
  errno = kept;
}

std::uint32_t to_big(std::uint32_t value) noexcept {
  return htobe32(value);
}

void store_word(std::byte* at, std::uint32_t value) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), to_big(value), __ATOMIC_RELEASE);
}

constexpr std::size_t kArmRegister = 0x20, kSendRegister = 0x800;
constexpr std::uint32_t kSharedStride = 32;
constexpr std::size_t kGuardBytes = 4U << 20;  // behind memory: nothing

}  // namespace

const Mlx5DeviceCalls& mlx5_device() {
  static const bool once = [] {
    calls = turnout_mlx5_device(mark);
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &action, nullptr);
    return true;
  }();
  EXPECT_TRUE(once && calls != nullptr && calls->size == sizeof *calls);
  return *calls;
}

std::size_t mlx5_descriptors() {
  const std::lock_guard lock(marks_mutex);
  return marks.size();
}

Pages::Pages(std::size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096) {
  void* const p = mmap(nullptr, bytes_ + kGuardBytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  at_ = static_cast<std::byte*>(p);
  EXPECT_EQ(mprotect(p, bytes_, PROT_READ | PROT_WRITE), 0);
}

Pages::~Pages() {
  if (at_ != nullptr) munmap(at_, bytes_ + kGuardBytes);
}

// Send requests.

Mlx5Wqe::Mlx5Wqe(std::uint8_t opcode, std::uint32_t imm, std::uint8_t flags) {
  mlx5_wqe_ctrl_seg control{};
  control.opmod_idx_opcode = to_big(opcode);
  control.fm_ce_se = flags;
  control.imm = imm;
  add(control);
}

std::uint8_t Mlx5Wqe::units() const noexcept {
  return says_ ? units_ : static_cast<std::uint8_t>((bytes.size() + 15) / 16);
}

Mlx5Wqe& Mlx5Wqe::remote(std::uint64_t address, std::uint32_t rkey) {
  return add(mlx5_wqe_raddr_seg{htobe64(address), to_big(rkey), 0});
}

Mlx5Wqe& Mlx5Wqe::atomic(std::uint64_t swap_add, std::uint64_t compare) {
  return add(mlx5_wqe_atomic_seg{htobe64(swap_add), htobe64(compare)});
}

Mlx5Wqe& Mlx5Wqe::data(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  return add(mlx5_wqe_data_seg{to_big(length), to_big(lkey), htobe64(address)});
}

Mlx5Wqe& Mlx5Wqe::inline_data(std::string_view text) {
  add(to_big(static_cast<std::uint32_t>(text.size()) |
             static_cast<std::uint32_t>(MLX5_INLINE_SEG)));
  const auto* const from = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), from, from + text.size());
  bytes.resize((bytes.size() + 15) / 16 * 16);
  return *this;
}

Mlx5Wqe& Mlx5Wqe::datagram(std::uint32_t number, std::uint64_t key, bool extended, bool dc) {
  mlx5_wqe_av vector{};
  if (dc) {
    vector.key.dc_key = htobe64(key);
  } else {
    vector.key.qkey.qkey = to_big(static_cast<std::uint32_t>(key));
  }
  vector.dqp_dct = to_big(number | (extended ? MLX5_EXTENDED_UD_AV : 0U));
  vector.rlid = htobe16(1);
  add(vector);
  if (!extended) bytes.resize(bytes.size() - sizeof vector + 16);
  return *this;
}

Mlx5Wqe& Mlx5Wqe::global(std::uint32_t number, std::uint32_t qkey, const ibv_gid& gid) {
  mlx5_wqe_av vector{};
  vector.key.qkey.qkey = to_big(qkey);
  vector.dqp_dct = to_big(number | MLX5_EXTENDED_UD_AV);
  vector.rlid = htobe16(1);
  vector.grh_gid_fl = to_big(1U << 30);
  std::memcpy(vector.rgid, gid.raw, sizeof vector.rgid);
  return add(vector);
}

Mlx5Wqe& Mlx5Wqe::shared_queue(std::uint32_t srqn) {
  const std::uint32_t words[4] = {to_big(srqn), 0, 0, 0};
  return add(words);
}

// Completion queues.

Mlx5CompletionQueue::Mlx5CompletionQueue(Mlx5Library& library, std::uint32_t entries,
                                         std::uint32_t stride, std::int32_t channel, bool unchecked)
    : library_(library), doorbell_(library.keep(4096)) {
  buffers_.push_back({&library.keep(std::size_t{entries} * stride), entries, stride});
  Buffer& buffer = buffers_.back();
  for (std::uint32_t i = 0; i < entries; ++i) {
    buffer.pages->at(std::size_t{i} * stride)[stride - 1] = std::byte{MLX5_CQE_INVALID << 4};
  }
  const mlx5_ib_create_cq driver{
      buffer.pages->address(), doorbell_.address(), stride, 0, 0, 0, 0, 0, 0};
  mlx5_ib_create_cq_resp driver_answer{};
  if (unchecked) {
    ib_uverbs_ex_create_cq request{};
    request.user_handle = address_of(this);
    request.cqe = entries - 1;
    request.comp_channel = channel;
    request.flags = IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
    ib_uverbs_ex_create_cq_resp answer{};
    EXPECT_EQ(library.call_extended(IB_USER_VERBS_EX_CMD_CREATE_CQ, request, &answer, &driver,
                                    &driver_answer),
              0);
    handle = answer.base.cq_handle;
    cqe = answer.base.cqe;
  } else {
    ib_uverbs_create_cq request{};
    request.user_handle = address_of(this);
    request.cqe = entries - 1;
    request.comp_channel = channel;
    ib_uverbs_create_cq_resp answer{};
    EXPECT_EQ(library.call(IB_USER_VERBS_CMD_CREATE_CQ, request, &answer, &driver, &driver_answer),
              0);
    handle = answer.cq_handle;
    cqe = answer.cqe;
  }
  number = driver_answer.cqn;
}

bool Mlx5CompletionQueue::look(mlx5_cqe64& to) const {
  const Buffer& buffer = buffers_[current_];
  const std::byte* const entry =
      buffer.pages->at(std::size_t{consumed & (buffer.entries - 1)} * buffer.stride) +
      (buffer.stride - 64);
  const unsigned last =
      __atomic_load_n(reinterpret_cast<const std::uint8_t*>(entry) + 63, __ATOMIC_ACQUIRE);
  if (last >> 4 == MLX5_CQE_INVALID) return false;
  if ((last & 1) != (consumed / buffer.entries & 1)) return false;
  std::memcpy(&to, entry, sizeof to);
  return true;
}

bool Mlx5CompletionQueue::poll(mlx5_cqe64& to) {
  for (;;) {
    if (!look(to)) return false;
    ++consumed;
    if (opcode_of(to) != MLX5_CQE_RESIZE_CQ) break;
    EXPECT_LT(current_ + 1, buffers_.size());
    ++current_;
  }
  tell();
  return true;
}

void Mlx5CompletionQueue::tell() const noexcept {
  store_word(doorbell_.at(), consumed & 0xff'ffff);
}

mlx5_cqe64 Mlx5CompletionQueue::wait() {
  mlx5_cqe64 out{};
  EXPECT_TRUE(eventually([&] { return poll(out); })) << "no completion";
  return out;
}

void Mlx5CompletionQueue::arm(bool solicited) {
  const std::uint32_t word =
      (armed_++ & 3) << 28 | (solicited ? 1U << 24 : 0U) | (consumed & 0xff'ffff);
  store_word(doorbell_.at(4), word);
  library_.store(kArmRegister, word, number);
}

int Mlx5CompletionQueue::resize(std::uint32_t entries, std::uint32_t stride) {
  const Buffer buffer{&library_.keep(std::size_t{entries} * stride), entries, stride};
  for (std::uint32_t i = 0; i < entries; ++i) {
    buffer.pages->at(std::size_t{i} * stride)[stride - 1] = std::byte{MLX5_CQE_INVALID << 4};
  }
  ib_uverbs_resize_cq request{};
  request.cq_handle = handle;
  request.cqe = entries - 1;
  const mlx5_ib_resize_cq driver{buffer.pages->address(), static_cast<std::uint16_t>(stride), 0, 0};
  ib_uverbs_resize_cq_resp answer{};
  const int error = library_.call(IB_USER_VERBS_CMD_RESIZE_CQ, request, &answer, &driver,
                                  static_cast<std::nullptr_t*>(nullptr));
  if (error != 0) return error;
  EXPECT_EQ(answer.cqe, entries - 1);
  buffers_.push_back(buffer);
  return 0;
}

int Mlx5CompletionQueue::destroy(ib_uverbs_destroy_cq_resp& answer) {
  return library_.call(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, handle, 0}, &answer);
}

// Shared receive queues.

Mlx5SharedQueue::Mlx5SharedQueue(Mlx5Library& library, std::uint32_t max_wr, std::uint32_t limit,
                                 const std::uint32_t* xrc)
    : entries(std::bit_ceil(max_wr + 1)),
      library_(library),
      buffer_(library.keep(std::size_t{entries} * kSharedStride)),
      doorbell_(library.keep(4096)),
      tail_(static_cast<std::uint16_t>(entries - 1)) {
  for (std::uint16_t i = 0; i < entries; ++i) {
    head_of(i).next_wqe_index = htobe16(static_cast<std::uint16_t>((i + 1U) & (entries - 1)));
  }
  const mlx5_ib_create_srq driver{
      buffer_.address(), doorbell_.address(), 0, 0, library.next_user_index++, 0};
  ib_uverbs_create_srq_resp answer{};
  mlx5_ib_create_srq_resp driver_answer{};
  if (xrc == nullptr) {
    ib_uverbs_create_srq request{};
    request.user_handle = address_of(this);
    request.pd_handle = library.pd;
    request.max_wr = max_wr;
    request.max_sge = 1;
    request.srq_limit = limit;
    EXPECT_EQ(library.call(IB_USER_VERBS_CMD_CREATE_SRQ, request, &answer, &driver, &driver_answer),
              0);
  } else {
    ib_uverbs_create_xsrq request{};
    request.user_handle = address_of(this);
    request.srq_type = IBV_SRQT_XRC;
    request.pd_handle = library.pd;
    request.max_wr = max_wr;
    request.max_sge = 1;
    request.srq_limit = limit;
    request.xrcd_handle = xrc[0];
    request.cq_handle = xrc[1];
    EXPECT_EQ(
        library.call(IB_USER_VERBS_CMD_CREATE_XSRQ, request, &answer, &driver, &driver_answer), 0);
    EXPECT_EQ(answer.srqn, driver_answer.srqn);
  }
  EXPECT_GE(answer.max_wr, max_wr);
  handle = answer.srq_handle;
  number = driver_answer.srqn;
}

mlx5_wqe_srq_next_seg& Mlx5SharedQueue::head_of(std::uint16_t index) const {
  return *reinterpret_cast<mlx5_wqe_srq_next_seg*>(buffer_.at(std::size_t{index} * kSharedStride));
}

std::uint16_t Mlx5SharedQueue::post(std::uint64_t address, std::uint32_t length,
                                    std::uint32_t lkey) {
  EXPECT_NE(head_, tail_) << "the shared receive queue is full";
  const std::uint16_t index = head_;
  mlx5_wqe_srq_next_seg& head = head_of(index);
  head_ = be16toh(head.next_wqe_index);
  const mlx5_wqe_data_seg segment{to_big(length), to_big(lkey), htobe64(address)};
  std::memcpy(&head + 1, &segment, sizeof segment);
  store_word(doorbell_.at(), ++posted_);
  return index;
}

void Mlx5SharedQueue::release(std::uint16_t index) {
  head_of(tail_).next_wqe_index = htobe16(index);
  tail_ = index;
}

int Mlx5SharedQueue::modify(std::uint32_t limit) {
  ib_uverbs_modify_srq request{};
  request.srq_handle = handle;
  request.attr_mask = IBV_SRQ_LIMIT;
  request.srq_limit = limit;
  return library_.call(IB_USER_VERBS_CMD_MODIFY_SRQ, request);
}

int Mlx5SharedQueue::destroy(std::uint32_t& events) {
  ib_uverbs_destroy_srq_resp answer{};
  const int error =
      library_.call(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, handle, 0}, &answer);
  events = answer.events_reported;
  return error;
}

// Queue pairs.

Mlx5QueuePair::Mlx5QueuePair(Mlx5Library& library, const Mlx5QpOptions& options)
    : user_index(library.next_user_index++),
      library_(library),
      options_(options),
      receive_bytes_(std::size_t{options.receives} << options.shift),
      buffer_(library.keep(receive_bytes_ + std::size_t{options.sends} * MLX5_SEND_WQE_BB + 64)),
      doorbell_(library.keep(4096)) {
  ib_uverbs_create_qp request{};
  request.user_handle = address_of(this);
  request.pd_handle = options.type == IBV_QPT_XRC_RECV ? options.xrcd : library.pd;
  const auto cq_of = [&](const Mlx5CompletionQueue* cq) {
    return cq != nullptr ? cq->handle : library.cq.front().handle;
  };
  request.send_cq_handle = cq_of(options.send_cq);
  request.recv_cq_handle = cq_of(options.receive_cq);
  if (options.srq != nullptr) {
    request.is_srq = 1;
    request.srq_handle = options.srq->handle;
  }
  request.max_send_wr = options.sends;
  request.max_recv_wr = options.receives;
  request.max_send_sge = request.max_recv_sge = 1;
  request.qp_type = options.type;
  mlx5_ib_create_qp driver{};
  driver.buf_addr = buffer_.address();
  driver.db_addr = doorbell_.address();
  driver.sq_wqe_count = options.sends;
  driver.rq_wqe_count = options.receives;
  driver.rq_wqe_shift = options.shift;
  driver.flags = options.flags;
  driver.uidx = user_index;
  driver.access_key = options.access_key;
  ib_uverbs_create_qp_resp answer{};
  mlx5_ib_create_qp_resp driver_answer{};
  EXPECT_EQ(library.call(IB_USER_VERBS_CMD_CREATE_QP, request, &answer, &driver, &driver_answer),
            0);
  handle = answer.qp_handle;
  number = answer.qpn;
}

std::uint16_t Mlx5QueuePair::put(const Mlx5Wqe& wqe) {
  std::vector<std::byte> bytes = wqe.bytes;
  mlx5_wqe_ctrl_seg control;
  std::memcpy(&control, bytes.data(), sizeof control);
  control.opmod_idx_opcode =
      to_big(be32toh(control.opmod_idx_opcode) | std::uint32_t{posted_} << 8);
  control.qpn_ds = to_big(number << 8 | wqe.units());
  std::memcpy(bytes.data(), &control, sizeof control);
  const std::size_t ring_bytes = std::size_t{options_.sends} * MLX5_SEND_WQE_BB;
  const std::uint16_t first = posted_;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    send_ring()[(first * std::size_t{MLX5_SEND_WQE_BB} + i) % ring_bytes] = bytes[i];
  }
  posted_ = static_cast<std::uint16_t>(posted_ +
                                       (bytes.size() + MLX5_SEND_WQE_BB - 1) / MLX5_SEND_WQE_BB);
  return first;
}

void Mlx5QueuePair::set_posted(std::uint32_t sends) noexcept {
  store_word(doorbell_.at(4), sends);
}

void Mlx5QueuePair::set_received(std::uint32_t receives) noexcept {
  store_word(doorbell_.at(), receives);
}

void Mlx5QueuePair::ring() const {
  store_word(doorbell_.at(4), posted_);
  library_.store(kSendRegister, 0, number << 8);
}

void Mlx5QueuePair::receive(std::uint64_t address, std::uint32_t length, std::uint32_t lkey) {
  const std::size_t stride = std::size_t{1} << options_.shift;
  std::byte* const at = buffer_.at((received_ & (options_.receives - 1)) * stride);
  const mlx5_wqe_data_seg segment{to_big(length), to_big(lkey), htobe64(address)};
  std::memcpy(at, &segment, sizeof segment);
  if (stride > sizeof segment) {
    const mlx5_wqe_data_seg end{0, to_big(MLX5_INVALID_LKEY), 0};
    std::memcpy(at + sizeof segment, &end, sizeof end);
  }
  store_word(doorbell_.at(), ++received_);
}

int Mlx5QueuePair::modify(ib_uverbs_ex_modify_qp request, int mask) {
  request.base.qp_handle = handle;
  request.base.attr_mask = static_cast<std::uint32_t>(mask);
  if (options_.type != IBV_QPT_DRIVER) {
    return library_.call(IB_USER_VERBS_CMD_MODIFY_QP, request.base);
  }
  ib_uverbs_ex_modify_qp_resp answer{};
  mlx5_ib_modify_qp_resp driver{};
  const int error = library_.call_extended(IB_USER_VERBS_EX_CMD_MODIFY_QP, request, &answer,
                                           static_cast<std::nullptr_t*>(nullptr), &driver);
  if (driver.dctn != 0) number = driver.dctn;
  return error;
}

void Mlx5QueuePair::connect(std::uint32_t peer, const ConnectOptions& options) {
  const bool target = (options_.flags & MLX5_QP_FLAG_TYPE_DCT) != 0;
  const bool dc = options_.type == IBV_QPT_DRIVER, ud = options_.type == IBV_QPT_UD;
  const bool connected = !dc && !ud;
  const bool answers = options_.type == IBV_QPT_RC || options_.type == IBV_QPT_XRC_RECV;
  ib_uverbs_ex_modify_qp r{};
  r.base.qp_state = IBV_QPS_INIT;
  r.base.port_num = 1;
  r.base.qp_access_flags = static_cast<std::uint32_t>(options.access);
  r.base.qkey = kQkey;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (connected || target) mask |= IBV_QP_ACCESS_FLAGS;
  if (ud) mask |= IBV_QP_QKEY;
  EXPECT_EQ(modify(r, mask), 0);

  r.base.qp_state = IBV_QPS_RTR;
  r.base.path_mtu = IBV_MTU_4096;
  r.base.dest_qp_num = peer;
  r.base.max_dest_rd_atomic = 16;
  r.base.min_rnr_timer = options.min_rnr_timer;
  r.base.rq_psn = options.rq_psn;
  r.base.dest.dlid = 1;
  r.base.dest.port_num = 1;
  mask = IBV_QP_STATE;
  if (connected) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (answers) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (dc) mask |= IBV_QP_PATH_MTU;
  if (target) mask |= IBV_QP_AV | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(modify(r, mask), 0);
  if (target) return;

  r.base.qp_state = IBV_QPS_RTS;
  r.base.timeout = options.timeout;
  r.base.retry_cnt = options.retry_cnt;
  r.base.rnr_retry = options.rnr_retry;
  r.base.max_rd_atomic = 16;
  r.base.sq_psn = options.sq_psn;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_XRC_RECV) {
    mask |= IBV_QP_TIMEOUT;
  } else if (!ud && options_.type != IBV_QPT_UC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  EXPECT_EQ(modify(r, mask), 0);
}

int Mlx5QueuePair::modify(std::uint8_t state) {
  ib_uverbs_ex_modify_qp r{};
  r.base.qp_state = state;
  const int error = modify(r, IBV_QP_STATE);
  if (error == 0 && state == IBV_QPS_RESET) {
    posted_ = received_ = 0;
    set_posted(0);
    set_received(0);
  }
  return error;
}

ibv_qp_state Mlx5QueuePair::state() {
  ib_uverbs_query_qp_resp answer{};
  ib_uverbs_query_qp request{};
  request.qp_handle = handle;
  request.attr_mask = IBV_QP_STATE;
  EXPECT_EQ(library_.call(IB_USER_VERBS_CMD_QUERY_QP, request, &answer), 0);
  return static_cast<ibv_qp_state>(answer.qp_state);
}

int Mlx5QueuePair::destroy() {
  ib_uverbs_destroy_qp_resp answer{};
  const int error =
      library_.call(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, handle, 0}, &answer);
  events = answer.events_reported;
  return error;
}

// The context.

Mlx5Library::Mlx5Library(bool bare, bool devx) {
  fd = mlx5_device().open(0);
  EXPECT_GE(fd, 0);
  if (bare) return;
  mlx5_ib_alloc_ucontext_req_v2 driver{};
  driver.total_num_bfregs = 16;
  driver.num_low_latency_bfregs = 4;
  driver.max_cqe_version = 1;
  if (devx) driver.flags = MLX5_IB_ALLOC_UCTX_DEVX;
  ib_uverbs_get_context_resp answer{};
  mlx5_ib_alloc_ucontext_resp driver_answer{};
  EXPECT_EQ(call(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &answer, &driver,
                 &driver_answer),
            0);
  EXPECT_EQ(driver_answer.cqe_version, 1);
  async_fd = static_cast<int>(answer.async_fd);
  page_ = mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(page_, MAP_FAILED);
  ib_uverbs_alloc_pd_resp domain{};
  EXPECT_EQ(call(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}, &domain), 0);
  pd = domain.pd_handle;
  mr = register_memory(memory.address(), 1U << 16);
  cq.emplace_back(*this, 64U, 64U, -1, false);
}

Mlx5Library::~Mlx5Library() {
  if (page_ != nullptr) munmap(page_, 4096);
  if (async_fd >= 0) {
    EXPECT_EQ(mlx5_device().close(async_fd), 0);
  }
  close_commands();
}

void Mlx5Library::close_commands() {
  if (fd >= 0) {
    EXPECT_EQ(mlx5_device().close(fd), 0);
  }
  fd = -1;
}

int Mlx5Library::write(const void* bytes, std::size_t count) const {
  errno = 0;
  const ssize_t n = mlx5_device().write(fd, bytes, count);
  if (n < 0) return errno;
  EXPECT_EQ(n, static_cast<ssize_t>(count));
  return 0;
}

Mlx5Mr Mlx5Library::register_memory(std::uint64_t address, std::uint64_t length,
                                    std::uint32_t access) {
  ib_uverbs_reg_mr request{};
  request.start = request.hca_va = address;
  request.length = length;
  request.pd_handle = pd;
  request.access_flags = access;
  ib_uverbs_reg_mr_resp answer{};
  EXPECT_EQ(call(IB_USER_VERBS_CMD_REG_MR, request, &answer), 0);
  return {answer.mr_handle, answer.lkey, answer.rkey};
}

std::int32_t Mlx5Library::create_channel() {
  ib_uverbs_create_comp_channel_resp answer{};
  EXPECT_EQ(call(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{}, &answer),
            0);
  return static_cast<std::int32_t>(answer.fd);
}

std::uint32_t Mlx5Library::open_xrcd() {
  ib_uverbs_open_xrcd request{};
  request.fd = static_cast<std::uint32_t>(-1);
  request.oflags = O_CREAT;
  ib_uverbs_open_xrcd_resp answer{};
  EXPECT_EQ(call(IB_USER_VERBS_CMD_OPEN_XRCD, request, &answer), 0);
  return answer.xrcd_handle;
}

ib_uverbs_async_event_desc Mlx5Library::event() const {
  ib_uverbs_async_event_desc out{};
  EXPECT_TRUE(readable(async_fd, 60000)) << "no event";
  EXPECT_EQ(mlx5_device().read(async_fd, &out, sizeof out), static_cast<ssize_t>(sizeof out));
  return out;
}

std::uint64_t Mlx5Library::completion_event(std::int32_t channel) const {
  ib_uverbs_comp_event_desc out{};
  EXPECT_TRUE(readable(channel, 60000)) << "no event";
  EXPECT_EQ(mlx5_device().read(channel, &out, sizeof out), static_cast<ssize_t>(sizeof out));
  return out.cq_handle;
}

void Mlx5Library::store(std::size_t offset, std::uint32_t first,
                        std::uint32_t second) const noexcept {
  const std::uint64_t value = std::uint64_t{to_big(second)} << 32 | to_big(first);
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(page_) + offset), value,
                   __ATOMIC_RELEASE);
}

void Mlx5Library::store_half(std::size_t offset, std::uint32_t value) const noexcept {
  store_word(static_cast<std::byte*>(page_) + offset, value);
}

namespace {

Mlx5QpOptions with_queues(const Mlx5QpOptions& options, Mlx5CompletionQueue& send,
                          Mlx5CompletionQueue& receive) {
  Mlx5QpOptions out = options;
  out.send_cq = &send;
  out.receive_cq = &receive;
  return out;
}

}  // namespace

Mlx5Pair::Mlx5Pair(const Mlx5QpOptions& options, const ConnectOptions& connection)
    : send_cq(library, 16, 64, -1, false),
      receive_cq(library, 16, 64, -1, false),
      a(library, with_queues(options, send_cq, receive_cq)),
      b(library, with_queues(options, send_cq, receive_cq)) {
  a.connect(b.number, connection);
  b.connect(a.number, connection);
}

}  // namespace turnout::hca::test
