// SPDX-License-Identifier: BSD-3-Clause
// Object: the record of a provider's object that is observed. ObjectWithTable: that of an object
// with one table of operations beside the one that all objects have.
//
// The object stays the provider's; its record owns the tables that lie in it meanwhile. A record is
// made with new once the provider has made the object, and deletes itself when the object is
// closed. Objects are made and closed by one thread each; operations come from any. Errors: the
// status of the provider's own call. Source: fi_fabric(3), struct fid.
#pragma once

#include <rdma/fabric.h>

#include <type_traits>

#include "record/libfabric/table.h"

namespace turnout::record::libfabric {

class Object {
 public:
  explicit Object(const ::fid& made);
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  [[nodiscard]] static bool observes(const ::fid& one) noexcept;
  // Of one that is observed.
  [[nodiscard]] static Object& of(const ::fid& one) noexcept { return owner_of<Object>(one.ops); }

 protected:
  // The object's tables: ours, or the provider's.
  virtual void take() noexcept = 0;
  virtual void restore() noexcept = 0;

  Table<fi_ops> general_;

 private:
  static int close(::fid* one);
};

// Self: the class that derives from it. Its constructor replaces operations, then takes the tables.
template <class Self, class Fid>
class ObjectWithTable : public Object {
 protected:
  using Ops = std::remove_pointer_t<decltype(Fid::ops)>;

  explicit ObjectWithTable(Fid* made) : Object(made->fid), fid_(made) {
    ops_.copy(made->ops, static_cast<ObjectWithTable*>(this));
  }
  [[nodiscard]] static Self& of(const Fid* made) noexcept {
    return static_cast<Self&>(owner_of<ObjectWithTable>(made->ops));
  }
  [[nodiscard]] static const Ops& real(const Fid* made) noexcept { return *of(made).ops_.real(); }

  void take() noexcept final {
    general_.take(&fid_->fid.ops);
    ops_.take(&fid_->ops);
  }
  void restore() noexcept final {
    general_.restore(&fid_->fid.ops);
    ops_.restore(&fid_->ops);
  }

  Fid* const fid_;
  Table<Ops> ops_;
};

}  // namespace turnout::record::libfabric
