# SPDX-License-Identifier: BSD-3-Clause
"""One rank of mpi4py's own test suite, with a record of every test that survives a crash or a hang.

Started by mpi4py_suite.py under mpiexec: suite_rank.py RECORD_DIR TEST_DIR [options of mpi4py's
test/main.py]. Every rank appends to RECORD_DIR/rank-N: one line when a test starts, one with its
outcome when it ends, flushed at once, so that a test without an outcome is the one that never ended.
"""

import os
import pathlib
import sys
import unittest


def main():
    record_dir, test_dir, *options = sys.argv[1:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, test_dir)
    suite = __import__("main")  # mpi4py's test/main.py
    rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", "0")
    record = (pathlib.Path(record_dir) / f"rank-{rank}").open("a", encoding="utf-8")

    def write(outcome, test):
        record.write(f"{outcome} {test.id()}\n")
        record.flush()

    class RecordingResult(unittest.TextTestResult):
        """Outcomes of the same test are written in order; the worst of them counts."""

        def startTest(self, test):
            write("start", test)
            super().startTest(test)

        def addSuccess(self, test):
            write("pass", test)
            super().addSuccess(test)

        def addError(self, test, err):
            write("error", test)
            super().addError(test, err)

        def addFailure(self, test, err):
            write("fail", test)
            super().addFailure(test, err)

        def addSkip(self, test, reason):
            write("skip", test)
            super().addSkip(test, reason)

        def addSubTest(self, test, subtest, err):
            if err is not None:
                write("fail", test)
            super().addSubTest(test, subtest, err)

    class Program(suite.TestProgram):
        def runTests(self):
            self.testRunner = unittest.TextTestRunner(
                verbosity=self.verbosity, failfast=False, resultclass=RecordingResult
            )
            super().runTests()

    Program(module=None, argv=["mpi4py-suite", *options])


if __name__ == "__main__":
    main()
