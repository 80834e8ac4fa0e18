// SPDX-License-Identifier: BSD-3-Clause
#include "core/recording/recording_endpoint.h"

#include <pthread.h>

#include <algorithm>
#include <concepts>
#include <ctime>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "core/recording/computed_time.h"
#include "core/recording/recording_file.h"

namespace turnout {

namespace {

std::uint64_t length_of(std::span<const iovec> pieces) {
  std::uint64_t length = 0;
  for (const iovec& piece : pieces) length += piece.iov_len;
  return length;
}

// Of an operation, handed on.
struct End {
  const CompletionQueue* queue;  // null: told already
  std::uint32_t request;
  bool receives, multi, tagged;
  PeerId source;
  std::uint64_t bytes, tag;
};

// Operations end in calls that start others, too. They are written where the program can have
// learnt of them, for it waits there; what it has not read is the newest of a queue.
class Ends {
 public:
  void add(const End& end) { list_.push_back(end); }
  template <std::invocable<const End&> Write>
  void write_told(Write&& write) {
    std::vector<std::pair<const CompletionQueue*, std::size_t>> unread;
    std::vector<bool> told(list_.size());
    for (std::size_t i = list_.size(); i-- > 0;) {
      const CompletionQueue* const queue = list_[i].queue;
      auto left = std::ranges::find(unread, queue, [](const auto& one) { return one.first; });
      if (left == unread.end()) {
        left = unread.insert(left, {queue, queue == nullptr ? 0 : queue->size()});
      }
      told[i] = left->second == 0;
      if (!told[i]) --left->second;
    }
    std::vector<End> rest;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (told[i]) {
        write(list_[i]);
      } else {
        rest.push_back(list_[i]);
      }
    }
    list_ = std::move(rest);
  }
  template <std::invocable<const End&> Write>
  void write_all(Write&& write) {
    for (const End& end : list_) write(end);
    list_.clear();
  }

 private:
  std::vector<End> list_;  // not yet written, in their order
};

class RecordingEndpoint final : public Endpoint {
 public:
  RecordingEndpoint(std::unique_ptr<Endpoint> endpoint, const std::string& setting, Clock& clock,
                    bool in_virtual_time)
      : endpoint_(std::move(endpoint)),
        file_(setting, endpoint_->address()),
        clock_(clock),
        born_(clock.now()),
        virtual_(in_virtual_time) {}

  ~RecordingEndpoint() override {
    hand_on();
    ends_.write_all([this](const End& end) { write(end); });
    endpoint_.reset();
    file_.close();
  }

  const Address& address() const noexcept override { return endpoint_->address(); }
  Result<PeerId> peer(const Address& address) override { return endpoint_->peer(address); }
  Address peer_address(PeerId peer) const noexcept override {
    return endpoint_->peer_address(peer);
  }
  std::uint64_t endpoint_id(PeerId peer) const noexcept override {
    return endpoint_->endpoint_id(peer);
  }
  void expect_peers(std::size_t count, std::span<const Address> learned) override {
    endpoint_->expect_peers(count, learned);
  }
  Status send(const SendRequest& request) override {
    return start(request, &Endpoint::send, [&](Nanoseconds at, std::uint32_t number) {
      file_.send(at, number, request.peer, length_of(request.data),
                 request.tagged ? request.tag : 0, request.tagged);
    });
  }
  Status recv(const RecvRequest& request) override {
    Visit visit(*this);
    Operation& operation = begin(&operations_, request.report);
    operation.receives = true;
    operation.multi = request.multi;
    operation.tagged = request.tagged;
    RecvRequest own = request;
    own.report = {&ended_, &ended_, nullptr, &operation};
    if (Status status = endpoint_->recv(own); !status.ok()) {
      operations_.erase(operation.self);
      return status;
    }
    // A buffer for many messages is told with each of them.
    if (!request.multi) {
      operation.request = next_request();
      visit.event();
      if (request.peer != kAnyPeer) {
        file_.on_wireup_request(request.peer, endpoint_->endpoint_id(request.peer));
      }
      file_.receive(age(), operation.request, request.peer, length_of(request.buffer),
                    request.tagged ? request.tag : 0, request.tagged && request.ignore != 0,
                    request.tagged);
    }
    hand_on();
    return {};
  }
  Status peek(const PeekRequest& request) override {
    const Visit visit(*this, ComputedTime::Call::polls);
    Status status = endpoint_->peek(request);
    hand_on();
    return status;
  }
  Status recv_claimed(const RecvRequest& request) override {
    return receive_arrived(request,
                           [&](const RecvRequest& own) { return endpoint_->recv_claimed(own); });
  }
  std::optional<TakenMessage> take_message() override {
    const Visit visit(*this, ComputedTime::Call::polls);
    return endpoint_->take_message();
  }
  Status recv_taken(void* handle, const RecvRequest& request) override {
    return receive_arrived(
        request, [&](const RecvRequest& own) { return endpoint_->recv_taken(handle, own); });
  }
  void discard_taken(void* handle) override {
    const Visit visit(*this);
    endpoint_->discard_taken(handle);
  }
  std::vector<TakenMessage> watch_unexpected(UnexpectedWatcher* watcher) override {
    return endpoint_->watch_unexpected(watcher);
  }
  Status discard_claimed(const Report& report) override {
    const Visit visit(*this);
    Status status = endpoint_->discard_claimed(report);
    hand_on();
    return status;
  }
  Status rma(const RmaRequest& request) override {
    return start(request, &Endpoint::rma, [&](Nanoseconds at, std::uint32_t number) {
      if (request.has_remote_data || request.has_event)
        announcement_errors_ = request.report.errors;
      file_.access(at, number, request.write, request.peer, request.length);
    });
  }
  // As what its bytes would be by RDMA.
  Status atomic(const AtomicRequest& request) override {
    return start(request, &Endpoint::atomic, [&](Nanoseconds at, std::uint32_t number) {
      file_.access(at, number, request.form == AtomicForm::update, request.peer,
                   request.count * size_of(request.type));
    });
  }
  bool cancel(void* context) override {
    const Visit visit(*this);
    bool found = false;
    for (auto at = operations_.rbegin(); !found && at != operations_.rend(); ++at) {
      if (at->report.context == context) found = endpoint_->cancel(&*at);
    }
    hand_on();
    return found;
  }
  void set_remote_access(const RemoteAccess& access) override {
    endpoint_->set_remote_access(access);
  }
  MemoryDomain& memory() noexcept override { return endpoint_->memory(); }
  void forget_memory(const void* address, std::size_t length) override {
    endpoint_->forget_memory(address, length);
  }
  bool close() override { return endpoint_->close(); }
  void abandon() noexcept override { endpoint_->abandon(); }
  Nanoseconds next_deadline() const noexcept override { return endpoint_->next_deadline(); }
  bool progress() override {
    const Visit visit(*this, ComputedTime::Call::polls);
    const bool moved = endpoint_->progress();
    hand_on();
    return moved;
  }
  EndpointReport report() const override { return endpoint_->report(); }
  std::size_t inject_limit() const noexcept override { return endpoint_->inject_limit(); }
  std::size_t eager_limit() const noexcept override { return endpoint_->eager_limit(); }
  std::size_t max_message() const noexcept override { return endpoint_->max_message(); }

