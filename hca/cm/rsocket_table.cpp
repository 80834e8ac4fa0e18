// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_table.h"

#include <pthread.h>

#include <mutex>
#include <unordered_map>
#include <vector>

namespace turnout::cm {
namespace {

struct Numbered {
  std::shared_ptr<Rsocket> socket;
  unsigned generation = 0;
};

// Never destroyed: threads may be in calls while the process exits.
struct Table {
  std::mutex mutex;
  std::unordered_map<int, Numbered> sockets;
  unsigned generation = 0;  // forks that led here
};

Table& table() {
  static Table* const one = [] {
    auto* const made = new Table;
    // No thread of the parent's is in the table when the child begins.
    pthread_atfork([] { table().mutex.lock(); }, [] { table().mutex.unlock(); },
                   [] {
                     ++table().generation;
                     table().mutex.unlock();
                   });
    return made;
  }();
  return *one;
}

}  // namespace

std::shared_ptr<Rsocket> find_rsocket(int number) {
  Table& t = table();
  const std::lock_guard guard(t.mutex);
  const auto found = t.sockets.find(number);
  return found != t.sockets.end() && found->second.generation == t.generation ? found->second.socket
                                                                              : nullptr;
}

void add_rsocket(const std::shared_ptr<Rsocket>& socket) {
  Table& t = table();
  const std::lock_guard guard(t.mutex);
  t.sockets[socket->descriptor()] = {socket, t.generation};
}

std::shared_ptr<Rsocket> remove_rsocket(int number, bool& of_parent) {
  Table& t = table();
  const std::lock_guard guard(t.mutex);
  const auto found = t.sockets.find(number);
  if (found == t.sockets.end()) return nullptr;
  of_parent = found->second.generation != t.generation;
  auto socket = std::move(found->second.socket);
  t.sockets.erase(found);
  return socket;
}

bool is_parents(int number) {
  Table& t = table();
  const std::lock_guard guard(t.mutex);
  const auto found = t.sockets.find(number);
  return found != t.sockets.end() && found->second.generation != t.generation;
}

void advance_handshakes() {
  Table& t = table();
  std::vector<std::shared_ptr<Rsocket>> all;
  {
    const std::lock_guard guard(t.mutex);
    for (const auto& [number, entry] : t.sockets) {
      if (entry.generation == t.generation && entry.socket->handshaking()) {
        all.push_back(entry.socket);
      }
    }
  }
  for (const auto& socket : all) {
    const std::lock_guard guard(socket->mutex());
    if (!socket->closed()) socket->advance();
  }
}

}  // namespace turnout::cm
