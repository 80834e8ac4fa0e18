// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/trace.h"

#ifdef TURNOUT_HAVE_OTF2

#include <fmt/format.h>
#include <otf2/otf2.h>

#include <algorithm>
#include <cstdarg>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace turnout::sim {
namespace {

// Our messages name the archive; libotf2's own go to standard error.
OTF2_ErrorCode keep_quiet(void*, const char*, std::uint64_t, const char*, OTF2_ErrorCode code,
                          const char*, va_list) {
  return code;
}

class Archive {
 public:
  Archive(const std::string& anchor, const TraceLimits& limits)
      : anchor_(anchor), limits_(limits) {}

  Result<Trace> read() {
    OTF2_Error_RegisterCallback(keep_quiet, nullptr);
    reader_.reset(OTF2_Reader_Open(anchor_.c_str()));
    if (!reader_ || OTF2_Reader_SetSerialCollectiveCallbacks(reader_.get()) != OTF2_SUCCESS) {
      return wrong("not an OTF2 archive");
    }
    if (!read_definitions()) return failure("reading its definitions failed");
    if (locations_.empty()) return wrong("no process in it uses MPI");
    if (locations_.size() > limits_.ranks) {
      return wrong(fmt::format("{} ranks: at most {}", locations_.size(), limits_.ranks));
    }
    trace_.programs.resize(locations_.size());
    for (std::uint32_t rank = 0; rank < locations_.size(); ++rank) {
      rank_of_.emplace(locations_[rank], rank);
      OTF2_Reader_SelectLocation(reader_.get(), locations_[rank]);
    }
    // Local definitions hold how local numbers map to global ones; an archive may have none.
    const bool local = OTF2_Reader_OpenDefFiles(reader_.get()) == OTF2_SUCCESS;
    if (OTF2_Reader_OpenEvtFiles(reader_.get()) != OTF2_SUCCESS) {
      return wrong("opening its events failed");
    }
    bool read = true;
    for (rank_ = 0; read && rank_ < locations_.size(); ++rank_) read = read_rank(local);
    if (local) OTF2_Reader_CloseDefFiles(reader_.get());
    OTF2_Reader_CloseEvtFiles(reader_.get());
    if (!read) return failure(fmt::format("reading rank {} failed", rank_ - 1));
    trace_.source =
        collectives_ == 0
            ? std::string("imported from OTF2")
            : fmt::format("imported from OTF2 without its collective operations, {} calls",
                          collectives_);
    if (Status s = check_trace(trace_, limits_); !s.ok()) return wrong(s.text());
    return std::move(trace_);
  }

 private:
  using Kind = TraceEvent::Kind;
  struct CloseReader {
    void operator()(OTF2_Reader* reader) const { OTF2_Reader_Close(reader); }
  };
  struct Group {
    std::vector<std::uint64_t> members;
    bool global = false;  // members are locations, else places in the list of MPI's locations
  };

  Status wrong(std::string_view what) const {
    return {Code::invalid, fmt::format("{}: {}", anchor_, what)};
  }
  Status failure(std::string_view what) const { return status_.ok() ? wrong(what) : status_; }
  OTF2_CallbackCode fail(std::string_view what) {
    status_ =
        wrong(fmt::format("rank {}, event {}: {}", rank_, trace_.programs[rank_].size(), what));
    return OTF2_CALLBACK_INTERRUPT;
  }
  static Archive& of(void* self) { return *static_cast<Archive*>(self); }