 private:
  struct Operation {
    Report report;  // of the layer above
    std::uint32_t request = 0;
    bool receives = false;
    bool multi = false;
    bool tagged = false;
    std::list<Operation>::iterator self;

    [[nodiscard]] End end(const Completion& completion, std::uint64_t bytes) const noexcept {
      return {.queue = report.queue,
              .request = request,
              .receives = receives,
              .multi = multi,
              .tagged = tagged,
              .source = completion.source,
              .bytes = bytes,
              .tag = tagged ? completion.tag : 0};
    }
  };

  // A call from the layer above: what lies between two is the program's.
  class Visit {
   public:
    explicit Visit(RecordingEndpoint& endpoint, ComputedTime::Call call = ComputedTime::Call::acts)
        : endpoint_(endpoint) {
      endpoint.ends_.write_told([&](const End& end) { endpoint.write(end); });
      endpoint.computed_.begin(endpoint.time(), endpoint.clock_.now(), self(), call);
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() { endpoint_.computed_.end(endpoint_.time(), endpoint_.clock_.now(), self()); }
    // An event follows: what was computed before it comes first.
    void event() { endpoint_.write_computed(); }

   private:
    static std::uint64_t self() noexcept { return static_cast<std::uint64_t>(pthread_self()); }
    RecordingEndpoint& endpoint_;
  };

