// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: the emulated mlx5 device, as a program that is out of its mind uses it.
//
// An input is a program: commands of any bytes, bytes of the queues and doorbell records that the
// commands named, doorbells. Whatever it does, no call may crash, hang, or touch what was not
// named; and at the end everything goes with its file.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/rdma_user_ioctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "hca/device/limits.h"
#include "hca/mlx5/device_calls.h"
#include "hca/mlx5/prm.h"

extern "C" const turnout::hca::Mlx5DeviceCalls* turnout_mlx5_device(void (*mark)(int fd, bool ours,
                                                                                 bool command));

namespace turnout::hca::fuzz {
namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  // What is missing at the end is 0.
  template <class T>
  T get() {
    T value{};
    take(&value, sizeof value);
    return value;
  }
  void take(void* to, std::size_t bytes) {
    const std::size_t n = std::min(bytes, left_);
    if (n > 0) std::memcpy(to, data_, n);
    data_ += n;
    left_ -= n;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

std::set<int> marks;
const Mlx5DeviceCalls* calls = nullptr;

void mark(int fd, bool ours, bool) {
  if (ours) {
    marks.insert(fd);
  } else {
    marks.erase(fd);
  }
}

void on_bus_error(int, siginfo_t* info, void* context) {
  if (!calls->bus_error(info, context)) std::abort();
}

constexpr std::size_t kArenaBytes = 1U << 16;
constexpr std::size_t kQueues = 0x2000;  // offset of those of the first two queue pairs
constexpr std::uint32_t kBlocks = 16;
constexpr std::uint32_t kListSlots = 16;  // of the first list key

constexpr std::size_t kGuard = std::size_t{1} << 32;  // bytes

// Memory that commands may name, with nothing near it.
std::uint8_t* arena() {
  static std::uint8_t* const at = [] {
    auto* const all = static_cast<std::uint8_t*>(
        mmap(nullptr, 2 * kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (all == MAP_FAILED || mprotect(all + kGuard, kArenaBytes, PROT_READ | PROT_WRITE) != 0) {
      std::abort();
    }
    return all + kGuard;
  }();
  return at;
}

class Program {
 public:
  Program() {
    std::memset(arena(), 0, kArenaBytes);
    fd_ = calls->open(0);
    if (fd_ < 0) std::abort();
    mlx5_ib_alloc_ucontext_req_v2 driver{};
    driver.total_num_bfregs = 16;
    driver.max_cqe_version = 1;
    driver.flags = MLX5_IB_ALLOC_UCTX_DEVX;
    command(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &driver, sizeof driver);
    page_ = static_cast<std::uint8_t*>(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, fd_, 0));
    if (page_ == MAP_FAILED) std::abort();
    command(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{});
    std::memcpy(&pd_, answer_ + 4, sizeof pd_);  // mlx5's number is behind the handle
    ib_uverbs_reg_mr region{};
    region.start = region.hca_va = address(0);
    region.length = kArenaBytes;
    region.access_flags = 0xf;
    command(IB_USER_VERBS_CMD_REG_MR, region);
    std::memcpy(&key_, answer_ + 4, sizeof key_);
    make_pair();
    // Memory that commands of the firmware may name: all of it, and a part.
    register_umem(address(0), kArenaBytes);
    register_umem(address(kQueues), 0x1000);
    make_list_key();
  }
  ~Program() {
    munmap(page_, 4096);
    // Events first, or the file: both must do.
    if (answer_[0] % 2 == 0) calls->close(fd_);
    while (!marks.empty()) calls->close(*marks.begin());
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void run(Bytes& in) {
    for (int steps = 0; !in.empty() && steps < 64; ++steps) {
      const auto step = in.get<std::uint8_t>();
      constexpr std::uint8_t kFirmware = 0xe0;
      if (step >= kFirmware) {
        firmware(in, step & 0xfU);
        continue;
      }
      switch (step % 9) {
        case 0:
          any_command(in);
          break;
        case 1:
          make_cq(in);
          break;
        case 2:
          make_qp(in);
          break;
        case 3:
          move_qp(in);
          break;
        case 4:
          make_srq(in);
          break;
        case 5:
          scribble(in);
          break;
        case 6:
          ring(in);
          break;
        case 7:
          post(in);
          break;
        default:
          events();
          break;
      }
    }
  }

 private:
  struct Ioctl {
    struct {
      std::uint16_t length, object_id, method_id, num_attrs;
      std::uint64_t reserved;
      std::uint32_t driver_id, reserved_too;
    } head{};
    ib_uverbs_attr attributes[6]{};
    void add(std::size_t id, std::size_t bytes, std::uint64_t data) {
      ib_uverbs_attr& a = attributes[head.num_attrs++];
      a.attr_id = static_cast<std::uint16_t>(id);
      a.len = static_cast<std::uint16_t>(bytes);
      a.flags = UVERBS_ATTR_F_MANDATORY;
      a.data = data;
    }
  };
  static_assert(offsetof(Ioctl, attributes) == sizeof(ib_uverbs_ioctl_hdr));
  void control(Ioctl& ioctl, std::size_t object, std::size_t method) const {
    ioctl.head.object_id = static_cast<std::uint16_t>(object);
    ioctl.head.method_id = static_cast<std::uint16_t>(method);
    ioctl.head.length = static_cast<std::uint16_t>(sizeof ioctl.head +
                                                   ioctl.head.num_attrs * sizeof(ib_uverbs_attr));
    (void)calls->ioctl(fd_, RDMA_VERBS_IOCTL, &ioctl);
  }
  void register_umem(std::uint64_t at, std::uint64_t bytes) {
    Ioctl ioctl;
    ioctl.add(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, 0, 0);
    ioctl.add(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8, at);
    ioctl.add(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8, bytes);
    ioctl.add(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 4, 1);
    ioctl.add(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, 4, reinterpret_cast<std::uint64_t>(answer_));
    control(ioctl, MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
  }
  [[nodiscard]] static std::uint32_t get_slots(prm::In key) {
    return prm::get(key, prm::mkey::kTranslations) % 4;
  }
  // An entry of a list: any bytes, but a key and an address that there are. A block that repeats
  // does not so without end: the bytes of a message are what takes time here.
  void fill_entry(std::uint8_t* at) const {
    const std::uint8_t shape = at[7];
    if ((shape & 3) == 3) {
      const std::uint32_t head = __builtin_bswap32(0x400);
      std::memcpy(at + 4, &head, sizeof head);
      at[8] = at[9] = at[0] = at[1] = 0;
      return;
    }
    const bool nested = (shape & 0x40) != 0;
    const auto key = __builtin_bswap32(nested ? list_key_ : key_);
    const std::uint64_t to = nested ? at[15] : address(at[15] * std::size_t{128});
    const std::uint64_t big = __builtin_bswap64(to);
    at[0] = 0;
    std::memcpy(at + 4, &key, sizeof key);
    std::memcpy(at + 8, &big, sizeof big);
  }
  // A command of the firmware: any bytes, with numbers in it that there are.
  void firmware(Bytes& in, unsigned which) {
    constexpr unsigned kCreateKey = 14;
    constexpr std::uint16_t kCommands[] = {0x100, 0x400, 0x500, 0x90c, 0x710, 0xa00, 0x502, 0x503,
                                           0x504, 0x505, 0x507, 0x50a, 0x50b, 0x762, 0x200, 0};
    const auto shape = in.get<std::uint8_t>();
    const auto handle = in.get<std::uint8_t>() & 7U;
    const std::size_t bytes = (shape & 1) != 0 ? 320 : in.get<std::uint8_t>() * std::size_t{2};
    std::vector<std::byte> box(bytes), out((shape & 2) != 0 ? 320 : 16);
    in.take(box.data(), bytes);
    prm::set(box, prm::kOpcode, kCommands[which]);
    if ((shape & 4) != 0) {
      namespace qp = prm::qp;
      const prm::Out context = prm::behind(prm::Out(box), qp::kContext);
      const std::uint32_t umem = 1 + (shape >> 7);
      if (which == 1) {
        const prm::Out queue = prm::behind(prm::Out(box), prm::cq::kContext);
        prm::set(box, prm::cq::kUmem, umem);
        prm::set64(box, prm::cq::kUmemOffset, (shape >> 3 & 7U) * 0x400);
        prm::set(queue, prm::cq::kDoorbellUmem, 1);
        prm::set64(queue, prm::cq::kDoorbellOffset, 64);
        prm::set(queue, prm::cq::kEqn, 1);
        prm::set(queue, prm::cq::kPage, 0);
      } else if (which == 3) {
        const prm::Out queue = prm::behind(prm::Out(box), prm::rmp::kQueue);
        prm::set(prm::behind(prm::Out(box), prm::rmp::kContext), prm::rmp::kState, 1);
        prm::set(queue, prm::rmp::kUmem, umem);
        prm::set64(queue, prm::rmp::kUmemOffset, (shape >> 3 & 7U) * 0x400);
        prm::set(queue, prm::rmp::kDoorbellUmem, 1);
        prm::set64(queue, prm::rmp::kDoorbellOffset, 128);
        prm::set(queue, prm::rmp::kPd, pd_);
      } else if (which == 2) {
        prm::set(box, qp::kUmem, umem);
        prm::set64(box, qp::kUmemOffset, (shape >> 3 & 7U) * 0x400);
        prm::set(context, qp::kDoorbellUmem, 1);
        prm::set64(context, qp::kDoorbellOffset, 192);
        prm::set(context, qp::kPd, pd_);
        prm::set(context, qp::kPage, 0);
        prm::set(context, qp::kSendCq, 0);
        prm::set(context, qp::kReceiveCq, 0);
      } else if (which == kCreateKey) {
        // Of a list of either kind, or of pages.
        namespace mkey = prm::mkey;
        const prm::Out key = prm::behind(prm::Out(box), mkey::kContext);
        const std::uint32_t mode = 1 + (shape >> 3 & 3U) % 3;
        const std::uint32_t slots = get_slots(key);
        describe_list_key(box);
        prm::set(key, mkey::kAccessMode, mode);
        prm::set(key, mkey::kTranslations, slots);
        prm::set(box, mkey::kEntries, slots);
        prm::set(box, mkey::kUmem, umem);
        prm::set64(box, mkey::kUmemOffset, 0x400);
        prm::set(key, mkey::kFree, shape >> 7);
        prm::set(key, mkey::kUmrEnabled, mode == mkey::kPages ? 0 : 1);
        for (std::size_t i = 0; mkey::kBytes + (i + 1) * 16 <= box.size(); ++i) {
          fill_entry(reinterpret_cast<std::uint8_t*>(box.data()) + mkey::kBytes + i * 16);
        }
      } else {
        prm::set(box, prm::kNumber, numbers_[shape >> 3 & 3]);
      }
    }
    const auto from = reinterpret_cast<std::uint64_t>(box.data());
    const auto to = reinterpret_cast<std::uint64_t>(out.data());
    Ioctl ioctl;
    if ((shape & 0x40) != 0) {
      // Events of an object, by a new channel; or the end of one.
      if ((shape & 0x20) != 0) {
        ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, 0, handle);
        return control(ioctl, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
      }
      ioctl.add(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0, 0);
      ioctl.add(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, 8, shape & 1);
      control(ioctl, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
      const std::uint64_t channel = ioctl.attributes[0].data;
      Ioctl subscribe;
      subscribe.add(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, 0, channel);
      subscribe.add(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, 0, handle);
      subscribe.add(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, 2, which);
      return control(subscribe, MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
    }
    const auto mailboxes = [&](std::size_t in_id, std::size_t out_id) {
      // What is short lies in the attribute itself.
      std::uint64_t small = 0;
      if (bytes != 0) std::memcpy(&small, box.data(), std::min(bytes, sizeof small));
      ioctl.add(in_id, bytes, bytes <= sizeof small ? small : from);
      ioctl.add(out_id, out.size(), to);
    };
    if (which == 0 || which == 13 || which == 15) {
      mailboxes(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
      return control(ioctl, MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
    }
    if (which == 12) {
      ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, 0, handle);
      mailboxes(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT);
      return control(ioctl, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY);
    }
    if (which >= 6 && which <= 11) {
      ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, 0, handle);
      mailboxes(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT);
      return control(ioctl, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY);
    }
    ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0, 0);
    mailboxes(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT);
    control(ioctl, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    if (which == 2 && prm::get(out, prm::kStatus) == 0) {
      numbers_[next_++ % 4] = prm::get(out, prm::kNumber);
    }
  }
  static std::uint64_t address(std::size_t offset) {
    return reinterpret_cast<std::uint64_t>(arena()) + offset;
  }
  // Of 256 bytes each.
  static std::uint64_t place(Bytes& in) {
    return address(std::size_t{in.get<std::uint8_t>()} * (kArenaBytes / 256));
  }
  template <class Request>
  void command(std::uint32_t number, Request request, const void* driver = nullptr,
               std::size_t driver_bytes = 0) {
    if constexpr (requires { request.response; }) {
      request.response = reinterpret_cast<std::uint64_t>(answer_);
    }
    std::vector<std::uint8_t> bytes(sizeof(ib_uverbs_cmd_hdr) + sizeof request + driver_bytes);
    const ib_uverbs_cmd_hdr head{number, static_cast<std::uint16_t>(bytes.size() / 4),
                                 sizeof answer_ / 4};
    std::memcpy(bytes.data(), &head, sizeof head);
    std::memcpy(bytes.data() + sizeof head, &request, sizeof request);
    if (driver_bytes > 0)
      std::memcpy(bytes.data() + sizeof head + sizeof request, driver, driver_bytes);
    (void)calls->write(fd_, bytes.data(), bytes.size());
  }
  // A key of several regions, which requests may change: pieces, and a block that repeats.
  void make_list_key() {
    namespace mkey = prm::mkey;
    constexpr std::size_t kGiven = 4;
    std::vector<std::byte> box(mkey::kBytes + kGiven * 16), out(16);
    prm::set(box, prm::kOpcode, static_cast<std::uint32_t>(prm::Opcode::create_mkey));
    describe_list_key(box);
    prm::set(box, mkey::kEntries, kGiven);
    const auto put = [&](std::size_t i, std::uint32_t length, std::uint32_t key, std::uint64_t at) {
      const std::uint32_t words[2] = {__builtin_bswap32(length), __builtin_bswap32(key)};
      const std::uint64_t big = __builtin_bswap64(at);
      std::byte* const entry = box.data() + mkey::kBytes + i * 16;
      std::memcpy(entry, words, sizeof words);
      std::memcpy(entry + sizeof words, &big, sizeof big);
    };
    put(0, 40, key_, address(0x8000));
    put(1, 8, 0x400, std::uint64_t{9} << 32 | 1);  // 9 times 8 bytes, 24 apart
    put(2, 24U << 16 | 8, key_, address(0x8100));
    put(3, 300, key_, address(0x9000));
    Ioctl ioctl;
    ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0, 0);
    ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, box.size(),
              reinterpret_cast<std::uint64_t>(box.data()));
    ioctl.add(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out.size(),
              reinterpret_cast<std::uint64_t>(out.data()));
    control(ioctl, MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    list_key_ = prm::get(out, prm::kNumber) << 8;
    if (list_key_ == 0) std::abort();
  }
  void describe_list_key(prm::Out box) const {
    namespace mkey = prm::mkey;
    const prm::Out context = prm::behind(box, mkey::kContext);
    for (const prm::Field f : {mkey::kUmrEnabled, mkey::kRemoteEnd, mkey::kAtomic,
                               mkey::kRemoteWrite, mkey::kRemoteRead, mkey::kLocalWrite}) {
      prm::set(context, f, 1);
    }
    prm::set(context, mkey::kAccessMode, mkey::kList);
    prm::set(context, mkey::kQpn, mkey::kAnyQp);
    prm::set(context, mkey::kPd, pd_);
    prm::set(context, mkey::kTranslations, kListSlots);
    prm::set64(context, mkey::kLength, 40 + 72 + 300);
  }
  // Two queue pairs that are connected to each other: their queues lie in the first pages.
  void make_pair() {
    ib_uverbs_create_cq cq{};
    cq.cqe = 15;
    cq.comp_channel = -1;
    const mlx5_ib_create_cq where{address(0x1000), address(0x100), 64, 0, 0, 0, 0, 0, 0};
    command(IB_USER_VERBS_CMD_CREATE_CQ, cq, &where, sizeof where);
    for (std::size_t i = 0; i < 2; ++i) {
      ib_uverbs_create_qp request{};
      request.qp_type = IBV_QPT_RC;
      mlx5_ib_create_qp driver{};
      driver.buf_addr = address(kQueues + i * 0x1000);
      driver.db_addr = address(0x200 + i * 8);
      driver.sq_wqe_count = kBlocks;
      driver.rq_wqe_count = 8;
      driver.rq_wqe_shift = 5;
      command(IB_USER_VERBS_CMD_CREATE_QP, request, &driver, sizeof driver);
      std::memcpy(&numbers_[i], answer_ + 4, sizeof numbers_[0]);
    }
    Bytes first(reinterpret_cast<const std::uint8_t*>("\x04"), 1);
    Bytes second(reinterpret_cast<const std::uint8_t*>("\x01"), 1);
    move_qp(first);
    move_qp(second);
    next_ = 2;
  }
  // A request of one of the two that begins well, or a receive.
  void post(Bytes& in) {
    constexpr std::uint8_t kOpcodes[] = {0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11,
                                         0x12, 0x14, 0x1b, 0x25, 0x0a, 0x08, 0x10, 0x0a};
    const auto shape = in.get<std::uint8_t>(), units = in.get<std::uint8_t>();
    const std::size_t which = shape & 1;
    std::uint8_t* const receives = arena() + kQueues + which * 0x1000;
    auto* const counts = reinterpret_cast<std::uint32_t*>(arena() + 0x200 + which * 8);
    const auto key = __builtin_bswap32(key_), list = __builtin_bswap32(list_key_);
    if ((shape & 2) != 0) {
      const std::uint32_t count = __builtin_bswap32(counts[0]);
      std::uint8_t* const at = receives + (count & 7) * 32;
      in.take(at, 32);
      if ((shape & 4) != 0) std::memcpy(at + 4, (shape & 8) != 0 ? &list : &key, sizeof key);
      counts[0] = __builtin_bswap32(count + 1);
      return;
    }
    std::uint8_t* const sends = receives + 8 * 32;
    const std::uint32_t count = __builtin_bswap32(counts[1]);
    std::uint8_t wqe[16 * 64] = {};
    const std::uint32_t bytes = (units & 63U) * 16;
    wqe[3] = kOpcodes[shape >> 4];
    wqe[7] = units & 63;
    wqe[11] = 8;
    in.take(wqe + 12, bytes > 12 ? bytes - 12 : 0);
    // A key, and an address, where a segment of a pointer or of the remote side has them.
    const bool changes = wqe[3] == 0x25 && (shape & 4) != 0;
    if (changes) change_key(wqe, bytes);
    if (wqe[3] == 0x01 && (shape & 4) != 0) std::memcpy(wqe + 12, &list, sizeof list);
    for (std::uint32_t i = 16; i < bytes && (shape & 4) != 0 && !changes; i += 16) {
      if ((wqe[i] & 0x80) != 0) continue;
      // Of a list the addresses begin at 0.
      const bool of_list = (wqe[i + 14] & 1) != 0;
      const std::uint64_t to =
          __builtin_bswap64(of_list ? wqe[i + 15] : address(wqe[i + 15] * std::size_t{128}));
      const bool remote = i == 16 && wqe[3] != 0x0a && wqe[3] != 0x0b && wqe[3] != 0x01;
      std::memcpy(wqe + i + (remote ? 0 : 8), &to, sizeof to);
      std::memcpy(wqe + i + (remote ? 8 : 4), of_list ? &list : &key, sizeof key);
      if (!remote) wqe[i] = wqe[i + 1] = 0;
    }
    for (std::uint32_t i = 0; i < bytes; ++i) {
      sends[((count & (kBlocks - 1)) * 64 + i) % (kBlocks * 64)] = wqe[i];
    }
    counts[1] = __builtin_bswap32(count + (bytes + 63) / 64);
    if ((shape & 8) != 0) return;  // rung later
    store(0x800, numbers_[which] << 8);
  }
  // A change of the list key that begins well: a mask that is known, as many entries as there are.
  void change_key(std::uint8_t* wqe, std::uint32_t bytes) const {
    const auto list = __builtin_bswap32(list_key_);
    std::memcpy(wqe + 12, &list, sizeof list);
    constexpr std::uint32_t kMask = 0x203e'6141;
    std::uint32_t mask = 0;
    std::memcpy(&mask, wqe + 28, sizeof mask);
    mask &= __builtin_bswap32(kMask);
    std::memset(wqe + 24, 0, 4);
    std::memcpy(wqe + 28, &mask, sizeof mask);
    wqe[20] = 0;
    wqe[21] = bytes > 128 ? static_cast<std::uint8_t>((bytes - 128) / 16) : 0;
    wqe[22] = 0;
    std::memset(wqe + 68, 0xff, 3);
    wqe[71] = 0;
    std::memset(wqe + 76, 0, 4);
    std::memset(wqe + 88, 0, 6);  // a length of 16 bits
    if ((wqe[16] & 0x80) == 0) {
      const std::uint64_t to = __builtin_bswap64(address(wqe[143] * std::size_t{128}));
      const auto key = __builtin_bswap32(key_);
      std::memcpy(wqe + 132, &key, sizeof key);
      std::memcpy(wqe + 136, &to, sizeof to);
      wqe[21] = wqe[142] % (kListSlots + 2);
      return;
    }
    for (std::uint32_t i = 128; i + 16 <= bytes; i += 16) fill_entry(wqe + i);
  }
  void store(std::size_t offset, std::uint32_t second) const {
    auto* const at = reinterpret_cast<std::uint64_t*>(page_ + offset);
    __atomic_store_n(at, std::uint64_t{__builtin_bswap32(second)} << 32, __ATOMIC_RELEASE);
  }
  // libFuzzer puts values that the code has compared into its inputs, and pointers of this process
  // are among them. The device writes where a command says, so what could be the address of
  // anything but the arena becomes one near it, where nothing is.
  void spare_others(std::vector<std::uint8_t>& bytes) const {
    constexpr std::uint64_t kLowest = 1U << 16, kEnd = std::uint64_t{1} << 47;
    // Behind the header all of them are where their size says.
    std::uint64_t value = 0;
    for (std::size_t i = sizeof(ib_uverbs_cmd_hdr); i + sizeof value <= bytes.size();
         i += sizeof value) {
      std::memcpy(&value, bytes.data() + i, sizeof value);
      const std::uint64_t from_guard = value - (address(0) - kGuard);
      if (value < kLowest || value >= kEnd || from_guard < 2 * kGuard) continue;
      if (value == reinterpret_cast<std::uint64_t>(answer_)) continue;
      value = address(0) - kGuard + value % kGuard;
      std::memcpy(bytes.data() + i, &value, sizeof value);
    }
  }
  void any_command(Bytes& in) {
    const auto number = in.get<std::uint8_t>();
    const auto shape = in.get<std::uint8_t>();
    const auto units = in.get<std::uint8_t>();
    std::vector<std::uint8_t> bytes;
    const auto put = [&bytes](const auto& part) {
      const auto* const from = reinterpret_cast<const std::uint8_t*>(&part);
      bytes.insert(bytes.end(), from, from + sizeof part);
    };
    const auto to =
        (shape & 2) != 0 ? in.get<std::uint64_t>() : reinterpret_cast<std::uint64_t>(answer_);
    std::size_t body = 0;
    if ((shape & 1) != 0) {
      const auto more = static_cast<std::uint16_t>(in.get<std::uint8_t>() % 16);
      put(ib_uverbs_cmd_hdr{number % 64U | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                            static_cast<std::uint16_t>(units % 24), 16});
      put(ib_uverbs_ex_cmd_hdr{to, more, 16, 0});
      body = (units % 24U + more) * std::size_t{8};
    } else {
      const std::size_t words = 4 + units % 56U;
      put(ib_uverbs_cmd_hdr{number % 64U, static_cast<std::uint16_t>(words), 64});
      put(to);
      body = (words - 4) * 4;
    }
    const std::size_t begin = bytes.size();
    bytes.resize(begin + body);
    in.take(bytes.data() + begin, body);
    // Addresses that are right, at places that the input chooses.
    for (auto n = static_cast<unsigned>(shape >> 2 & 3); n > 0 && body >= 8; --n) {
      const std::uint64_t value = place(in);
      const std::size_t at = in.get<std::uint8_t>() % (body / 8) * 8;
      std::memcpy(bytes.data() + begin + at, &value, sizeof value);
    }
    if ((shape & 0x40) != 0) bytes.resize(bytes.size() - std::min<std::size_t>(4, body));
    spare_others(bytes);
    (void)calls->write(fd_, bytes.data(), bytes.size());
  }
  void make_cq(Bytes& in) {
    const auto shape = in.get<std::uint8_t>();
    ib_uverbs_create_cq request{};
    request.cqe = (2U << shape % 6) - 1;
    request.comp_channel = (shape & 0x40) != 0 && !marks.empty() ? *marks.rbegin() : -1;
    const std::uint64_t buffer = place(in), doorbell = place(in);
    const mlx5_ib_create_cq driver{buffer, doorbell, (shape & 0x80) != 0 ? 128U : 64U, 0, 0, 0, 0,
                                   0,      0};
    command(IB_USER_VERBS_CMD_CREATE_CQ, request, &driver, sizeof driver);
  }
  void make_qp(Bytes& in) {
    constexpr std::uint8_t kTypes[] = {2, 3, 4, 9, 10, 0xff, 0xff, 2};
    const auto shape = in.get<std::uint8_t>(), queues = in.get<std::uint8_t>();
    ib_uverbs_create_qp request{};
    request.qp_type = kTypes[shape % 8];
    request.send_cq_handle = queues & 3;
    request.recv_cq_handle = queues >> 2 & 3;
    request.srq_handle = queues >> 4 & 1;
    request.is_srq = queues >> 5 & 1;
    mlx5_ib_create_qp driver{};
    driver.flags = shape % 8 == 5   ? MLX5_QP_FLAG_TYPE_DCT
                   : shape % 8 == 6 ? MLX5_QP_FLAG_TYPE_DCI
                                    : 0U;
    driver.buf_addr = place(in);
    driver.db_addr = place(in);
    driver.sq_wqe_count = 1U << (shape >> 3 & 7);
    driver.rq_wqe_count = 1U << (shape >> 3 & 3);
    driver.rq_wqe_shift = 4 + (shape >> 6);
    command(IB_USER_VERBS_CMD_CREATE_QP, request, &driver, sizeof driver);
    std::memcpy(&numbers_[next_++ % 4], answer_ + 4, sizeof numbers_[0]);
  }
  // To RTS, or to the state that the input says.
  void move_qp(Bytes& in) {
    const auto shape = in.get<std::uint8_t>();
    ib_uverbs_modify_qp r{};
    r.qp_handle = shape & 3;
    r.port_num = r.dest.port_num = 1;
    r.dest.dlid = 1;
    r.qp_access_flags = 0xe;
    r.path_mtu = IBV_MTU_4096;
    r.dest_qp_num = numbers_[shape >> 2 & 3];
    r.min_rnr_timer = 1;
    r.timeout = 1;
    r.retry_cnt = r.rnr_retry = 1;
    const auto to = [&](std::uint8_t state, int mask) {
      r.qp_state = state;
      r.attr_mask = static_cast<std::uint32_t>(mask | IBV_QP_STATE);
      command(IB_USER_VERBS_CMD_MODIFY_QP, r);
    };
    if ((shape & 0x80) != 0) return to(shape >> 4 & 7, 0);
    constexpr int kPort = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    constexpr int kAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    constexpr int kRequests =
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    switch (shape >> 4 & 7) {
      case 0:  // RC, and XRC
        to(IBV_QPS_INIT, kPort | IBV_QP_ACCESS_FLAGS);
        to(IBV_QPS_RTR, kPeer | kAnswers);
        return to(IBV_QPS_RTS, IBV_QP_SQ_PSN | kRequests);
      case 1:  // UC
        to(IBV_QPS_INIT, kPort | IBV_QP_ACCESS_FLAGS);
        to(IBV_QPS_RTR, kPeer);
        return to(IBV_QPS_RTS, IBV_QP_SQ_PSN);
      case 2:  // UD
        to(IBV_QPS_INIT, kPort | IBV_QP_QKEY);
        to(IBV_QPS_RTR, 0);
        return to(IBV_QPS_RTS, IBV_QP_SQ_PSN);
      case 3:  // a DCI
        to(IBV_QPS_INIT, kPort);
        to(IBV_QPS_RTR, IBV_QP_PATH_MTU);
        return to(IBV_QPS_RTS, IBV_QP_SQ_PSN | kRequests);
      default:  // a DCT
        to(IBV_QPS_INIT, kPort | IBV_QP_ACCESS_FLAGS);
        return to(IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER);
    }
  }
  void make_srq(Bytes& in) {
    const auto shape = in.get<std::uint8_t>();
    ib_uverbs_create_srq request{};
    request.max_wr = (2U << shape % 6) - 1;
    request.max_sge = 1 + (shape >> 6);
    request.srq_limit = shape >> 3 & 7;
    const std::uint64_t buffer = place(in), doorbell = place(in);
    const mlx5_ib_create_srq driver{buffer, doorbell, 0, 0, shape, 0};
    command(IB_USER_VERBS_CMD_CREATE_SRQ, request, &driver, sizeof driver);
  }
  static void scribble(Bytes& in) {
    const auto offset = std::size_t{in.get<std::uint16_t>()} & ~std::size_t{3};
    const std::size_t bytes =
        std::min<std::size_t>(in.get<std::uint8_t>() + std::size_t{1}, kArenaBytes - offset);
    in.take(arena() + offset, bytes);
  }
  void ring(Bytes& in) {
    const auto shape = in.get<std::uint8_t>();
    const std::size_t offset = (shape & 1) != 0 ? 0x20 : 0x800;
    const std::uint32_t number =
        (shape & 2) != 0 ? in.get<std::uint32_t>() : numbers_[shape >> 2 & 3] << 8;
    store(offset, number);
  }
  static void events() {
    std::uint8_t bytes[128];
    for (const int fd : std::set<int>(marks)) {
      // Events of objects that are gone are skipped: then a read would wait for the next.
      fcntl(fd, F_SETFL, O_NONBLOCK);
      (void)calls->read(fd, bytes, sizeof bytes);
    }
  }

  int fd_ = -1;
  std::uint32_t key_ = 0, list_key_ = 0, pd_ = 0;
  std::uint8_t* page_ = nullptr;
  std::uint8_t answer_[256] = {};
  std::uint32_t numbers_[4] = {};
  std::size_t next_ = 0;
};

}  // namespace
}  // namespace turnout::hca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace turnout::hca::fuzz;
  setenv("TURNOUT_FABRIC", ("fuzz.mlx5." + std::to_string(getpid())).c_str(), 1);
  setenv("TURNOUT_FABRIC_SIZE", "256MiB", 1);
  setenv("TURNOUT_LOG", "off", 1);
  calls = turnout_mlx5_device(mark);
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  turnout::hca::fuzz::Bytes in(data, size);
  turnout::hca::fuzz::Program program;
  program.run(in);
  return 0;
}