  bool read_definitions() {
    OTF2_GlobalDefReader* const definitions = OTF2_Reader_GetGlobalDefReader(reader_.get());
    OTF2_GlobalDefReaderCallbacks* const calls = OTF2_GlobalDefReaderCallbacks_New();
    OTF2_GlobalDefReaderCallbacks_SetClockPropertiesCallback(
        calls,
        [](void* self, std::uint64_t resolution, std::uint64_t, std::uint64_t, std::uint64_t) {
          of(self).ticks_per_second_ = std::max<std::uint64_t>(resolution, 1);
          return OTF2_CALLBACK_SUCCESS;
        });
    OTF2_GlobalDefReaderCallbacks_SetGroupCallback(calls, [](void* self, OTF2_GroupRef group,
                                                             OTF2_StringRef, OTF2_GroupType type,
                                                             OTF2_Paradigm paradigm,
                                                             OTF2_GroupFlag flags,
                                                             std::uint32_t count,
                                                             const std::uint64_t* members) {
      if (paradigm != OTF2_PARADIGM_MPI) return OTF2_CALLBACK_SUCCESS;
      std::vector<std::uint64_t> list(members, members + count);
      if (type == OTF2_GROUP_TYPE_COMM_LOCATIONS) of(self).locations_ = list;
      of(self).groups_[group] = {std::move(list), (flags & OTF2_GROUP_FLAG_GLOBAL_MEMBERS) != 0};
      return OTF2_CALLBACK_SUCCESS;
    });
    OTF2_GlobalDefReaderCallbacks_SetCommCallback(
        calls, [](void* self, OTF2_CommRef comm, OTF2_StringRef, OTF2_GroupRef group, OTF2_CommRef,
                  OTF2_CommFlag) {
          of(self).communicators_[comm] = group;
          return OTF2_CALLBACK_SUCCESS;
        });
    OTF2_GlobalDefReaderCallbacks_SetRegionCallback(
        calls, [](void* self, OTF2_RegionRef region, OTF2_StringRef, OTF2_StringRef, OTF2_StringRef,
                  OTF2_RegionRole, OTF2_Paradigm paradigm, OTF2_RegionFlag, OTF2_StringRef,
                  std::uint32_t, std::uint32_t) {
          if (paradigm == OTF2_PARADIGM_MPI) of(self).mpi_regions_.insert(region);
          return OTF2_CALLBACK_SUCCESS;
        });
    OTF2_Reader_RegisterGlobalDefCallbacks(reader_.get(), definitions, calls, this);
    OTF2_GlobalDefReaderCallbacks_Delete(calls);
    std::uint64_t count = 0;
    return OTF2_Reader_ReadAllGlobalDefinitions(reader_.get(), definitions, &count) == OTF2_SUCCESS;
  }

  bool read_rank(bool local) {
    const OTF2_LocationRef location = locations_[rank_];
    std::uint64_t count = 0;
    if (local) {
      if (OTF2_DefReader* const maps = OTF2_Reader_GetDefReader(reader_.get(), location)) {
        OTF2_Reader_ReadAllLocalDefinitions(reader_.get(), maps, &count);
        OTF2_Reader_CloseDefReader(reader_.get(), maps);
      }
    }
    OTF2_EvtReader* const events = OTF2_Reader_GetEvtReader(reader_.get(), location);
    if (events == nullptr) return false;
    requests_.clear();
    posted_.clear();
    inside_mpi_ = 0;
    left_ = 0;
    has_left_ = false;
    OTF2_EvtReaderCallbacks* const calls = OTF2_EvtReaderCallbacks_New();
    set_calls(calls);
    OTF2_Reader_RegisterEvtCallbacks(reader_.get(), events, calls, this);
    OTF2_EvtReaderCallbacks_Delete(calls);
    const bool read = OTF2_Reader_ReadAllLocalEvents(reader_.get(), events, &count) == OTF2_SUCCESS;
    OTF2_Reader_CloseEvtReader(reader_.get(), events);
    if (!read || !status_.ok()) return false;
    drop_unfinished();
    return true;
  }

  // What libotf2 calls for an event: the method, with what the event has behind its attributes.
  template <auto kMethod, class... Values>
  static OTF2_CallbackCode call(OTF2_LocationRef, OTF2_TimeStamp time, std::uint64_t, void* self,
                                OTF2_AttributeList*, Values... values) {
    of(self).time_ = time;
    return (of(self).*kMethod)(values...);
  }