  // Of what the program computes.
  [[nodiscard]] Nanoseconds time() const noexcept {
    if (virtual_) return clock_.now();
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return Nanoseconds{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
  [[nodiscard]] Nanoseconds age() noexcept { return clock_.now() - born_; }
  void write_computed() {
    if (const Nanoseconds time = computed_.take(); time > 0) file_.compute(age(), time);
  }
  static Operation& begin(std::list<Operation>* operations, const Report& report) {
    Operation& operation = operations->emplace_back();
    operation.report = report;
    operation.self = std::prev(operations->end());
    return operation;
  }
  // Hands a send or a one-sided operation on, to be told of its end; `write` puts it into the file.
  template <class Request>
  [[nodiscard]] Status start(const Request& request, Status (Endpoint::*call)(const Request&),
                             const std::function<void(Nanoseconds, std::uint32_t)>& write) {
    Visit visit(*this);
    Operation& operation = begin(&operations_, request.report);
    Request own = request;
    // A success that nobody is told of has no entry; it has ended by now.
    const bool silent = request.inject && request.report.queue == nullptr;
    if (!silent) own.report = {&ended_, &ended_, nullptr, &operation};
    if (Status status = (*endpoint_.*call)(own); !status.ok()) {
      operations_.erase(operation.self);
      return status;
    }
    operation.request = next_request();
    visit.event();
    file_.on_wireup_request(request.peer, endpoint_->endpoint_id(request.peer));
    const Nanoseconds at = age();
    write(at, operation.request);
    if (silent) {
      file_.ended(at, operation.request);
      operations_.erase(operation.self);
    }
    hand_on();
    return {};
  }
  // Hands on what ended in `queue`; `of` finds the operation of an entry, in `operations`.
  template <class Of>
  void drain(CompletionQueue& queue, std::list<Operation>& operations, Of&& of) {
    const auto done = [](const Operation& operation, const Completion& completion) {
      return !operation.multi || (completion.flags & kMultiRecvDone) != 0;
    };
    while (queue.size() != 0) {
      Completion completion = queue.front();
      queue.pop();
      Operation& operation = of(completion.context);
      hand_on(operation, completion);
      if (done(operation, completion)) operations.erase(operation.self);
    }
    while (queue.has_error()) {
      ErrorCompletion completion = queue.pop_error();
      if (completion.context == nullptr && &queue == &ended_) {
        // Of no operation: the write itself has ended before.
        if (announcement_errors_ != nullptr)
          announcement_errors_->push_error(std::move(completion));
        continue;
      }
      Operation& operation = of(completion.context);
      const bool last = done(operation, completion);
      hand_on_error(operation, completion);
      if (last) operations.erase(operation.self);
    }
  }
  // One that is here already: `receive` starts it.
  template <class Receive>
  Status receive_arrived(const RecvRequest& request, Receive&& receive) {
    Visit visit(*this);
    RecvRequest own = request;
    own.report.queue = own.report.errors = &claimed_ended_;
    own.report.counter = nullptr;
    Operation& operation = begin(&claimed_, request.report);
    operation.receives = true;
    operation.tagged = request.tagged;
    if (Status status = receive(own); !status.ok()) {
      claimed_.erase(operation.self);
      return status;
    }
    operation.request = next_request();
    visit.event();
    file_.receive(age(), operation.request, kAnyPeer, length_of(request.buffer), 0, request.tagged,
                  request.tagged);
    hand_on();
    return {};
  }
  void hand_on() {
    drain(ended_, operations_,
          [](void* context) -> Operation& { return *static_cast<Operation*>(context); });
    drain(claimed_ended_, claimed_, [this](void* context) -> Operation& {
      return *std::ranges::find(claimed_, context,
                                [](const Operation& o) { return o.report.context; });
    });
  }
  void hand_on(Operation& operation, Completion& completion) {
    ends_.add(operation.end(completion, completion.length));
    completion.context = operation.report.context;
    if (operation.report.queue != nullptr) operation.report.queue->push(completion);
    if (operation.report.counter != nullptr) {
      operation.report.counter->value.fetch_add(1, std::memory_order_release);
    }
  }
  void hand_on_error(Operation& operation, ErrorCompletion& completion) {
    // A message that was too long has arrived all the same: its sender's send has to match
    // something.
    if (operation.receives && completion.status.code() == Code::truncated &&
        completion.source != kAnyPeer) {
      End end = operation.end(completion, completion.length + completion.overflow);
      end.queue = nullptr;
      ends_.add(end);
    } else if (!operation.multi) {
      file_.dropped(age(), operation.request);
    }
    completion.context = operation.report.context;
    CompletionQueue* const queue =
        operation.report.errors != nullptr ? operation.report.errors : operation.report.queue;
    if (queue != nullptr) queue->push_error(std::move(completion));
    if (operation.report.counter != nullptr) {
      operation.report.counter->errors.fetch_add(1, std::memory_order_release);
    }
  }
  void write(const End& end) {
    write_computed();
    const Nanoseconds at = age();
    if (!end.receives) {
      file_.ended(at, end.request);
      return;
    }
    std::uint32_t request = end.request;
    file_.on_wireup_request(end.source, endpoint_->endpoint_id(end.source));
    if (end.multi) {
      request = next_request();
      file_.receive(at, request, kAnyPeer, end.bytes, end.tag, false, end.tagged);
    }
    file_.matched(at, request, end.source, end.bytes, end.tag);
  }
  [[nodiscard]] std::uint32_t next_request() noexcept {
    constexpr std::uint32_t kMost = 0xfffffffe;  // of a trace
    last_request_ = last_request_ == kMost ? 0 : last_request_ + 1;
    return last_request_;
  }

  std::unique_ptr<Endpoint> endpoint_;
  RecordingFile file_;
  Clock& clock_;
  Nanoseconds born_;
  bool virtual_;
  CompletionQueue ended_;
  CompletionQueue* announcement_errors_ = nullptr;  // of what RMA tells its target
  CompletionQueue claimed_ended_;    // contexts are the layer above's: they name what it claimed
  std::list<Operation> operations_;  // newest last
  std::list<Operation> claimed_;     // receives of claimed messages
  Ends ends_;
  std::uint32_t last_request_ = 0;
  ComputedTime computed_;
};

}  // namespace

std::unique_ptr<Endpoint> make_recording_endpoint(std::unique_ptr<Endpoint> endpoint,
                                                  const std::string& setting, Clock& clock,
                                                  bool in_virtual_time) {
  return std::make_unique<RecordingEndpoint>(std::move(endpoint), setting, clock, in_virtual_time);
}

}  // namespace turnout
