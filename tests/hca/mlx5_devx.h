// SPDX-License-Identifier: BSD-3-Clause
// Devx: the firmware's commands of the emulated mlx5, with every byte in the test's own hand.
//
// One thread. Sources: rdma/mlx5_user_ioctl_cmds.h, hca/mlx5/prm.h.
#pragma once

#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl.h>

#include <vector>

#include "hca/mlx5/prm.h"
#include "tests/hca/mlx5_library.h"

namespace turnout::hca::test {

using Box = std::vector<std::byte>;

// A command of the newer interface, attribute by attribute.
class Ioctl {
 public:
  Ioctl(std::uint16_t object, std::uint16_t method) : object_(object), method_(method) {}
  Ioctl& value(std::uint16_t id, std::uint64_t value, std::uint16_t bytes = 8) {
    attributes_.push_back({id, bytes, UVERBS_ATTR_F_MANDATORY, {}, {value}});
    return *this;
  }
  Ioctl& in(std::uint16_t id, const void* from, std::size_t bytes) {
    ib_uverbs_attr a{id, static_cast<std::uint16_t>(bytes), UVERBS_ATTR_F_MANDATORY, {}, {}};
    if (bytes <= sizeof(std::uint64_t)) {
      std::uint64_t small = 0;
      std::memcpy(&small, from, bytes);
      a.data = small;
    } else {
      a.data = address_of(from);
    }
    attributes_.push_back(a);
    return *this;
  }
  Ioctl& out(std::uint16_t id, void* to, std::size_t bytes) {
    attributes_.push_back(
        {id, static_cast<std::uint16_t>(bytes), UVERBS_ATTR_F_MANDATORY, {}, {address_of(to)}});
    return *this;
  }
  Ioctl& handle(std::uint16_t id, std::uint32_t handle) { return value(id, handle, 0); }
  // 0 or errno.
  int run(int fd) {
    bytes_.resize(sizeof(ib_uverbs_ioctl_hdr) + attributes_.size() * sizeof(ib_uverbs_attr));
    ib_uverbs_ioctl_hdr head{};
    head.length = static_cast<std::uint16_t>(bytes_.size());
    head.object_id = object_;
    head.method_id = method_;
    head.num_attrs = static_cast<std::uint16_t>(attributes_.size());
    std::memcpy(bytes_.data(), &head, sizeof head);
    std::memcpy(bytes_.data() + sizeof head, attributes_.data(),
                attributes_.size() * sizeof(ib_uverbs_attr));
    errno = 0;
    return mlx5_device().ioctl(fd, RDMA_VERBS_IOCTL, bytes_.data()) == 0 ? 0 : errno;
  }
  // What was answered in place: the handle of a new object.
  [[nodiscard]] std::uint32_t made(std::size_t attribute = 0) const {
    ib_uverbs_attr a;
    std::memcpy(&a, bytes_.data() + sizeof(ib_uverbs_ioctl_hdr) + attribute * sizeof a, sizeof a);
    return static_cast<std::uint32_t>(a.data);
  }