  static void set_calls(OTF2_EvtReaderCallbacks* calls) {
    OTF2_EvtReaderCallbacks_SetEnterCallback(calls, call<&Archive::enter>);
    OTF2_EvtReaderCallbacks_SetLeaveCallback(calls, call<&Archive::leave>);
    OTF2_EvtReaderCallbacks_SetMpiCollectiveEndCallback(calls, call<&Archive::collective>);
    OTF2_EvtReaderCallbacks_SetMpiSendCallback(calls, call<&Archive::blocking<Kind::send>>);
    OTF2_EvtReaderCallbacks_SetMpiRecvCallback(calls, call<&Archive::blocking<Kind::receive>>);
    OTF2_EvtReaderCallbacks_SetMpiIsendCallback(calls, call<&Archive::send_posted>);
    OTF2_EvtReaderCallbacks_SetMpiIsendCompleteCallback(calls, call<&Archive::send_ended>);
    OTF2_EvtReaderCallbacks_SetMpiIrecvRequestCallback(calls, call<&Archive::receive_posted>);
    OTF2_EvtReaderCallbacks_SetMpiIrecvCallback(calls, call<&Archive::receive_ended>);
  }

  std::uint64_t nanoseconds(std::uint64_t ticks) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(
        std::min<Wide>(Wide{ticks} * 1'000'000'000 / ticks_per_second_, kMostTraceCompute));
  }

  OTF2_CallbackCode enter(OTF2_RegionRef region) {
    // Computing before the first call of MPI counts from the first region.
    if (!has_left_) left_ = time_;
    has_left_ = true;
    if (!mpi_regions_.contains(region) || inside_mpi_++ != 0) return OTF2_CALLBACK_SUCCESS;
    const std::uint64_t computed = time_ > left_ ? nanoseconds(time_ - left_) : 0;
    if (computed == 0) return OTF2_CALLBACK_SUCCESS;
    return add({.amount = computed, .kind = Kind::compute});
  }
  OTF2_CallbackCode leave(OTF2_RegionRef region) {
    if (mpi_regions_.contains(region) && inside_mpi_ > 0 && --inside_mpi_ == 0) left_ = time_;
    return OTF2_CALLBACK_SUCCESS;
  }
  OTF2_CallbackCode collective(OTF2_CollectiveOp, OTF2_CommRef, std::uint32_t, std::uint64_t,
                               std::uint64_t) {
    ++collectives_;
    return OTF2_CALLBACK_SUCCESS;
  }

  OTF2_CallbackCode add(const TraceEvent& event) {
    if (++events_ > limits_.events) return fail(fmt::format("more than {}", limits_.events));
    trace_.programs[rank_].push_back(event);
    return OTF2_CALLBACK_SUCCESS;
  }
  OTF2_CallbackCode add_wait(std::uint32_t request) {
    return add({.request = request, .kind = Kind::wait});
  }

  // The rank that `peer` of a communicator is; false when there is none.
  bool find_rank(std::uint32_t peer, OTF2_CommRef comm, std::uint32_t* rank) const {
    const auto group = communicators_.find(comm);
    if (group == communicators_.end()) return false;
    const auto members = groups_.find(group->second);
    if (members == groups_.end() || peer >= members->second.members.size()) return false;
    const std::uint64_t member = members->second.members[peer];
    if (!members->second.global) {
      *rank = static_cast<std::uint32_t>(member);
      return member < locations_.size();
    }
    const auto found = rank_of_.find(member);
    if (found == rank_of_.end()) return false;
    *rank = found->second;
    return true;
  }

  bool fill(TraceEvent* event, std::uint32_t peer, OTF2_CommRef comm, std::uint32_t tag,
            std::uint64_t bytes) {
    event->tag = tag;
    event->amount = bytes;
    event->communicator = comm;
    return bytes <= kMostTraceBytes && find_rank(peer, comm, &event->peer);
  }

  // Its request.
  std::optional<std::uint32_t> add_message(Kind kind, std::uint32_t peer, OTF2_CommRef comm,
                                           std::uint32_t tag, std::uint64_t bytes) {
    TraceEvent event{.request = next_request_++, .kind = kind};
    if (!fill(&event, peer, comm, tag, bytes)) {
      (void)fail("peer or length is out of range");
      return std::nullopt;
    }
    if (add(event) != OTF2_CALLBACK_SUCCESS) return std::nullopt;
    return event.request;
  }
  template <Kind kKind>
  OTF2_CallbackCode blocking(std::uint32_t peer, OTF2_CommRef comm, std::uint32_t tag,
                             std::uint64_t bytes) {
    const auto request = add_message(kKind, peer, comm, tag, bytes);
    return request ? add_wait(*request) : OTF2_CALLBACK_INTERRUPT;
  }
  OTF2_CallbackCode send_posted(std::uint32_t peer, OTF2_CommRef comm, std::uint32_t tag,
                                std::uint64_t bytes, std::uint64_t id) {
    const auto request = add_message(Kind::send, peer, comm, tag, bytes);
    if (!request) return OTF2_CALLBACK_INTERRUPT;
    if (!requests_.emplace(id, *request).second) return fail("the request is already pending");
    return OTF2_CALLBACK_SUCCESS;
  }
  OTF2_CallbackCode send_ended(std::uint64_t id) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return fail("end of a send that was not started");
    const std::uint32_t request = found->second;
    requests_.erase(found);
    return add_wait(request);
  }
  OTF2_CallbackCode receive_posted(std::uint64_t id) {
    const TraceEvent event{.request = next_request_++, .kind = Kind::receive};
    if (!posted_.emplace(id, trace_.programs[rank_].size()).second) {
      return fail("the request is already pending");
    }
    return add(event);
  }
  OTF2_CallbackCode receive_ended(std::uint32_t peer, OTF2_CommRef comm, std::uint32_t tag,
                                  std::uint64_t bytes, std::uint64_t id) {
    const auto found = posted_.find(id);
    if (found == posted_.end()) return fail("end of a receive that was not started");
    TraceEvent& event = trace_.programs[rank_][found->second];
    if (!fill(&event, peer, comm, tag, bytes)) return fail("peer or length is out of range");
    const std::uint32_t request = event.request;
    posted_.erase(found);
    return add_wait(request);
  }

