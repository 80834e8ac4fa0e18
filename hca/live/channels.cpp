// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/channels.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "hca/live/fork_guard.h"

namespace turnout::hca {

Channel* LiveChannels::create(Context& context) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return failed(errno);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  struct stat st {};
  fstat(ends[1], &st);
  auto channel = std::make_unique<Channel>();
  channel->verbs.context = &context.verbs.context;
  channel->verbs.fd = ends[0];
  channel->verbs.refcnt = 0;
  channel->write = ends[1];
  channel->pipe = PipeRef{st.st_ino, ends[1], 0};
  ++context.users;
  return channel.release();
}

int LiveChannels::destroy(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  ::close(channel.verbs.fd);
  ::close(channel.write);
  --context_of(channel.verbs.context).users;
  delete &channel;
  return 0;
}

}  // namespace turnout::hca
