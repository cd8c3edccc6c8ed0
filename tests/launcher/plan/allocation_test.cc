#include "launcher/plan/allocation.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// A file's text is what follows "text:" in its path.
std::string read_file(const std::string& path) {
  if (!path.starts_with("text:")) throw InvalidArgument(path + ": cannot be read");
  return path.substr(5);
}

TEST_CASE("Slurm's lists of nodes are expanded") {
  struct Row {
    const char *list, *names;
  };
  for (const Row& row : {Row{"node7", "node7"}, Row{"a,b", "a b"}, Row{"n[1-3]", "n1 n2 n3"},
                         Row{"n[08-10,12],login", "n08 n09 n10 n12 login"}, Row{"n[7]", "n7"},
                         Row{"n[1-2]-ib", "n1-ib n2-ib"}, Row{"r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"},
                         Row{"n[098-101]", "n098 n099 n100 n101"}, Row{"a[1,3],b[2]", "a1 a3 b2"}}) {
    CAPTURE(row.list);
    CHECK(join(expand_nodelist(row.list)) == row.names);
  }
  for (const char* list : {"", "a,", ",a", "n[", "n[1", "n]", "n1]", "n[]", "n[a]", "n[2-1]", "n[1-]", "n[-1]",
                           "n[1-2-3]", "n[0-999999]x[0-9]", "n[1,[2]]"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(expand_nodelist(list), InvalidArgument);
  }
}

TEST_CASE("who has allocated hosts is found out") {
  struct Row {
    Environment environment;
    const char* source;
    std::vector<HostSlots> hosts;
  };
  const std::string rankfile = "text:launch\nn1\nn1\nn2\nn2\n";
  const Row rows[] = {
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2),3"}, {"SLURM_JOB_CPUS_PER_NODE", "9(x3)"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1", 4}, {"n2", 4}, {"n3", 3}}},
      {{{"SLURM_JOB_NODELIST", "n1,n2"}, {"SLURM_JOB_CPUS_PER_NODE", "16,8"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1", 16}, {"n2", 8}}},
      {{{"SLURM_JOB_NODELIST", "n1"}}, "Slurm's allocation (SLURM_JOB_NODELIST)", {{"n1"}}},
      {{{"LSB_JOBID", "1"}, {"LSB_DJOB_RANKFILE", rankfile}, {"LSB_HOSTS", "x"}},
       "LSF's allocation (LSB_DJOB_RANKFILE)",
       {{"launch", 1}, {"n1", 2}, {"n2", 2}}},
      {{{"LSB_JOBID", "1"}, {"LSB_DJOB_RANKFILE", rankfile}, {"CSM_ALLOCATION_ID", "5"}},
       "LSF's allocation (LSB_DJOB_RANKFILE)",
       {{"n1", 2}, {"n2", 2}}},
      {{{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "n1 4 n2 3 "}},
       "LSF's allocation (LSB_MCPU_HOSTS)",
       {{"n1", 4}, {"n2", 3}}},
      {{{"LSB_JOBID", "1"}, {"LSB_HOSTS", "n1 n1 n2"}}, "LSF's allocation (LSB_HOSTS)", {{"n1", 2}, {"n2", 1}}},
      {{{"PBS_NODEFILE", "text:n1\nn1\nn2\n"}, {"PBS_NUM_PPN", "8"}},
       "PBS's allocation (PBS_NODEFILE)",
       {{"n1", 2}, {"n2", 1}}},
      {{{"PBS_NODEFILE", "text:n1\nn2\n"}, {"PBS_NUM_PPN", "8"}},
       "PBS's allocation (PBS_NODEFILE)",
       {{"n1", 8}, {"n2", 8}}},
      {{{"PBS_NODEFILE", "text:n1\nn2\n"}}, "PBS's allocation (PBS_NODEFILE)", {{"n1", 1}, {"n2", 1}}},
      {{{"OMPI_MCA_orte_default_hostfile", "text:job-worker-0.job slots=2\njob-worker-1.job slots=2\n"}},
       "the hostfile text:job-worker-0.job slots=2\njob-worker-1.job slots=2\n (OMPI_MCA_orte_default_hostfile)",
       {{"job-worker-0.job", 2}, {"job-worker-1.job", 2}}},
      {{{"I_MPI_HYDRA_HOST_FILE", "text:w0:2"}}, "the hostfile text:w0:2 (I_MPI_HYDRA_HOST_FILE)", {{"w0", 2}}},
      {{{"HYDRA_HOST_FILE", "text:w0:2"}}, "the hostfile text:w0:2 (HYDRA_HOST_FILE)", {{"w0", 2}}},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"PBS_NODEFILE", "text:n2"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1"}}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.source);
    const auto allocation = read_allocation(row.environment, read_file);
    REQUIRE(allocation.has_value());
    CHECK(allocation->source == row.source);
    CHECK(allocation->hosts == row.hosts);
  }
}

TEST_CASE("without an allocation there is none") {
  for (const Environment& environment :
       {Environment{}, Environment{{"SLURM_JOB_NODELIST", ""}}, Environment{{"LSB_HOSTS", "n1"}},
        Environment{{"LSB_JOBID", "1"}}, Environment{{"PBS_JOBID", "1"}},
        Environment{{"KUBERNETES_SERVICE_HOST", "x"}}}) {
    CHECK_FALSE(read_allocation(environment, read_file).has_value());
  }
}

TEST_CASE("an allocation that makes no sense is refused") {
  struct Row {
    Environment environment;
    const char* in_message;
  };
  const Row rows[] = {
      {{{"SLURM_JOB_NODELIST", "n[1-"}}, "the list of nodes \"n[1-\""},
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2)"}},
       "SLURM_TASKS_PER_NODE is of 2 nodes, but SLURM_JOB_NODELIST names 3"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "four"}}, "SLURM_TASKS_PER_NODE=four is not understood"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "4(x2000000)"}}, "is not understood"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "0"}}, "is not understood"},
      {{{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "n1 4 n2"}}, "LSB_MCPU_HOSTS=n1 4 n2 is not understood"},
      {{{"PBS_NODEFILE", "text:"}}, "names no host"},
      {{{"PBS_NODEFILE", "text:n1"}, {"PBS_NUM_PPN", "x"}}, "PBS_NUM_PPN=x"},
      {{{"PBS_NODEFILE", "/nowhere"}}, "/nowhere: cannot be read"},
      {{{"HYDRA_HOST_FILE", "text:a slots=x"}}, "line 1 of text:a slots=x"},
  };
  for (const Row& row : rows) {
    CHECK_THROWS_WITH(read_allocation(row.environment, read_file), Catch::Matchers::Contains(row.in_message));
  }
}

}  // namespace
}  // namespace hvd::launcher