 private:
  std::uint16_t object_, method_;
  std::vector<ib_uverbs_attr> attributes_;
  std::vector<std::byte> bytes_;
};

// What a command of the firmware came to.
struct Result {
  int error = 0;
  Box out;
  std::uint32_t handle = 0;
  [[nodiscard]] prm::Answer status() const {
    return static_cast<prm::Answer>(prm::get(out, prm::kStatus));
  }
  [[nodiscard]] std::uint32_t number() const { return prm::get(out, prm::kNumber); }
};
inline testing::AssertionResult refused(const Result& result, prm::Answer status) {
  const std::uint32_t syndrome = prm::get(result.out, prm::kSyndrome);
  if (result.error == EREMOTEIO && result.status() == status && syndrome != 0) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "error " << result.error << ", status " << static_cast<int>(result.status());
}

[[nodiscard]] inline Box command(prm::Opcode opcode, std::size_t bytes = prm::kHeadBytes) {
  Box box(bytes);
  prm::set(box, prm::kOpcode, static_cast<std::uint32_t>(opcode));
  return box;
}

// A context with DevX, and queues made by the firmware's commands in memory of the test.
class Devx {
 public:
  explicit Devx(bool devx = true) : library(false, devx) {
    EXPECT_EQ(Ioctl(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY)
                  .handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, library.pd)
                  .out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &pdn, sizeof pdn)
                  .run(library.fd),
              0);
  }
  Result general(const Box& in, std::size_t out_bytes) {
    Result r{0, Box(out_bytes)};
    r.error = Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
                  .in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in.data(), in.size())
                  .out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, r.out.data(), r.out.size())
                  .run(library.fd);
    return r;
  }
  Result create(const Box& in) {
    Result r{0, Box(prm::kHeadBytes)};
    Ioctl ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
    r.error = ioctl.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0)
                  .in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in.data(), in.size())
                  .out(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, r.out.data(), r.out.size())
                  .run(library.fd);
    r.handle = ioctl.made();
    return r;
  }
  Result modify(std::uint32_t handle, const Box& in) {
    Result r{0, Box(prm::kHeadBytes)};
    r.error = Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY)
                  .handle(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle)
                  .in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in.data(), in.size())
                  .out(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, r.out.data(), r.out.size())
                  .run(library.fd);
    return r;
  }
  Result query(std::uint32_t handle, const Box& in, std::size_t out_bytes) {
    Result r{0, Box(out_bytes)};
    r.error = Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY)
                  .handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, handle)
                  .in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in.data(), in.size())
                  .out(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, r.out.data(), r.out.size())
                  .run(library.fd);
    return r;
  }
  int destroy(std::uint32_t handle) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, handle)
        .run(library.fd);
  }
  // The number of the memory, and its handle.
  int umem(std::uint64_t address, std::uint64_t length, std::uint32_t& number,
           std::uint32_t& handle, std::uint64_t access = IBV_ACCESS_LOCAL_WRITE) {
    Ioctl ioctl(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
    const int error = ioctl.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, 0)
                          .value(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, address)
                          .value(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, length)
                          .value(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, access, 4)
                          .out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &number, 4)
                          .run(library.fd);
    handle = ioctl.made();
    return error;
  }
  std::uint32_t umem(Pages& pages, std::uint64_t length) {
    std::uint32_t number = 0, handle = 0;
    EXPECT_EQ(umem(pages.address(), length, number, handle), 0);
    return number;
  }
  int dereg(std::uint32_t handle) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG)
        .handle(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, handle)
        .run(library.fd);
  }
  int channel(bool omits_data = true) {
    Ioctl ioctl(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
    EXPECT_EQ(ioctl.handle(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, 0)
                  .value(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, omits_data ? 1 : 0)
                  .run(library.fd),
              0);
    const auto fd = static_cast<int>(ioctl.made());
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
  }
  // A descriptor that answers come by.
  int answers() {
    Ioctl ioctl(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC);
    EXPECT_EQ(ioctl.handle(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, 0).run(library.fd), 0);
    return static_cast<int>(ioctl.made());
  }
  int query_later(std::uint32_t handle, const Box& in, std::size_t out_bytes, int answers,
                  std::uint64_t wr_id) {
    return Ioctl(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, handle)
        .in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, in.data(), in.size())
        .value(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, out_bytes)
        .value(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wr_id)
        .handle(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, static_cast<std::uint32_t>(answers))
        .run(library.fd);
  }
  int subscribe(int channel, std::uint32_t object, std::vector<std::uint16_t> types,
                std::uint64_t cookie) {
    return Ioctl(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT)
        .handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, static_cast<std::uint32_t>(channel))
        .handle(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, object)
        .in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, types.data(), types.size() * 2)
        .value(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie)
        .run(library.fd);
  }

  Mlx5Library library;
  std::uint32_t pdn = 0;
};

}  // namespace turnout::hca::test
