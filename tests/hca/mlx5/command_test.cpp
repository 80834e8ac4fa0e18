// SPDX-License-Identifier: BSD-3-Clause
// Commands of both interfaces, as a program has them in its memory: lengths, what is missing,
// memory that is not there.
#include "hca/mlx5/command.h"

#include <gtest/gtest.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/split_mix.h"
#include "hca/mlx5/ioctl_command.h"

namespace turnout::hca {
namespace {

// One page that may be accessed, and one behind it that may not.
class Pages {
 public:
  Pages() {
    void* const pages =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = static_cast<std::byte*>(pages);
    mprotect(begin_ + kPage, kPage, PROT_NONE);
  }
  ~Pages() { munmap(begin_, 2 * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // The last bytes that may be accessed.
  [[nodiscard]] std::byte* last(std::size_t bytes) const { return begin_ + kPage - bytes; }
  static constexpr std::size_t kPage = 4096;

 private:
  std::byte* begin_;
};

struct AllocPd {
  ib_uverbs_cmd_hdr head{IB_USER_VERBS_CMD_ALLOC_PD, 4, 3};
  std::uint64_t response = 0;
};
static_assert(sizeof(AllocPd) == 16);

TEST(Mlx5Command, ReadsAndAnswers) {
  std::array<std::uint32_t, 3> answer{1, 2, 3};  // the common part, mlx5's, and what is behind
  AllocPd asked;
  asked.response = reinterpret_cast<std::uint64_t>(answer.data());
  asked.head.out_words = 2;
  Mlx5Command command;
  ASSERT_EQ(command.read(&asked, sizeof asked), 0);
  EXPECT_EQ(command.number(), unsigned{IB_USER_VERBS_CMD_ALLOC_PD});
  EXPECT_FALSE(command.extended());
  EXPECT_EQ(command.request<ib_uverbs_alloc_pd>().response, asked.response);
  EXPECT_EQ(command.answer(ib_uverbs_alloc_pd_resp{7}, mlx5_ib_alloc_pd_resp{9}), 0);
  EXPECT_EQ(answer[0], 7U);
  EXPECT_EQ(answer[1], 9U);
  EXPECT_EQ(answer[2], 3U);
}

TEST(Mlx5Command, AnswersNoMoreThanThereIsRoomFor) {
  std::array<std::uint32_t, 2> answer{1, 2};
  AllocPd asked;
  asked.response = reinterpret_cast<std::uint64_t>(answer.data());
  asked.head.out_words = 1;
  Mlx5Command command;
  ASSERT_EQ(command.read(&asked, sizeof asked), 0);
  (void)command.request<ib_uverbs_alloc_pd>();
  EXPECT_EQ(command.answer(ib_uverbs_alloc_pd_resp{7}, mlx5_ib_alloc_pd_resp{9}), 0);
  EXPECT_EQ(answer[0], 7U);
  EXPECT_EQ(answer[1], 2U);
}

TEST(Mlx5Command, RefusesLengthsThatAreNotThoseWritten) {
  AllocPd asked;
  Mlx5Command command;
  EXPECT_EQ(command.read(&asked, 0), EINVAL);
  EXPECT_EQ(command.read(&asked, sizeof asked.head - 1), EINVAL);
  EXPECT_EQ(command.read(&asked, sizeof asked - 4), EINVAL);
  asked.head.in_words = 1;  // less than the head
  EXPECT_EQ(command.read(&asked, sizeof asked), EINVAL);
  asked.head.in_words = 0xffff;
  EXPECT_EQ(command.read(&asked, std::size_t{0xffff} * 4), EINVAL);
  asked.head.in_words = 4;
  asked.head.command |= 0x0100'0000;  // a flag that is not known
  EXPECT_EQ(command.read(&asked, sizeof asked), EINVAL);
}

TEST(Mlx5Command, ReadsWhatIsMissingAsZero) {
  struct {
    ib_uverbs_cmd_hdr head{IB_USER_VERBS_CMD_REG_MR, 6, 0};
    std::uint64_t response = 0, start = 0x1234;
  } asked;
  Mlx5Command command;
  ASSERT_EQ(command.read(&asked, sizeof asked), 0);
  const auto request = command.request<ib_uverbs_reg_mr>();
  EXPECT_EQ(request.start, 0x1234U);
  EXPECT_EQ(request.length, 0U);
  EXPECT_EQ(request.access_flags, 0U);
  EXPECT_EQ(command.driver_request_bytes(), 0U);
  EXPECT_EQ(command.driver_request<mlx5_ib_create_qp>().flags, 0U);
}

TEST(Mlx5Command, TellsOfMemoryThatIsNotThere) {
  const Pages pages;
  AllocPd asked;
  Mlx5Command command;
  // The head, but not all of it.
  std::byte* const split = pages.last(sizeof asked - 4);
  std::memcpy(split, &asked, sizeof asked - 4);
  EXPECT_EQ(command.read(split, sizeof asked), EFAULT);
  EXPECT_EQ(command.read(pages.last(4), sizeof asked), EFAULT);
  // No place for the answer.
  asked.response = reinterpret_cast<std::uint64_t>(pages.last(4));
  ASSERT_EQ(command.read(&asked, sizeof asked), 0);
  (void)command.request<ib_uverbs_alloc_pd>();
  EXPECT_EQ(command.answer(ib_uverbs_alloc_pd_resp{7}), 0);
  EXPECT_EQ(command.answer(ib_uverbs_alloc_pd_resp{7}, mlx5_ib_alloc_pd_resp{9}), EFAULT);
}

TEST(Mlx5Command, HasTheDriversPartOfAnExtendedOneBehindTheCommon) {
  ib_uverbs_cmd_hdr head{};
  head.command = unsigned{IB_USER_VERBS_EX_CMD_CREATE_CQ} | IB_USER_VERBS_CMD_FLAG_EXTENDED;
  head.in_words = sizeof(ib_uverbs_ex_create_cq) / 8;
  ib_uverbs_ex_cmd_hdr more{};
  more.provider_in_words = sizeof(mlx5_ib_create_cq) / 8;
  ib_uverbs_ex_create_cq common{};
  common.cqe = 63;
  mlx5_ib_create_cq driver{};
  driver.cqe_size = 128;
  std::vector<std::byte> asked;
  const auto add = [&](const auto& part) {
    const auto bytes = std::as_bytes(std::span(&part, 1));
    asked.insert(asked.end(), bytes.begin(), bytes.end());
  };
  add(head);
  add(more);
  add(common);
  add(driver);
  Mlx5Command command;
  ASSERT_EQ(command.read(asked.data(), asked.size()), 0);
  EXPECT_TRUE(command.extended());
  EXPECT_EQ(command.request<ib_uverbs_ex_create_cq>().cqe, 63U);
  EXPECT_EQ(command.driver_request<mlx5_ib_create_cq>().cqe_size, 128U);
  EXPECT_EQ(command.driver_request_bytes(), sizeof driver);
}

// A command of the newer interface with two attributes.
struct Ioctl {
  static constexpr std::size_t kAttributes = 2;
  std::uint16_t length = sizeof(ib_uverbs_ioctl_hdr) + kAttributes * sizeof(ib_uverbs_attr);
  std::uint16_t object_id = 7, method_id = 3, num_attrs = kAttributes;
  std::uint64_t reserved1 = 0;
  std::uint32_t driver_id = 0, reserved2 = 0;
  std::array<ib_uverbs_attr, kAttributes> attributes{};
};
static_assert(offsetof(Ioctl, attributes) == sizeof(ib_uverbs_ioctl_hdr));

using Kind = IoctlCommand::Kind;

Ioctl with_value_and_answer(std::uint64_t value, void* answer, std::uint16_t bytes) {
  Ioctl out;
  out.attributes[0].attr_id = 0;
  out.attributes[0].len = sizeof value;
  out.attributes[0].flags = UVERBS_ATTR_F_MANDATORY;
  out.attributes[0].data = value;
  out.attributes[1].attr_id = 1;
  out.attributes[1].len = bytes;
  out.attributes[1].flags = UVERBS_ATTR_F_MANDATORY;
  out.attributes[1].data = reinterpret_cast<std::uint64_t>(answer);
  return out;
}
constexpr IoctlCommand::Attribute kValueAndAnswer[] = {{0, Kind::value, 8}, {1, Kind::answer, 4}};

TEST(IoctlCommand, ReadsAndAnswers) {
  std::array<std::uint32_t, 2> answer{1, 2};
  Ioctl asked = with_value_and_answer(0x1234'5678'9abc, answer.data(), 4);
  IoctlCommand command;
  ASSERT_EQ(command.read(&asked), 0);
  EXPECT_EQ(command.object(), 7);
  EXPECT_EQ(command.method(), 3);
  ASSERT_EQ(command.check(kValueAndAnswer), 0);
  EXPECT_EQ(command.value<std::uint64_t>(0), 0x1234'5678'9abcU);
  EXPECT_EQ(command.value<std::uint64_t>(5), 0U);
  command.answer(1, std::uint64_t{9} << 32 | 8);
  command.answer(5, 1);  // nobody asked
  EXPECT_EQ(command.answer_error(), 0);
  EXPECT_EQ(answer[0], 8U);
  EXPECT_EQ(answer[1], 2U);
  EXPECT_NE(asked.attributes[1].flags & UVERBS_ATTR_F_VALID_OUTPUT, 0);
}

TEST(IoctlCommand, NamesObjectsInItsAttributes) {
  Ioctl asked;
  asked.attributes[0].attr_id = 0;
  asked.attributes[0].data = 5;
  asked.attributes[1].attr_id = 1;
  constexpr IoctlCommand::Attribute kKnown[] = {{0, Kind::handle}, {1, Kind::new_handle}};
  IoctlCommand command;
  ASSERT_EQ(command.read(&asked), 0);
  ASSERT_EQ(command.check(kKnown), 0);
  EXPECT_EQ(command.handle(0), 5U);
  command.answer_handle(1, 6);
  EXPECT_EQ(command.answer_error(), 0);
  EXPECT_EQ(asked.attributes[1].data, 6U);
  asked.attributes[0].data = std::uint64_t{1} << 32 | 5;
  IoctlCommand beyond;
  ASSERT_EQ(beyond.read(&asked), 0);
  EXPECT_EQ(beyond.handle(0), UINT32_MAX);
}

TEST(IoctlCommand, RefusesWhatItDoesNotKnow) {
  std::uint32_t answer = 0;
  const Ioctl good = with_value_and_answer(1, &answer, sizeof answer);
  const auto check = [](const Ioctl& asked) {
    IoctlCommand command;
    const int error = command.read(&asked);
    return error != 0 ? error : command.check(kValueAndAnswer);
  };
  EXPECT_EQ(check(good), 0);
  Ioctl asked = good;
  asked.attributes[0].attr_id = 9;
  EXPECT_EQ(check(asked), EPROTONOSUPPORT);
  asked.attributes[0].flags = 0;  // may be unknown, but the other one is missing
  EXPECT_EQ(check(asked), EINVAL);
  asked = good;
  asked.attributes[1].attr_id = 0;  // twice
  EXPECT_EQ(check(asked), EINVAL);
  asked = good;
  asked.attributes[0].len = 4;
  EXPECT_EQ(check(asked), EINVAL);
  asked.attributes[0].len = 16;
  EXPECT_EQ(check(asked), EOPNOTSUPP);
  asked = good;
  asked.attributes[1].len = 2;
  EXPECT_EQ(check(asked), EINVAL);
  asked = good;
  asked.attributes[1].flags = 8;
  EXPECT_EQ(check(asked), EINVAL);
  asked = good;
  asked.length = sizeof asked - 1;
  EXPECT_EQ(check(asked), EINVAL);
  asked = good;
  asked.reserved2 = 1;
  EXPECT_EQ(check(asked), EPROTONOSUPPORT);
}

TEST(IoctlCommand, ReadsListsPieceByPiece) {
  const std::array<std::uint64_t, 3> list{1, 2, 3};
  Ioctl asked;
  asked.attributes[0].attr_id = 4;
  asked.attributes[0].len = sizeof list;
  asked.attributes[0].data = reinterpret_cast<std::uint64_t>(list.data());
  asked.attributes[1].attr_id = 5;  // so short that it lies in the attribute
  asked.attributes[1].len = sizeof(std::uint32_t);
  asked.attributes[1].data = 77;
  constexpr IoctlCommand::Attribute kKnown[] = {{4, Kind::list, 8}, {5, Kind::list, 4}};
  IoctlCommand command;
  ASSERT_EQ(command.read(&asked), 0);
  ASSERT_EQ(command.check(kKnown), 0);
  EXPECT_EQ(command.list_bytes(4), sizeof list);
  EXPECT_EQ(command.list_bytes(6), 0U);
  std::uint64_t element = 0;
  ASSERT_EQ(command.list(4, 16, &element, sizeof element), 0);
  EXPECT_EQ(element, 3U);
  std::uint32_t inside = 0;
  ASSERT_EQ(command.list(5, 0, &inside, sizeof inside), 0);
  EXPECT_EQ(inside, 77U);
  asked.attributes[0].len = 12;
  IoctlCommand uneven;
  ASSERT_EQ(uneven.read(&asked), 0);
  EXPECT_EQ(uneven.check(kKnown), EINVAL);
}

TEST(IoctlCommand, TellsOfMemoryThatIsNotThere) {
  const Pages pages;
  Ioctl asked = with_value_and_answer(1, pages.last(2), 4);
  IoctlCommand command;
  EXPECT_EQ(command.read(pages.last(8)), EFAULT);
  std::byte* const split = pages.last(sizeof asked - 8);
  std::memcpy(split, &asked, sizeof asked - 8);
  EXPECT_EQ(command.read(split), EFAULT);
  IoctlCommand whole;
  ASSERT_EQ(whole.read(&asked), 0);
  ASSERT_EQ(whole.check(kValueAndAnswer), 0);
  whole.answer(1, std::uint32_t{1});
  EXPECT_EQ(whole.answer_error(), EFAULT);
}

// Whatever the bytes are, nothing beyond them is touched; see also the sanitizers' run.
TEST(IoctlCommand, TakesRubbish) {
  SplitMix64 random(1);
  const Pages pages;
  for (int i = 0; i < 2000; ++i) {
    Ioctl asked;
    asked.num_attrs = static_cast<std::uint16_t>(random.next() % 40);
    asked.length = static_cast<std::uint16_t>(sizeof(ib_uverbs_ioctl_hdr) +
                                              asked.num_attrs * sizeof(ib_uverbs_attr));
    std::vector<std::byte> bytes(asked.length);
    std::memcpy(bytes.data(), &asked, sizeof(ib_uverbs_ioctl_hdr));
    for (std::size_t at = sizeof(ib_uverbs_ioctl_hdr); at < bytes.size(); ++at) {
      // Small numbers, so that ids, flags and lengths are often valid.
      bytes[at] = static_cast<std::byte>(random.next() % 4 == 0 ? random.next() % 12 : 0);
    }
    std::byte* const place = pages.last(bytes.size());
    std::memcpy(place, bytes.data(), bytes.size());
    IoctlCommand command;
    if (command.read(place) != 0 || command.check(kValueAndAnswer) != 0) continue;
    command.answer(1, command.value<std::uint64_t>(0));
    EXPECT_TRUE(command.answer_error() == 0 || command.answer_error() == EFAULT);
  }
}

}  // namespace
}  // namespace turnout::hca
