// SPDX-License-Identifier: BSD-3-Clause
// Cq: the record of a completion queue. It reads the completions and records which operations have
// ended, and what the receives of them got.
//
// The queue was opened with the format that has everything, and what the program asked for is
// copied out: each format is the beginning of the next [fi_cq(3)].
//
// Owned as every Object. Any thread; the recorder's lock guards what is pending. Sizes are bytes.
// Errors: the status of the provider's own call. Source: fi_cq(3).
#pragma once

#include <rdma/fi_eq.h>

#include <cstddef>
#include <cstdint>

#include "record/libfabric/object.h"
#include "record/libfabric/pending_operations.h"
#include "record/recorder.h"

namespace turnout::record::libfabric {

class Cq final : public ObjectWithTable<Cq, fid_cq> {
 public:
  // `format`: what the program asked for.
  Cq(fid_cq* cq, fi_cq_format format);

  // Guarded by the recorder.
  [[nodiscard]] PendingOperations& pending() noexcept { return pending_; }

 private:
  static ssize_t read(fid_cq* cq, void* to, std::size_t count);
  static ssize_t readfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from);
  static ssize_t sread(fid_cq* cq, void* to, std::size_t count, const void* condition, int timeout);
  static ssize_t sreadfrom(fid_cq* cq, void* to, std::size_t count, fi_addr_t* from,
                           const void* condition, int timeout);
  static ssize_t readerr(fid_cq* cq, fi_cq_err_entry* to, std::uint64_t flags);

  template <class Read>
  ssize_t take_entries(void* to, std::size_t count, fi_addr_t* from, Read&& read_entries);
  void ended(Recorder& recorder, const fi_cq_tagged_entry& entry, fi_addr_t source);
  void failed(Recorder& recorder, const fi_cq_err_entry& error);

  const std::size_t entry_size_;  // as the program has them
  PendingOperations pending_;
};

}  // namespace turnout::record::libfabric
