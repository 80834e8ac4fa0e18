// SPDX-License-Identifier: BSD-3-Clause
// DataMover: copies the bytes of operations between registered memory.
//
// Regions of the sender were checked when the request was posted; the part of one that is gone
// meanwhile is left out. One thread.
#pragma once

#include <vector>

#include "hca/virtual/objects.h"
#include "hca/virtual/regions.h"

namespace turnout::hca {

class DataMover {
 public:
  explicit DataMover(const Regions& regions) : regions_(regions) {}

  // Into the receive that the operation took. What goes wrong is the status of both.
  void to_receive(Operation& operation, Completion& entry);
  // Of the sender's data the bytes [from, to), to where they belong in the target's memory.
  void place(const Operation& operation, std::uint8_t* target, std::uint64_t from,
             std::uint64_t to);
  // The sender's data into `copy`, which has room for them.
  void copy_from(const Operation& operation, std::vector<std::uint8_t>& copy);
  // operation.copy into the sender's memory. False: its size is not what the request had.
  [[nodiscard]] bool copy_back(const Operation& operation);

 private:
  struct Span {
    std::uint8_t* data;
    std::uint64_t length;
  };
  // Where the sender's data lie, into spans_.
  void gather(const Operation& operation);

  const Regions& regions_;
  std::vector<Span> spans_;  // scratch
};

}  // namespace turnout::hca
