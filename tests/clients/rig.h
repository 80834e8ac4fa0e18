// SPDX-License-Identifier: BSD-3-Clause
// What the clients of tests/clients are made of: a Node is one endpoint of a libfabric provider,
// whose peer is the same test in the other process.
//
// Client and server find each other in one of two ways (Run::out_of_band): names from fi_getname go
// over a TCP socket beside the fabric, or fi_getinfo gets host and port and the client's name is
// its first message. A Node owns all it opened and closes it in order. One thread. A call that
// fails is an FiError, what a test finds wrong a std::runtime_error, what fi_getinfo or the opening
// of an object does not offer Unsupported. Nothing here knows Turnout: the programs run over any
// provider. Source: fi_getinfo(3), fi_endpoint(3), fi_cq(3), fi_cm(3), fi_mr(3).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/programs/fi_node.h"

namespace turnout::clients {

using programs::FiError;
using programs::FiHandle;
using Bytes = std::vector<std::byte>;

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct InfoFree {
  void operator()(fi_info* info) const noexcept { fi_freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoFree>;

// Of one process.
struct Run {
  std::string provider = "turnout";
  std::string host = "127.0.0.1";
  std::string port;  // of the server's endpoint, and of its control socket when out of band
  bool server = false;
  bool out_of_band = false;
  bool standard = false;  // all sizes, more iterations
};

struct Test {
  std::string name;   // as a command line of fabtests
  int processes = 2;  // 1 or 2
  std::function<void(const Run&)> body;
};

std::vector<Test> unit_tests();
std::vector<Test> message_tests();
std::vector<Test> connection_tests();
std::vector<Test> endpoint_tests();
std::vector<Test> one_sided_tests();
std::vector<Test> benchmark_tests();

// Where a test is, for whoever sees that it hangs.
void stage(const char* name) noexcept;
[[nodiscard]] const char* current_stage() noexcept;
// To who started this process: the client may start. Only the first call counts.
void say_ready();

void check(long code, const char* call);          // FiError if negative
void check_offered(long code, const char* call);  // Unsupported for what the provider has not
void require(bool condition, const std::string& what);

// A message's content depends on its number and place, so that no other message's looks like it.
void fill(std::span<std::byte> data, std::size_t number);
void verify(std::span<const std::byte> data, std::size_t number);
[[nodiscard]] std::vector<std::size_t> sizes(const Run& run, std::size_t most);
[[nodiscard]] std::size_t iterations(const Run& run, std::size_t size);

// What is asked of fi_getinfo.
struct Ask {
  fi_ep_type type = FI_EP_RDM;
  std::uint64_t caps = FI_MSG;
  std::function<void(fi_info&)> more;  // further hints
};
// The name by which libfabric has this type: reliable datagrams over tcp are a layer, the others
// not.
[[nodiscard]] std::string provider_of(const Run& run, fi_ep_type type);
[[nodiscard]] InfoPtr hints_of(const Run& run, const Ask& ask);
[[nodiscard]] InfoPtr get_info(const Run& run, const Ask& ask);  // as this side needs it

// For completions: in calls that do not block, fi_cq_sread, a descriptor (poll(2), epoll(7)), or a
// wait set.
enum class Wait { spin, sread, fd, epoll, set };

struct Setup : Ask {
  Wait wait = Wait::spin;
  bool counters = false;        // completions are counted; entries only where FI_COMPLETION asks
  bool selective = false;       // entries only where FI_COMPLETION asks
  std::size_t room = 64 << 10;  // bytes of each buffer
  std::size_t queue = 0;        // entries of the completion queues; 0: as many as contexts
  fi_av_type av = FI_AV_UNSPEC;
  bool one_queue = false;                            // one for both directions
  std::string av_name;                               // of a shared address vector
  bool shared_send = false, shared_receive = false;  // contexts
};

// The context of one operation.
struct Op {
  fi_context2 context{};
  unsigned done = 0;  // completions not yet waited for
  fi_cq_tagged_entry entry{};
  int error = 0;

  // What a queue answers belongs to this.
  static Op* of(void* context) noexcept { return static_cast<Op*>(context); }
};

// The TCP socket beside the fabric. Only when out of band.
class Control {
 public:
  explicit Control(const Run& run);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();
  void send(std::span<const std::byte> data) const;
  [[nodiscard]] Bytes receive(const std::function<void()>& meanwhile) const;

 private:
  int fd_ = -1;
};
// Of the process, opened by the first who asks.
[[nodiscard]] const Control& control_of(const Run& run);

class Node {
 public:
  // Opens, finds the peer and, of FI_EP_MSG, connects.
  Node(const Run& run, Setup setup);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() = default;

  [[nodiscard]] const Run& run() const noexcept { return run_; }
  [[nodiscard]] const Setup& setup() const noexcept { return setup_; }
  [[nodiscard]] const fi_info& info() const noexcept { return *info_; }
  [[nodiscard]] fid_fabric* fabric() const noexcept { return fabric_.get(); }
  [[nodiscard]] fid_domain* domain() const noexcept { return domain_.get(); }
  [[nodiscard]] fid_av* av() const noexcept { return av_.get(); }
  [[nodiscard]] fid_eq* eq() const noexcept { return eq_.get(); }
  [[nodiscard]] fid_ep* ep() const noexcept { return ep_.get(); }
  [[nodiscard]] fid_cq* sends() const noexcept { return sends_.get(); }
  [[nodiscard]] fid_cq* receives() const noexcept {
    return receives_ ? receives_.get() : sends_.get();
  }
  [[nodiscard]] fid_cntr* sent() const noexcept { return sent_.get(); }
  [[nodiscard]] fid_cntr* received() const noexcept { return received_.get(); }
  [[nodiscard]] fi_addr_t peer() const noexcept { return peer_; }
  void set_peer(fi_addr_t peer) noexcept { peer_ = peer; }
  [[nodiscard]] std::span<std::byte> out() noexcept { return out_; }
  [[nodiscard]] std::span<std::byte> in() noexcept { return in_; }
  [[nodiscard]] void* out_desc() const noexcept { return desc(out_mr_.get()); }
  [[nodiscard]] void* in_desc() const noexcept { return desc(in_mr_.get()); }
  [[nodiscard]] fid_mr* in_mr() const noexcept { return in_mr_.get(); }
  [[nodiscard]] bool tagged() const noexcept { return (setup_.caps & FI_TAGGED) != 0; }
  [[nodiscard]] std::size_t largest() const noexcept {
    return std::min(setup_.room, info_->ep_attr->max_msg_size);
  }

  // Another endpoint of this domain, bound to what this one has or to the queue given, and enabled.
  [[nodiscard]] FiHandle<fid_ep> another_endpoint(fid_cq* queue = nullptr, fid_av* av = nullptr);
  [[nodiscard]] FiHandle<fid_cq> open_queue(Wait wait, std::size_t size,
                                            void* context = nullptr) const;
  [[nodiscard]] FiHandle<fid_mr> register_memory(std::span<std::byte> area, std::uint64_t access,
                                                 std::uint64_t key) const;
  // Of a region of this node as its peer must name it, for exchange().
  [[nodiscard]] fi_rma_iov remote(std::span<std::byte> area, fid_mr* mr) const;

  [[nodiscard]] fid_ep* receiver() const noexcept { return srx_ ? srx_.get() : ep_.get(); }
  // Of all other endpoints: messages to these and to the node's own, which may be those that bring
  // both sides together, come in any order. Null without Setup::shared_receive.
  [[nodiscard]] fid_ep* shared_receives() const noexcept { return srx_of_others_.get(); }

  // A call that answers -FI_EAGAIN is made again, with progress between.
  template <class Call>
  void post(const char* name, Call&& call) {
    stage(name);
    long code = 0;
    while ((code = call()) == -FI_EAGAIN) progress();
    check_offered(code, name);
  }
  // By tag where the endpoint has tags.
  void send(std::size_t size, Op& op, std::uint64_t tag = 0);
  void receive(std::size_t size, Op& op, std::uint64_t tag = 0);
  // Until the operation has completed; in the way of Setup::wait.
  void wait_sent(Op& op) { wait(sends(), op); }
  void wait_received(Op& op) { wait(receives(), op); }
  void until(const char* what, const std::function<bool()>& condition);
  void progress();
  // Reads what is there into the Ops; false: nothing was. Of an operation that failed Op::error
  // tells; FiError, if no test has asked for it by tolerate().
  bool read(fid_cq* queue);
  void tolerate(bool errors) noexcept { tolerant_ = errors; }
  // Remote writes with data that no receive was posted for.
  [[nodiscard]] std::vector<fi_cq_tagged_entry>& strays() noexcept { return strays_; }
  // Each side gets the other's; a message unless there is a control socket.
  [[nodiscard]] Bytes exchange(std::span<const std::byte> mine);
  template <class T>
  [[nodiscard]] T exchange_value(const T& mine) {
    const Bytes theirs = exchange(std::as_bytes(std::span(&mine, 1)));
    require(theirs.size() == sizeof(T), "the peer's message has another size");
    T value{};
    std::memcpy(&value, theirs.data(), sizeof value);
    return value;
  }
  // Reads the peer's name and, from the second call on, that of a peer that comes after another.
  void find_peer();
  void sync() { static_cast<void>(exchange_value<char>('s')); }
  [[nodiscard]] Bytes name(fid_ep* ep) const;
  [[nodiscard]] fi_addr_t insert(const Bytes& address);

 private:
  void open_fabric();
  void open_domain();
  void open_endpoint();
  void connect();
  void accept();
  void post_note(Op& op);
  void send_note(std::span<const std::byte> data, Op& op);
  [[nodiscard]] Bytes note_of(const Op& op) const;
  void share_contexts(fid_ep* ep, const FiHandle<fid_ep>& srx) const;
  void* desc(fid_mr* mr) const noexcept { return mr != nullptr ? fi_mr_desc(mr) : nullptr; }
  void wait(fid_cq* queue, Op& op);
  void block(fid_cq* queue);

  const Run& run_;
  Setup setup_;
  InfoPtr info_;
  Bytes out_, in_, note_out_, note_in_;  // the last two: of exchange()
  FiHandle<fid_fabric> fabric_;
  FiHandle<fid_eq> eq_;
  FiHandle<fid_wait> wait_set_;
  FiHandle<fid_pep> passive_;
  FiHandle<fid_domain> domain_;
  FiHandle<fid_av> av_;
  FiHandle<fid_cq> sends_, receives_;
  FiHandle<fid_cntr> sent_, received_;
  FiHandle<fid_mr> out_mr_, in_mr_, note_out_mr_, note_in_mr_;
  FiHandle<fid_stx> stx_;
  FiHandle<fid_ep> srx_, srx_of_others_;
  FiHandle<fid_ep> ep_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::vector<fi_cq_tagged_entry> strays_;
  bool tolerant_ = false;
};

// Without a wait object; size 0: the provider's.
[[nodiscard]] FiHandle<fid_cq> open_tagged_queue(fid_domain* domain, std::size_t size = 0);

// Of a connection's life; the event must be this one. `queue`: where reading it is progress, too.
struct CmEvent {
  InfoPtr info;
  fid_t fid = nullptr;
  Bytes data;
};
[[nodiscard]] CmEvent next_event(fid_eq* eq, std::uint32_t event, fid_cq* queue = nullptr);

}  // namespace turnout::clients
