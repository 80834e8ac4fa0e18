// SPDX-License-Identifier: BSD-3-Clause
// What a program writes to the emulated mlx5 device, by both interfaces. Nothing is answered: the
// place of an answer is the program's to choose.
#include <cstring>
#include <vector>

#include "hca/mlx5/command.h"
#include "hca/mlx5/ioctl_command.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using turnout::hca::IoctlCommand;
  using turnout::hca::Mlx5Command;
  // Of its own, so that the sanitizer sees its end.
  const std::vector<std::uint8_t> bytes(data, data + size);
  Mlx5Command command;
  if (command.read(bytes.data(), bytes.size()) == 0) {
    (void)command.request<ib_uverbs_ex_create_qp>();
    (void)command.driver_request<mlx5_ib_create_qp>();
    if (command.driver_request_bytes() > bytes.size()) __builtin_trap();
  }
  // As long as it says that it is; less is the kernel's to find out, here the page's end.
  if (size < sizeof(ib_uverbs_ioctl_hdr)) return 0;
  std::uint16_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > size) return 0;
  using Kind = IoctlCommand::Kind;
  constexpr IoctlCommand::Attribute kKnown[] = {{0, Kind::handle, 0, false},
                                                {1, Kind::new_handle, 0, false},
                                                {2, Kind::value, 8, false},
                                                {3, Kind::list, 4, false},
                                                {4, Kind::answer, 4, false}};
  IoctlCommand ioctl;
  if (ioctl.read(bytes.data()) != 0 || ioctl.check(kKnown) != 0) return 0;
  (void)ioctl.handle(0);
  (void)ioctl.value<std::uint64_t>(2);
  mlx5_ib_create_qp block;
  (void)ioctl.block(3, block);
  std::uint32_t element = 0;
  for (std::size_t at = 0; at + sizeof element <= ioctl.list_bytes(3) && at < 64;
       at += sizeof element) {
    (void)ioctl.list(3, at, &element, sizeof element);
  }
  return 0;
}
