// SPDX-License-Identifier: BSD-3-Clause
// OTF2 archives, written with libotf2 as Score-P writes them.
#include "sim/formats/trace.h"

#include <gtest/gtest.h>
#include <otf2/otf2.h>

#include <filesystem>
#include <fstream>

#include "tests/support/scratch.h"

// libotf2 3.0 keeps what it allocated for an archive whose anchor it refuses.
extern "C" const char* __lsan_default_suppressions();
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libopen-trace-format2\n";
}

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

constexpr OTF2_FlushCallbacks kFlush = {
    [](void*, OTF2_FileType, OTF2_LocationRef, void*, bool) -> OTF2_FlushType {
      return OTF2_FLUSH;
    },
    [](void*, OTF2_FileType, OTF2_LocationRef) -> OTF2_TimeStamp { return 0; }};

struct Files {
  std::string anchor() const { return (folder / "traces.otf2").string(); }
  test::Folder scratch;
  std::filesystem::path folder = scratch.path() / "archive";
};

// Two ranks, locations 7 and 3; rank 0 sends to rank 1 and back without blocking.
void write_archive(const Files& files, std::uint32_t destination) {
  OTF2_Archive* const archive =
      OTF2_Archive_Open(files.folder.c_str(), "traces", OTF2_FILEMODE_WRITE, 1 << 20, 4 << 20,
                        OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
  ASSERT_NE(archive, nullptr);
  OTF2_Archive_SetFlushCallbacks(archive, &kFlush, nullptr);
  OTF2_Archive_SetSerialCollectiveCallbacks(archive);
  OTF2_Archive_OpenEvtFiles(archive);
  OTF2_EvtWriter* const first = OTF2_Archive_GetEvtWriter(archive, 7);
  OTF2_EvtWriter_Enter(first, nullptr, 100, 0);  // the program
  OTF2_EvtWriter_Enter(first, nullptr, 200, 1);  // MPI_Send
  OTF2_EvtWriter_MpiSend(first, nullptr, 210, destination, 0, 5, 64);
  OTF2_EvtWriter_Leave(first, nullptr, 300, 1);
  OTF2_EvtWriter_Enter(first, nullptr, 450, 1);
  OTF2_EvtWriter_MpiIrecvRequest(first, nullptr, 455, 11);
  OTF2_EvtWriter_MpiIrecvRequest(first, nullptr, 456, 12);  // gets nothing
  OTF2_EvtWriter_MpiIrecv(first, nullptr, 460, 1, 0, 6, 128, 11);
  OTF2_EvtWriter_MpiCollectiveEnd(first, nullptr, 470, OTF2_COLLECTIVE_OP_BARRIER, 0, 0, 0, 0);
  OTF2_EvtWriter_Leave(first, nullptr, 500, 1);
  OTF2_EvtWriter_Leave(first, nullptr, 600, 0);
  OTF2_EvtWriter* const second = OTF2_Archive_GetEvtWriter(archive, 3);
  OTF2_EvtWriter_MpiIsend(second, nullptr, 100, 0, 0, 6, 128, 1);
  OTF2_EvtWriter_MpiRecv(second, nullptr, 220, 0, 0, 5, 64);
  OTF2_EvtWriter_MpiIsendComplete(second, nullptr, 230, 1);
  OTF2_Archive_CloseEvtWriter(archive, first);
  OTF2_Archive_CloseEvtWriter(archive, second);
  OTF2_Archive_CloseEvtFiles(archive);

  OTF2_GlobalDefWriter* const definitions = OTF2_Archive_GetGlobalDefWriter(archive);
  OTF2_GlobalDefWriter_WriteClockProperties(definitions, 500'000'000, 0, 1000,
                                            OTF2_UNDEFINED_TIMESTAMP);
  OTF2_GlobalDefWriter_WriteString(definitions, 0, "");
  OTF2_GlobalDefWriter_WriteRegion(definitions, 0, 0, 0, 0, OTF2_REGION_ROLE_FUNCTION,
                                   OTF2_PARADIGM_USER, OTF2_REGION_FLAG_NONE, 0, 0, 0);
  OTF2_GlobalDefWriter_WriteRegion(definitions, 1, 0, 0, 0, OTF2_REGION_ROLE_POINT2POINT,
                                   OTF2_PARADIGM_MPI, OTF2_REGION_FLAG_NONE, 0, 0, 0);
  OTF2_GlobalDefWriter_WriteSystemTreeNode(definitions, 0, 0, 0, OTF2_UNDEFINED_SYSTEM_TREE_NODE);
  for (const OTF2_LocationRef location : {OTF2_LocationRef{7}, OTF2_LocationRef{3}}) {
    const auto group = static_cast<OTF2_LocationGroupRef>(location);
    OTF2_GlobalDefWriter_WriteLocationGroup(definitions, group, 0, OTF2_LOCATION_GROUP_TYPE_PROCESS,
                                            0, OTF2_UNDEFINED_LOCATION_GROUP);
    OTF2_GlobalDefWriter_WriteLocation(definitions, location, 0, OTF2_LOCATION_TYPE_CPU_THREAD, 11,
                                       group);
  }
  const std::uint64_t locations[] = {7, 3}, world[] = {0, 1};
  OTF2_GlobalDefWriter_WriteGroup(definitions, 0, 0, OTF2_GROUP_TYPE_COMM_LOCATIONS,
                                  OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE, 2, locations);
  OTF2_GlobalDefWriter_WriteGroup(definitions, 1, 0, OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI,
                                  OTF2_GROUP_FLAG_NONE, 2, world);
  OTF2_GlobalDefWriter_WriteComm(definitions, 0, 0, 1, OTF2_UNDEFINED_COMM, OTF2_COMM_FLAG_NONE);
  OTF2_Archive_CloseGlobalDefWriter(archive, definitions);
  ASSERT_EQ(OTF2_Archive_Close(archive), OTF2_SUCCESS);
}

TEST(Otf2, BecomesATrace) {
  const Files files;
  write_archive(files, 1);
  const Result<Trace> read = read_otf2_file(files.anchor());
  ASSERT_TRUE(read.ok()) << read.status().text();
  const Trace& trace = read.value();
  ASSERT_EQ(trace.ranks(), 2u);
  EXPECT_NE(trace.source.find("collective operations, 1 calls"), std::string::npos);
  const auto& first = trace.programs[0];
  ASSERT_EQ(first.size(), 6u);
  EXPECT_EQ(first[0].kind, Kind::compute);
  EXPECT_EQ(first[0].amount, 200u);  // 100 ticks of 2 ns
  EXPECT_EQ(first[1].kind, Kind::send);
  EXPECT_EQ(first[1].peer, 1u);
  EXPECT_EQ(first[1].tag, 5u);
  EXPECT_EQ(first[1].amount, 64u);
  EXPECT_EQ(first[2].kind, Kind::wait);
  EXPECT_EQ(first[3].amount, 300u);
  EXPECT_EQ(first[4].kind, Kind::receive);
  EXPECT_EQ(first[4].peer, 1u);
  EXPECT_EQ(first[4].amount, 128u);
  EXPECT_EQ(first[5].request, first[4].request);
  const auto& second = trace.programs[1];
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second[0].kind, Kind::send);
  EXPECT_EQ(second[3].request, second[0].request);
}

TEST(Otf2, WhatIsWrongIsRefused) {
  const Files files;
  EXPECT_NE(read_otf2_file(files.anchor()).status().text().find("not an OTF2 archive"),
            std::string::npos);
  write_archive(files, 2);
  const Result<Trace> read = read_otf2_file(files.anchor());
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.status().text().find("rank 0, event 1"), std::string::npos)
      << read.status().text();
  std::ofstream(files.anchor()) << "no anchor";
  EXPECT_FALSE(read_otf2_file(files.anchor()).ok());
}

}  // namespace
}  // namespace turnout::sim
