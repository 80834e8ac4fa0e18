// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/object.h"

#include "record/recorder.h"

namespace turnout::record::libfabric {

Object::Object(const ::fid& made) {
  general_.copy(made.ops, this);
  general_.replace(&fi_ops::close, &Object::close);
}

bool Object::observes(const ::fid& one) noexcept {
  return one.ops != nullptr && one.ops->close == &Object::close;
}

// With the provider's own tables; the record goes if that went well.
int Object::close(::fid* one) {
  Object* const object = &of(*one);
  const Recorder::Call call(Recorder::get());
  object->restore();
  const int status = one->ops->close(one);
  if (status != 0) {
    object->take();
    return status;
  }
  delete object;
  return 0;
}

}  // namespace turnout::record::libfabric