  // Receives that were cancelled or got nothing name no peer.
  void drop_unfinished() {
    std::unordered_set<std::size_t> unfinished;
    for (const auto& [id, index] : posted_) unfinished.insert(index);
    std::size_t index = 0;
    std::erase_if(trace_.programs[rank_],
                  [&](const TraceEvent&) { return unfinished.contains(index++); });
  }

  const std::string& anchor_;
  const TraceLimits& limits_;
  std::unique_ptr<OTF2_Reader, CloseReader> reader_;
  Status status_;
  Trace trace_;
  std::uint64_t ticks_per_second_ = 1;
  std::vector<std::uint64_t> locations_;  // by rank
  std::unordered_map<std::uint64_t, std::uint32_t> rank_of_;
  std::unordered_map<OTF2_GroupRef, Group> groups_;
  std::unordered_map<OTF2_CommRef, OTF2_GroupRef> communicators_;
  std::unordered_set<OTF2_RegionRef> mpi_regions_;
  std::uint64_t collectives_ = 0, events_ = 0;
  // Of the rank that is read:
  std::uint32_t rank_ = 0;
  std::uint32_t next_request_ = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> requests_;  // sends
  std::unordered_map<std::uint64_t, std::size_t> posted_;      // receives, to their event
  std::uint32_t inside_mpi_ = 0;
  std::uint64_t time_ = 0, left_ = 0;  // of the event, and when MPI was left
  bool has_left_ = false;
};

}  // namespace

Result<Trace> read_otf2_file(const std::string& anchor, const TraceLimits& limits) {
  return Archive(anchor, limits).read();
}

}  // namespace turnout::sim

#else

namespace turnout::sim {

Result<Trace> read_otf2_file(const std::string& anchor, const TraceLimits&) {
  return Status{
      Code::unsupported,
      anchor + ": this build of turnout cannot read OTF2; install libotf2-trace-dev and rebuild"};
}

}  // namespace turnout::sim

#endif
