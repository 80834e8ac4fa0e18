// SPDX-License-Identifier: BSD-3-Clause
// What `turnout run` makes of what launchers say of themselves (texts as they print them), and of
// their commands.
#include "cli/mpi_launch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace turnout::cli {
namespace {

TEST(MpiLaunch, KnowsLaunchersByTheirVersions) {
  const std::tuple<const char*, Mpi, const char*> cases[] = {
      {"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
       Mpi::open_mpi_4, "Open MPI 4.1.4"},
      {"mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
       Mpi::open_mpi_4, "Open MPI 4.1.4"},
      {"mpirun (Open MPI) 5.0.8\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
       Mpi::open_mpi_5, "Open MPI 5.0.8"},
      {"prterun (PRRTE) 3.0.11\n", Mpi::open_mpi_5, "Open MPI 5 (PRRTE 3.0.11)"},
      {"HYDRA build details:\n    Version:                                 4.0.2\n"
       "    Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n",
       Mpi::mpich, "MPICH 4.0.2"},
      {"Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515 (id: df741590)\n"
       "Copyright 2003-2024, Intel Corporation.\n",
       Mpi::intel_mpi, "Intel MPI 2021.13"},
      {"slurm 22.05.8\n", Mpi::slurm, "Slurm 22.05.8"},
      {"sh: 1: mpirum: not found\n", Mpi::unknown, ""},
      {"", Mpi::unknown, ""}};
  for (const auto& [text, mpi, name] : cases) {
    const MpiVersion version = mpi_of(text);
    EXPECT_EQ(version.mpi, mpi) << text;
    EXPECT_EQ(version.name, name);
  }
}

LaunchFacts facts_of(Mpi mpi, std::vector<std::string> command) {
  LaunchFacts facts;
  facts.command = std::move(command);
  facts.version = {mpi, "an MPI"};
  facts.provider_folder = "/opt/turnout/lib/libfabric";
  facts.processors = 4;
  return facts;
}

std::string value_of(const Launch& launch, const std::string& name) {
  const auto found = std::find_if(launch.variables.begin(), launch.variables.end(),
                                  [&](const auto& one) { return one.first == name; });
  return found == launch.variables.end() ? "(not set)" : found->second;
}

TEST(MpiLaunch, RecordsOverWhatTheMpiTakes) {
  LaunchFacts facts = facts_of(Mpi::open_mpi_4, {"mpirun", "-n", "4", "./ring"});
  facts.environment["LD_PRELOAD"] = "libother.so";
  Launch launch = plan_recording(facts, "/lib/librecord.so", "/tmp/r");
  EXPECT_EQ(value_of(launch, "LD_PRELOAD"), "/lib/librecord.so:libother.so");
  EXPECT_EQ(value_of(launch, "LIBTURNOUT_RECORD"), "/tmp/r/");
  EXPECT_EQ(value_of(launch, "OMPI_MCA_pml"), "cm");
  EXPECT_EQ(value_of(launch, "FI_PROVIDER_PATH"), "(not set)");
  EXPECT_EQ(launch.command, facts.command);
  facts.infiniband = true;  // Open MPI takes UCX, or libfabric, by itself
  EXPECT_EQ(value_of(plan_recording(facts, "l", "f"), "OMPI_MCA_pml"), "(not set)");
  facts.command = {"mpirun", "--host", "a,b", "./ring"};
  launch = plan_recording(facts, "l", "f");
  EXPECT_EQ(launch.command,
            (std::vector<std::string>{"mpirun", "-x", "LD_PRELOAD", "-x", "LIBTURNOUT_RECORD",
                                      "--host", "a,b", "./ring"}));
  facts = facts_of(Mpi::mpich, {"mpiexec", "-n", "4", "./ring"});
  EXPECT_EQ(value_of(plan_recording(facts, "l", "f"), "MPIR_CVAR_NOLOCAL"), "1");
  facts.environment["MPIR_CVAR_NOLOCAL"] = "0";
  EXPECT_EQ(value_of(plan_recording(facts, "l", "f"), "MPIR_CVAR_NOLOCAL"), "(not set)");
}

TEST(MpiLaunch, SetsWhatEachMpiNeeds) {
  const Launch open_mpi = plan_launch(facts_of(Mpi::open_mpi_4, {"mpirun", "-n", "4", "./ring"}));
  EXPECT_EQ(open_mpi.ranks, 4u);
  EXPECT_TRUE(open_mpi.one_host);
  EXPECT_EQ(value_of(open_mpi, "FI_PROVIDER_PATH"), "/opt/turnout/lib/libfabric");
  EXPECT_EQ(value_of(open_mpi, "OMPI_MCA_pml"), "cm");
  EXPECT_EQ(value_of(open_mpi, "OMPI_MCA_mtl_ofi_provider_include"), "turnout");
  EXPECT_EQ(value_of(open_mpi, "OMPI_MCA_rmaps_base_oversubscribe"), "(not set)");
  EXPECT_EQ(value_of(open_mpi, "FI_PROVIDER"), "(not set)");
  EXPECT_EQ(open_mpi.command, (std::vector<std::string>{"mpirun", "-n", "4", "./ring"}));

  const Launch mpich = plan_launch(facts_of(Mpi::mpich, {"mpiexec", "-np", "2", "./ring"}));
  EXPECT_EQ(value_of(mpich, "MPIR_CVAR_CH4_NETMOD"), "ofi");
  EXPECT_EQ(value_of(mpich, "FI_PROVIDER"), "turnout");
  EXPECT_EQ(value_of(mpich, "MPIR_CVAR_NOLOCAL"), "1");
  EXPECT_EQ(value_of(mpich, "OMPI_MCA_pml"), "(not set)");

  const Launch intel = plan_launch(facts_of(Mpi::intel_mpi, {"mpirun", "-n", "2", "./ring"}));
  EXPECT_EQ(value_of(intel, "I_MPI_FABRICS"), "ofi");
  EXPECT_EQ(value_of(intel, "I_MPI_OFI_LIBRARY_INTERNAL"), "0");

  const Launch slurm = plan_launch(facts_of(Mpi::slurm, {"srun", "--ntasks=64", "-N", "2", "./a"}));
  EXPECT_EQ(slurm.ranks, 64u);
  EXPECT_FALSE(slurm.one_host);
  EXPECT_EQ(value_of(slurm, "MPIR_CVAR_NOLOCAL"), "(not set)");
  EXPECT_EQ(value_of(slurm, "OMPI_MCA_pml"), "cm");
  EXPECT_EQ(value_of(slurm, "FI_PROVIDER"), "turnout");
}

TEST(MpiLaunch, LetsMoreRanksThanProcessorsRun) {
  const Launch open_mpi = plan_launch(facts_of(Mpi::open_mpi_4, {"mpirun", "-n", "5", "./ring"}));
  EXPECT_EQ(value_of(open_mpi, "OMPI_MCA_rmaps_base_oversubscribe"), "1");
  EXPECT_EQ(value_of(open_mpi, "OMPI_MCA_mpi_yield_when_idle"), "1");
  const Launch mpich = plan_launch(facts_of(Mpi::mpich, {"mpiexec", "-n", "5", "./ring"}));
  EXPECT_EQ(value_of(mpich, "MPIR_CVAR_CH4_PROGRESS_THROTTLE"), "1");
}

TEST(MpiLaunch, SetsTheVariableOfIntelMpisOwnLibfabricOnlyWhereThereIsOne) {
  for (const auto& [name, value] : {std::pair{"Intel MPI 2021.13", "0"},
                                    {"Intel MPI 2021.18.1", "0"},
                                    {"Intel MPI 2021.19.0", "(not set)"},
                                    {"Intel MPI 2022.0", "(not set)"},
                                    {"Intel MPI ", "0"}}) {
    LaunchFacts facts = facts_of(Mpi::intel_mpi, {"mpirun", "-n", "2", "./ring"});
    facts.version.name = name;
    EXPECT_EQ(value_of(plan_launch(facts), "I_MPI_OFI_LIBRARY_INTERNAL"), value) << name;
  }
}

TEST(MpiLaunch, LetsRootRunOpenMpiWhereThatIsAllowed) {
  LaunchFacts facts = facts_of(Mpi::open_mpi_5, {"mpirun", "-n", "2", "./ring"});
  facts.root = true;
  EXPECT_EQ(value_of(plan_launch(facts), "OMPI_ALLOW_RUN_AS_ROOT"), "(not set)");
  bool told = false;
  for (const std::string& reason : reasons_of_absence(facts))
    told |= reason.find("as root") != reason.npos;
  EXPECT_TRUE(told);
  facts.environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}};
  EXPECT_EQ(value_of(plan_launch(facts), "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
  EXPECT_EQ(value_of(plan_launch(facts), "PRTE_ALLOW_RUN_AS_ROOT"), "1");
  facts.version.mpi = Mpi::mpich;
  EXPECT_EQ(value_of(plan_launch(facts), "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "(not set)");
}

TEST(MpiLaunch, LeavesWhatTheUserHasSet) {
  LaunchFacts facts = facts_of(Mpi::mpich, {"mpiexec", "-n", "2", "./ring"});
  facts.environment = {{"MPIR_CVAR_NOLOCAL", "0"}, {"FI_PROVIDER_PATH", "/opt/other"}};
  facts.settings = {{"TURNOUT_POLICY", "aqps"}};
  const Launch launch = plan_launch(facts);
  EXPECT_EQ(value_of(launch, "MPIR_CVAR_NOLOCAL"), "(not set)");
  EXPECT_EQ(value_of(launch, "FI_PROVIDER_PATH"), "/opt/turnout/lib/libfabric:/opt/other");
  EXPECT_EQ(value_of(launch, "TURNOUT_POLICY"), "aqps");
}

TEST(MpiLaunch, HandsItsVariablesToOtherHosts) {
  LaunchFacts facts = facts_of(Mpi::open_mpi_5, {"mpirun", "--host", "a,b", "-n", "2", "./ring"});
  facts.environment = {{"TURNOUT_LOG", "info"}, {"HOME", "/root"}};
  const Launch launch = plan_launch(facts);
  EXPECT_FALSE(launch.one_host);
  EXPECT_EQ(launch.command,
            (std::vector<std::string>{"mpirun", "-x", "FI_PROVIDER_PATH", "-x", "TURNOUT_LOG",
                                      "--host", "a,b", "-n", "2", "./ring"}));
}

TEST(MpiLaunch, SeesTheHostsOfPbs) {
  LaunchFacts facts = facts_of(Mpi::mpich, {"mpiexec", "-n", "8", "./ring"});
  EXPECT_TRUE(plan_launch(facts).one_host);
  facts.batch_hosts = 2;
  EXPECT_FALSE(plan_launch(facts).one_host);
  EXPECT_EQ(value_of(plan_launch(facts), "MPIR_CVAR_NOLOCAL"), "(not set)");
}

TEST(MpiLaunch, NamesWhatKeepsProcessesFromTurnout) {
  LaunchFacts facts = facts_of(Mpi::mpich, {"mpiexec", "-n", "2", "./ring"});
  facts.environment = {{"FI_PROVIDER", "turnaut"}};
  const std::vector<std::string> reasons = reasons_of_absence(facts);
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons.front(), "FI_PROVIDER is set to turnaut; Turnout needs turnout, or unset it");
}

}  // namespace
}  // namespace turnout::cli
