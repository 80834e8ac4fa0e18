// SPDX-License-Identifier: BSD-3-Clause
// FileObjects: what all commands of one command file share: its context, and the objects that more
// than one group of commands names.
//
// The lock of the command file guards it; the command file ends the objects.
#pragma once

#include <rdma/mlx5-abi.h>

#include <memory>
#include <utility>

#include "base/file_descriptor.h"
#include "hca/live/engine.h"
#include "hca/mlx5/async_answers.h"
#include "hca/mlx5/handles.h"
#include "hca/mlx5/queue_objects.h"

namespace turnout::hca {

// A descriptor that a program reads events from, and what it is of. Null where there is none.
class EventFiles {
 public:
  virtual ~EventFiles() = default;
  // A descriptor of the program's own for the same pipe. -1 and errno.
  [[nodiscard]] virtual int add(class CommandFile& file, Channel* channel, int pipe) = 0;
  // Null: it is not a channel of this file.
  [[nodiscard]] virtual Channel* channel_of(const class CommandFile& file, int fd) = 0;
  // The same of answers, which live as long as such a descriptor.
  [[nodiscard]] virtual int add(class CommandFile& file, std::shared_ptr<AsyncAnswers> answers) = 0;
  [[nodiscard]] virtual std::shared_ptr<AsyncAnswers> answers_of(const class CommandFile& file,
                                                                 int fd) = 0;
};

struct FileObjects {
  struct Domain {
    Pd* pd;
  };
  struct Region {
    Mr* mr;
    std::shared_ptr<Descriptor> memory;  // the device memory that it is of, or null
  };
  std::unique_ptr<Context> context;  // null before GET_CONTEXT
  LiveEngine* engine = nullptr;
  mlx5_ib_alloc_ucontext_resp description{};  // of the context, as GET_CONTEXT answered
  bool devx = false;                          // the program may speak to the firmware
  Handles<Domain> domains;
  Handles<Region> regions;
  Handles<CqObject> cqs;
  Handles<SrqObject> srqs;
  Handles<QpObject> qps;

  [[nodiscard]] ObjectVerbs& verbs() const noexcept { return *context->objects; }
  [[nodiscard]] std::uint32_t add(Mr* mr, std::shared_ptr<Descriptor> memory = nullptr) {
    return regions.add(std::unique_ptr<Region>(new Region{mr, std::move(memory)}));
  }
};

// Rights that a device may ignore (IBV_ACCESS_OPTIONAL_RANGE) are taken off, but those that it
// knows.
[[nodiscard]] constexpr unsigned known_rights(std::uint32_t asked) noexcept {
  return asked & ~(static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE) &
                   ~static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING));
}

}  // namespace turnout::hca
