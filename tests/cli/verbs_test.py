#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`turnout verbs`: programs that know nothing of Turnout, on the virtual adapter.

    verbs_test.py BUILD_DIR [unittest's options]
"""

import os
import pathlib
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path()
LIMIT = 60  # seconds after which a program counts as hung
PYTHON = "/usr/bin/python3"
ADAPTER = "/sys/class/infiniband/turnout0"


class Verbs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="verbs-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(os.path.realpath(scratch.name))
        self.fabric = f"verbs-{os.getpid()}"
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("TURNOUT_", "UCX_", "LD_"))}
        self.env.update(TMPDIR=scratch.name, XDG_RUNTIME_DIR=scratch.name,
                        TURNOUT_FABRIC=self.fabric)
        self.turnout = str(BUILD / "bin" / "turnout")

    def start(self, *words, **options):
        process = subprocess.Popen([self.turnout, "verbs", *words], text=True, env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True, **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.communicate()

    def verbs(self, *words, code=0, **options):
        """Standard output; the exit status is `code`, and nothing is left."""
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, code, f"{words}\n{out}{err}")
        self.assertEqual(self.left(), [])
        self.err = err
        return out

    def left(self):
        return [p.name for p in self.scratch.iterdir() if p.name.startswith("turnout-verbs-")]

    def python(self, program):
        return self.verbs("--", PYTHON, "-c", "import os, sys, ctypes, errno\n" + program)

    @staticmethod
    def free_port():
        with socket.socket() as probe:
            probe.bind(("", 0))
            return str(probe.getsockname()[1])

    @staticmethod
    def listens(port):
        for name in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in pathlib.Path(name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == int(port):
                    return True
        return False

    def wait_for(self, condition):
        deadline = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)


class Programs(Verbs):
    def test_devices(self):
        self.assertIn("turnout0", self.verbs("--", "ibv_devinfo"))
        self.assertEqual(self.err, "")  # no variable is unknown to the libraries
        self.assertIn("turnout0", self.verbs("ibv_devices"))

    def test_folders(self):
        self.assertEqual(self.verbs("--", "ls", "/sys/class/infiniband"), "turnout0\n")
        self.assertIn("ports", self.verbs("--", "ls", "-l", ADAPTER))
        self.assertEqual(self.err, "")
        self.verbs("--", "test", "-e", "/dev/infiniband/uverbs0")
        self.verbs("--", "test", "-c", "/dev/infiniband/uverbs0")
        self.verbs("--", "test", "-e", "/dev/infiniband/uverbs9", code=1)
        self.assertEqual(self.verbs("--", "sh", "-c", f"cd {ADAPTER} && pwd -P && cd ../.. && pwd -P"),
                         f"{ADAPTER}\n/sys/class\n")

    def test_contents(self):
        """The files say what verbs say."""
        info = self.verbs("--", "ibv_devinfo", "-v")
        files = self.verbs("--", "sh", "-c", f"cd {ADAPTER} && cat node_guid fw_ver ports/1/gids/0 "
                           "ports/1/state ports/1/link_layer /sys/class/infiniband_verbs/uverbs0/ibdev")
        guid, firmware, gid, state, link_layer, name = files.splitlines()
        self.assertIn(f"node_guid:\t\t\t{guid}\n", info)
        self.assertIn(f"fw_ver:\t\t\t\t{firmware}\n", info)
        self.assertTrue(gid.endswith(guid), gid)
        self.assertEqual((state, link_layer, name), ("4: ACTIVE", "InfiniBand", "turnout0"))
        self.assertEqual(self.verbs("--", "ls", f"{ADAPTER}/device/net"), "lo\n")
        self.verbs("--", "test", "-e", f"{ADAPTER}/device/net/lo/address")

    def test_counters(self):
        """A kernel's counters are those of now, by whatever path."""
        pair = "ibv_rc_pingpong -p 18612 -n 500"
        # Counts end with the last process of the fabric: one waits meanwhile.
        self.verbs("--", "bash", "-c", f"""
            set -e
            port={ADAPTER}/ports/1
            ibv_rc_pingpong -p 18611 > /dev/null & waits=$!
            trap 'kill $waits' EXIT
            for expected in 0 1000 2000; do
              test $(cat $port/counters/port_xmit_packets) = $expected
              test $(cat $port/counters/port_rcv_data) = $((expected * (4096 + 24) / 4))
              (cd $port && test $(cat hw_counters/rdma_sends) = $expected)
              (cd $port/counters && test $(cat unicast_rcv_packets) = $expected)
              test $({PYTHON} -c 'import os, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
print(os.read(os.open("sent_pkts", os.O_RDONLY, dir_fd=folder), 99).decode())' $port/hw_counters) = $expected
              test $expected = 2000 && break
              {pair} > /dev/null & served=$!
              for try in $(seq 100); do {pair} localhost > /dev/null 2>&1 && break; sleep 0.1; done
              wait $served
            done
            test $(ls $port/counters | wc -l) = 21  # nothing is left of writing them
            test $(cat $port/counters/symbol_error) = 0""")

    def test_words_are_the_programs(self):
        out = self.verbs("--fabric", "x", "--", "printf", "%s\n", "--", "--env", "-h", "info", "a b", "")
        self.assertEqual(out, "--\n--env\n-h\ninfo\na b\n\n")
        self.assertEqual(self.verbs("printf", "%s\n", "--fabric", "y"), "--fabric\ny\n")
        self.assertEqual(self.verbs("--fabric=z", "--profile", "connect-ib", "sh", "-c",
                                    "echo $TURNOUT_FABRIC $TURNOUT_ADAPTER"), "z connect-ib\n")

    def test_environment(self):
        libraries = str(BUILD / "lib" / "turnout")
        own = self.verbs("--", "sh", "-c", "echo $LD_PRELOAD").strip()
        self.assertTrue(own.startswith(f"{libraries}/libibverbs.so.1:{libraries}/libmlx5.so.1:"), own)
        self.assertTrue(own.endswith(f":{libraries}/libturnout-shim.so"), own)
        self.env.update(LD_PRELOAD="libm.so.6", LD_LIBRARY_PATH="/somewhere")
        self.assertEqual(self.verbs("--", "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH"),
                         f"{own}:libm.so.6 {libraries}:/somewhere\n")
        # One inside the other has everything once.
        self.assertEqual(self.verbs("--", self.turnout, "verbs", "--", "sh", "-c", "echo $LD_PRELOAD"),
                         f"{own}:libm.so.6\n")

    def test_env_for_a_shell(self):
        runtime = self.scratch / "it's $HOME"
        runtime.mkdir()
        self.env["XDG_RUNTIME_DIR"] = str(runtime)
        script = f'eval "$({shlex.quote(self.turnout)} verbs --env --fabric {self.fabric}-x)" && ' \
                 f'ls {ADAPTER}/ports && echo "$TURNOUT_FABRIC" && ibv_devices'
        for _ in range(2):
            done = subprocess.run(["sh", "-c", script], env=self.env, text=True, timeout=LIMIT,
                                  capture_output=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith(f"1\n{self.fabric}-x\n"), done.stdout)
            self.assertIn("turnout0", done.stdout)
        kept = list(runtime.glob(f"turnout-{os.geteuid()}-verbs-*"))
        self.assertEqual(len(kept), 1)
        self.assertEqual(kept[0].stat().st_mode & 0o777, 0o700)
        kept[0].chmod(0o755)
        self.verbs("--env", "--fabric", f"{self.fabric}-x", code=1)
        self.assertIn("accessible to others", self.err)
        self.verbs("--fabric", "a b", "--", "true", code=1)
        self.assertIn("TURNOUT_FABRIC", self.err)

    def test_usage(self):
        for words in ([], ["--"], ["--env", "ls"]):
            self.verbs(*words, code=2)
            self.assertIn("Usage: turnout verbs", self.err)
        self.verbs("--nosuch", "--", "ls", code=2)

    def test_library_is_missing(self):
        folder = self.scratch / "part"
        folder.mkdir()
        for name in ("libibverbs.so.1", "libmlx5.so.1"):
            (folder / name).symlink_to(BUILD / "lib" / "turnout" / name)
        self.env["TURNOUT_VERBS_PATH"] = str(folder)
        self.verbs("--", "true", code=1)
        self.assertIn(f"{folder}/libturnout-shim.so", self.err)
        self.assertIn("make build", self.err)
        (folder / "libturnout-shim.so").symlink_to(BUILD / "lib/turnout/libturnout-shim.so")
        self.verbs("--", "true")
        self.env["TURNOUT_VERBS_PATH"] = str(self.scratch / "a b")
        self.verbs("--", "true", code=1)


class Ends(Verbs):
    def test_exit_status(self):
        self.verbs("--", "true")
        self.verbs("--", "sh", "-c", "exit 7", code=7)
        self.verbs("--", "sh", "-c", "kill -SEGV $$", code=128 + signal.SIGSEGV)
        self.verbs("--", "sh", "-c", "kill -KILL $$", code=128 + signal.SIGKILL)
        self.verbs("--", "no-such-program", code=127)
        self.assertIn("no-such-program", self.err)
        self.verbs("--", "/etc/passwd", code=126)
        self.verbs("--", "/", code=126)

    def test_signals_are_handed_on(self):
        # One that waits for them: what comes just before a sleep would be handled after it only.
        program = ("import signal, sys\n"
                   "of = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)\n"
                   "signal.pthread_sigmask(signal.SIG_BLOCK, of)\n"
                   "print('ready', flush=True); n = signal.sigwait(of)\n"
                   "print(int(n), flush=True); sys.exit(40 + n)\n")
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
            process = self.start("--", PYTHON, "-c", program)
            self.assertEqual(process.stdout.readline(), "ready\n")
            process.send_signal(number)
            out, _ = process.communicate(timeout=LIMIT)
            self.assertEqual((out, process.returncode), (f"{int(number)}\n", 40 + number))
            self.assertEqual(self.left(), [])

    def test_killed_by_a_signal(self):
        process = self.start("--", "sh", "-c", "echo ready; exec sleep 60")
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=LIMIT), 128 + signal.SIGTERM)
        self.assertEqual(self.left(), [])

    def test_terminal(self):
        """^C comes once, to the program; what it ends with is what we end with."""
        program = ("import signal, time\n"
                   "seen = []\n"
                   "signal.signal(signal.SIGINT, lambda n, f: seen.append(n))\n"
                   "print('ready', flush=True)\n"
                   "while not seen: time.sleep(0.01)\n"
                   "time.sleep(0.3); print('seen', len(seen), flush=True); raise SystemExit(9)\n")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(self.turnout, [self.turnout, "verbs", "--", PYTHON, "-c", program], self.env)
        self.addCleanup(os.close, terminal)
        out = b""
        while b"ready" not in out:
            out += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        while b"seen 1" not in out:
            out += os.read(terminal, 1000)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)
        self.assertEqual(self.left(), [])

    def test_children_are_ignored(self):
        """A starter that ignores SIGCHLD leaves it so to the program, and gets its status."""
        self.verbs("--", "sh", "-c", "exit 5", code=5,
                   preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    def test_leftovers_are_swept(self):
        process = self.start("--", "sh", "-c", "echo ready; exec sleep 60")
        process.stdout.readline()
        other = self.start("--", "sh", "-c", "echo ready; exec sleep 60")
        other.stdout.readline()
        folders = set(self.left())
        self.assertEqual(len(folders), 2)
        process.kill()
        process.wait(timeout=LIMIT)
        self.assertEqual(set(self.left()), folders)
        done = subprocess.run([self.turnout, "verbs", "--", "true"], env=self.env, timeout=LIMIT)
        self.assertEqual(done.returncode, 0)
        # That of the one which runs is left alone.
        left = self.left()
        self.assertEqual(len(left), 1)
        self.assertIn(f"-{other.pid}-", left[0])
        other.terminate()
        other.wait(timeout=LIMIT)
        self.assertEqual(self.left(), [])


class Shim(Verbs):
    def test_python(self):
        self.python(f"""
assert os.listdir("/sys/class/infiniband") == ["turnout0"]
assert [e.name for e in os.scandir("/sys/class/infiniband_verbs") if e.is_dir()] == ["uverbs0"]
assert open("{ADAPTER}/node_type").read() == "1: CA\\n"
assert os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK)
assert os.access("{ADAPTER}", os.R_OK, effective_ids=True)
assert os.path.isdir("{ADAPTER}/ports/1") and os.path.islink("{ADAPTER}/device/net/lo")
assert os.readlink("{ADAPTER}/device/net/lo") == "/sys/class/net/lo"
os.close(os.open("/dev/infiniband/uverbs0", os.O_RDWR))
os.chdir("/sys/class")
assert os.listdir("infiniband") == ["turnout0"]
assert "lo" in os.listdir("infiniband/../net")
assert os.stat("infiniband/turnout0/../turnout0").st_ino == os.stat("{ADAPTER}").st_ino
folder = os.open("/sys", os.O_RDONLY)
assert os.stat("class/infiniband", dir_fd=folder).st_ino == os.stat("infiniband").st_ino
folder = os.open("/sys/class/infiniband", os.O_RDONLY)
os.close(os.open("turnout0/node_guid", os.O_RDONLY, dir_fd=folder))
os.chdir("/sys/class/infiniband/turnout0")
assert os.getcwd() == "{ADAPTER}" and "lo" in os.listdir("../../net")
""")

    def test_c_library(self):
        """Names that compilers and old programs call."""
        self.python(f"""
c = ctypes.CDLL(None, use_errno=True)
path = b"{ADAPTER}"
buffer = ctypes.create_string_buffer(4096)
def call(name, *arguments):
    function = getattr(c, name)
    assert function(*arguments) >= 0, (name, os.strerror(ctypes.get_errno()))
    assert function(*[b"/sys/class/infiniband/x" if a == path else a for a in arguments]) < 0, name
    assert ctypes.get_errno() == errno.ENOENT, name
for name in ("stat", "stat64", "lstat", "lstat64", "statfs", "statfs64"):
    call(name, path, buffer)
for name in ("__xstat", "__xstat64", "__lxstat", "__lxstat64"):
    call(name, 1, path, buffer)
for name in ("fstatat", "fstatat64"):
    call(name, -100, path, buffer, 0)
for name in ("__fxstatat", "__fxstatat64"):
    call(name, 1, -100, path, buffer, 0)
call("statx", -100, path, 0, 0xfff, buffer)
for name in ("open", "open64", "__open_2", "__open64_2"):
    call(name, path, os.O_RDONLY)
for name in ("openat", "openat64", "__openat_2", "__openat64_2"):
    call(name, -100, path, os.O_RDONLY)
for name in ("access", "euidaccess", "eaccess"):
    call(name, path, os.R_OK)
call("faccessat", -100, path, os.R_OK, 0)
for name in ("scandir", "scandir64"):
    call(name, path, buffer, None, None)
for name in ("scandirat", "scandirat64"):
    call(name, -100, path, buffer, None, None)
for name in ("listxattr", "llistxattr"):
    call(name, path, buffer, 4096)
for name in ("fopen", "fopen64"):
    getattr(c, name).restype = ctypes.c_void_p
    assert getattr(c, name)(path + b"/node_guid", b"r"), name
    assert not getattr(c, name)(path + b"/x", b"r"), name
c.opendir.restype = ctypes.c_void_p
assert c.opendir(path) and not c.opendir(path + b"/x")
for name, rest in (("realpath", ()), ("__realpath_chk", (4096,))):
    getattr(c, name).restype = ctypes.c_void_p
    assert getattr(c, name)(path + b"/../turnout0/ports/1/", buffer, *rest), name
    assert buffer.value == path + b"/ports/1", buffer.value
for name, rest in (("readlink", ()), ("__readlink_chk", (4096,))):
    assert getattr(c, name)(path + b"/device/net/lo", buffer, 4096, *rest) == len("/sys/class/net/lo")
for name, rest in (("readlinkat", ()), ("__readlinkat_chk", (4096,))):
    assert getattr(c, name)(-100, path + b"/device/net/lo", buffer, 4096, *rest) == len("/sys/class/net/lo")
c.canonicalize_file_name.restype = ctypes.c_char_p
assert c.canonicalize_file_name(path + b"/.") == path
""")

    def test_long_paths(self):
        self.python("""
def fails(path):
    for call in (os.stat, os.lstat, os.listdir, open, os.readlink, os.chdir):
        try:
            call(path)
        except OSError as error:
            assert error.errno == errno.ENAMETOOLONG, (call, error.errno)
        else:
            raise AssertionError(call)
ours = "/sys/class/infiniband/"
fails(ours + "x/" * 3000)             # longer than any path
fails(ours + ("x" * 100 + "/") * 40)  # longer with the tree's in front
fails(ours + "x" * 300)               # a name that is too long
os.stat(ours + "./" * 1900 + "turnout0")
""")

    def test_other_paths_are_left_alone(self):
        program = """
import os
def tell(path):
    try:
        s = os.stat(path)
        print(path[:80], s.st_ino, s.st_dev, s.st_mode, os.path.realpath(path)[:80])
    except OSError as error:
        print(path[:80], error.errno)
os.chdir("/usr/lib")
for path in ("/", ".", "..", "../lib", "/dev", "/dev/null", "/sys/class", "/sys/class/net/lo", "/etc/passwd/x",
             "../../sys/class/net", "/dev/infinibandx", "/sys/class/infiniband_mad", "infiniband", "turnout0", "uverbs0/..",
             "/etc/infiniband/../passwd", "", "x" * 300, "y/" * 3000, "/infiniband/" * 400):
    tell(path)
"""
        plain = subprocess.run([PYTHON, "-c", program], env=self.env, text=True, timeout=LIMIT,
                               capture_output=True, check=True).stdout
        self.assertEqual(self.verbs("--", PYTHON, "-c", program), plain)

    def test_beside_a_real_adapter(self):
        """What is really there stays as it is; ours takes the first number that is free."""
        alone = ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "/sys/class"], capture_output=True).returncode != 0:
            self.skipTest("namespaces of one's own are not allowed here")
        script = """set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/mlx5_0 /sys/class/infiniband_verbs/uverbs0
echo mlx5_0 >/sys/class/infiniband_verbs/uverbs0/ibdev
exec "$0" verbs -- sh -c 'ls /sys/class/infiniband; cat /sys/class/infiniband_verbs/uverbs[0-9]/ibdev
  cat /sys/class/infiniband_verbs/uverbs1/ibdev; cat /sys/class/infiniband/turnout0/node_type
  cd /sys/class/infiniband; cat turnout0/node_type; test -e /dev/infiniband/uverbs1; ibv_devices'"""
        done = subprocess.run([*alone, "sh", "-c", script, self.turnout], env=self.env, text=True,
                              capture_output=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("mlx5_0\nmlx5_0\nturnout0\n1: CA\n1: CA\n"), done.stdout)
        self.assertIn("turnout0", done.stdout)
        self.assertEqual(self.left(), [])

    def test_mlx5_hides_a_real_adapter(self):
        """rdma-core lists the devices of one folder; it is ours."""
        alone = ["unshare", "--mount", "--map-root-user"]
        if subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "/sys/class"], capture_output=True).returncode != 0:
            self.skipTest("namespaces of one's own are not allowed here")
        script = """set -e
mount -t tmpfs none /sys/class
mkdir -p /sys/class/infiniband/mlx5_7 /sys/class/infiniband_verbs/uverbs0
echo 6 >/sys/class/infiniband_verbs/abi_version
echo mlx5_7 >/sys/class/infiniband_verbs/uverbs0/ibdev
exec "$0" verbs --mlx5 -- sh -c 'ls /sys/class/infiniband; cat /sys/class/infiniband_verbs/uverbs[0-9]/dev
  ls /dev/infiniband; test -e /sys/class/infiniband_verbs/uverbs0 || echo none; ibv_devices'"""
        done = subprocess.run([*alone, "sh", "-c", script, self.turnout], env=self.env, text=True,
                              capture_output=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.startswith("mlx5_0\n231:193\nrdma_cm\nuverbs1\nnone\n"), done.stdout)
        self.assertIn("mlx5_0", done.stdout.partition("GUID")[2])
        self.assertEqual(self.left(), [])

    def test_needs_only_the_c_library(self):
        needed = subprocess.run(["readelf", "-d", BUILD / "lib/turnout/libturnout-shim.so"], text=True,
                                capture_output=True, check=True).stdout
        self.assertEqual([line.split("[")[1].split("]")[0] for line in needed.splitlines() if "(NEEDED)" in line],
                         ["libc.so.6"])

    def test_without_its_tree(self):
        self.env["LD_PRELOAD"] = str(BUILD / "lib/turnout/libturnout-shim.so")
        for value in (None, "", "relative", "/nonexistent"):
            if value is not None:
                self.env["TURNOUT_SHIM_ROOT"] = value
            done = subprocess.run(["ls", "/sys/class/net"], env=self.env, text=True, timeout=LIMIT,
                                  capture_output=True, check=True)
            self.assertIn("lo\n", done.stdout)


class Mlx5(Verbs):
    """rdma-core's own libraries on the emulated mlx5 device: what they see before they open it."""

    ADAPTER = "/sys/class/infiniband/mlx5_0"

    def test_doctor_and_info_know_it(self):
        found = self.verbs("--mlx5", "--", "env", "TURNOUT_DEVICE=mlx5_0", self.turnout, "doctor")
        for row, said in (("mlx5_0 DC", "yes"), ("mlx5_0 registration", "registered"), ("adapter", "mlx5_0")):
            line = next(line for line in found.splitlines() if line.split(None, 1)[1].startswith(row))
            self.assertIn(said, line)
        self.assertIn("the system's               mlx5_0", self.verbs("--mlx5", "--", self.turnout, "info"))

    def test_ucx_finds_its_transports(self):
        found = self.verbs("--mlx5", "--", "ucx_info", "-d")
        for transport in ("dc_mlx5", "rc_mlx5", "ud_mlx5"):
            self.assertRegex(found, rf"Transport: {transport}\b")

    def test_devices(self):
        plain = self.verbs("--profile", "connectx-5", "--", "cat", f"{ADAPTER}/node_guid").strip()
        listed = self.verbs("--mlx5", "--", "ibv_devices").splitlines()[2:]
        self.assertEqual([line.split() for line in listed], [["mlx5_0", plain.replace(":", "")]])
        self.assertEqual(self.err, "")

    def test_the_systems_libraries(self):
        self.env["LD_LIBRARY_PATH"] = f"/somewhere:{BUILD}/lib/turnout/:{BUILD}/lib/turnout"
        self.env["LD_PRELOAD"] = f"{BUILD}/lib/turnout/libibverbs.so.1:libm.so.6"
        libraries = str(BUILD / "lib" / "turnout")
        self.assertEqual(self.verbs("--mlx5", "--", "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH"),
                         f"{libraries}/libturnout-shim.so:{libraries}/system/librdmacm.so.1:libm.so.6 /somewhere\n")
        self.verbs("--mlx5", "--", "env", "LD_DEBUG=files", "ibv_devices")
        loaded = set(re.findall(r"calling init: (\S*(?:ibverbs|mlx5)\S*)", self.err))
        self.assertTrue(any("/libibverbs.so.1" in path for path in loaded), loaded)
        self.assertTrue(any("/libmlx5-" in path for path in loaded), loaded)
        self.assertEqual([path for path in loaded if path.startswith(libraries)], [])
        # One inside the other: the inner one's.
        out = self.verbs("--mlx5", "--", self.turnout, "verbs", "--", "ibv_devices")
        self.assertIn("turnout0", out)
        self.assertNotIn("mlx5_0", out)
        out = self.verbs("--", self.turnout, "verbs", "--mlx5", "--", "ibv_devices")
        self.assertIn("mlx5_0", out)
        self.assertNotIn("turnout0", out)

    def test_files(self):
        out = self.verbs("--mlx5", "--", "sh", "-c", f"cd {self.ADAPTER} && cat hca_type fw_ver node_type "
                         "device/vendor device/device device/modalias ports/1/state && cd ../../infiniband_verbs && "
                         "cat abi_version uverbs0/abi_version uverbs0/dev uverbs0/ibdev uverbs0/device/vendor")
        self.assertEqual(out.splitlines(), [
            "MT4119", "16.35.2000", "1: CA", "0x15b3", "0x1017",
            "pci:v000015B3d00001017sv000015B3sd00000020bc02sc07i00", "4: ACTIVE",
            "6", "1", "231:192", "mlx5_0", "0x15b3"])
        self.assertEqual(self.verbs("--mlx5", "--", "ls", "/sys/class/infiniband", "/dev/infiniband"),
                         "/dev/infiniband:\nrdma_cm\nuverbs0\n\n/sys/class/infiniband:\nmlx5_0\n")
        self.assertEqual(self.verbs("--mlx5", "--", "stat", "-c", "%F %t:%T", "/dev/infiniband/uverbs0"),
                         "character special file e7:c0\n")

    def test_without_the_device(self):
        for library, reason in (("/nonexistent/libdevice.so", "cannot open shared object file"),
                                (BUILD / "lib/turnout/libibverbs.so.1", "it is not the library of a device")):
            out = self.verbs("--mlx5", "--", "env", f"TURNOUT_SHIM_MLX5={library}", PYTHON, "-c",
                             "import os\ntry: os.open('/dev/infiniband/uverbs0', os.O_RDWR)\n"
                             "except OSError as error: print(error.strerror)")
            self.assertEqual(out, "No such device\n")
            self.assertIn(f"loading the mlx5 device failed: {library}: {reason}", self.err)
            self.assertEqual(len(self.err.splitlines()), 1, self.err)

    def test_what_it_excludes(self):
        for words in (["--mlx5dv"], ["--profile", "rxe"], ["--profile=turnout"]):
            self.verbs("--mlx5", *words, "--", "true", code=2)
            self.assertIn("exclude each other", self.err)
        self.env["TURNOUT_ADAPTER"] = "rxe"
        for words in ([], ["--profile", "connectx-5"]):
            self.assertEqual(self.verbs("--mlx5", *words, "--", "sh", "-c", "echo $TURNOUT_ADAPTER"), "connectx-5\n")

    def test_env_for_a_shell(self):
        """Beside the files of the adapter that is not mlx5."""
        both = f'eval "$({shlex.quote(self.turnout)} verbs --env)" && ibv_devices && ' \
               f'eval "$({shlex.quote(self.turnout)} verbs --mlx5 --env)" && ls /sys/class/infiniband && ibv_devices'
        done = subprocess.run(["sh", "-c", both], env=self.env, text=True, timeout=LIMIT, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, _, second = done.stdout.partition("\nmlx5_0\n")
        self.assertIn("turnout0", first)
        self.assertIn("mlx5_0", second)
        self.assertNotIn("turnout0", second)


class Pairs(Verbs):
    """A server, and a client that finds it at localhost."""

    def pair(self, *words):
        port = self.free_port()
        server = self.start("--", *words, "-p", port)
        self.wait_for(lambda: self.listens(port) or server.poll() is not None)
        client = self.start("--", *words, "-p", port, "localhost")
        out, err = client.communicate(timeout=LIMIT)
        server_out, server_err = server.communicate(timeout=LIMIT)
        self.assertEqual((client.returncode, server.returncode), (0, 0),
                         f"{words}\n{out}{err}\n{server_out}{server_err}")
        self.assertEqual(self.left(), [])
        return out + err

    def test_pingpong(self):
        # rdma-core's checks the data for these (-c).
        checks = {"rc": ["-c"], "uc": ["-c"], "ud": ["-c"], "srq": ["-c"], "xsrq": []}
        for kind, check in checks.items():
            for events in ([], ["-e"]):
                with self.subTest(kind=kind, events=events):
                    self.pair(f"ibv_{kind}_pingpong", "-n", "1000", *check, *events)

    def test_perftest(self):
        for name in ("ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"):
            with self.subTest(name=name):
                self.pair(name, "-n", "100")

    def test_ucx(self):
        info = self.verbs("--", "ucx_info", "-d")
        self.assertIn("Device: turnout0:1", info)
        for transport in ("rc_v", "ud_v"):
            with self.subTest(transport=transport):
                self.env.update(UCX_TLS=f"{transport},self", UCX_NET_DEVICES="turnout0:1",
                                UCX_LOG_LEVEL="info")
                out = self.pair("ucx_perftest", "-t", "tag_lat", "-n", "100", "-w", "10")
                self.assertIn("turnout0:1", out)
                self.assertIn("Final:", out)


class Faults(Verbs):
    """Faults that programs of others meet, and say what they say of a real adapter's."""
    SOURCE = pathlib.Path(__file__).resolve().parents[2]

    def pingpong(self, fault, kind="rc"):
        """The exit status and the output of rdma-core's client; its server has no faults."""
        port = self.free_port()
        words = [f"ibv_{kind}_pingpong", "-n", "3000", "-s", "64", "-p", port]
        server = self.start("--", *words)
        self.wait_for(lambda: self.listens(port) or server.poll() is not None)
        client = self.start("--fault", fault, "--", *words, "localhost")
        out, err = client.communicate(timeout=LIMIT)
        self.end(server)
        return client.returncode, out + err

    def test_statuses_and_calls(self):
        exhausted = "transport retry counter exceeded (12)"
        for fault, code, text in (
                ("rnr:after=20,times=3,count=5", 0, "hit 5 of 3000"),
                ("delay:time=1ms,after=10,count=20", 0, "hit 20 of 3000"),
                ("slow:time=1us", 0, "completions are handled slowly"),
                ("timeout:after=50", 1, exhausted),
                ("error:status=rem_access_err,after=50", 1, "remote access error (10)"),
                ("error:status=rem_op_err,after=50", 1, "remote operation error (11)"),
                ("error:status=rnr_retry_exc_err,after=5", 1, "retry counter exceeded (13)"),
                ("qp_fatal:after=50", 1, "work request flushed (5)"),
                ("cq_overrun:after=20", 1, "poll CQ failed -1"),
                ("link_down", 1, exhausted),
                ("create:object=mr", 1, "Couldn't register MR"),
                ("create:object=qp", 1, "Couldn't create QP"),
                ("create:object=cq", 1, "Couldn't create CQ"),
                ("create:object=pd", 1, "Couldn't allocate PD"),
                ("device_fatal", 1, "Couldn't allocate PD")):
            with self.subTest(fault=fault):
                found, said = self.pingpong(fault)
                self.assertEqual(found, code, said)
                self.assertIn(text, said)
                self.assertIn(f"fault {fault}: ", said)

    def test_equal_seeds_are_equal_runs(self):
        def hits(seed):
            code, said = self.pingpong(f"rnr:probability=0.01,times=1; seed={seed}")
            self.assertEqual(code, 0, said)
            return re.search(r"hit (\d+) of 3000", said)[1]
        first = hits(1)
        self.assertEqual(hits(1), first)

    def test_mistakes_end_before_the_program(self):
        for fault, text in (("los", "unknown fault; expected loss, delay, "),
                            ("rnr:tims=3", "rnr takes KEY=VALUE"),
                            ("loss;seed=x", "seed=x")):
            with self.subTest(fault=fault):
                self.assertEqual(self.verbs("--fault", fault, "--", "echo", "here", code=1), "")
                self.assertTrue(self.err.startswith('turnout verbs: TURNOUT_FAULT: "'), self.err)
                self.assertIn(text, self.err)

    def test_the_page_names_what_there_is(self):
        """docs/faults.md has the faults and the keys of each that the adapter accepts."""
        self.verbs("--fault", "?", "--", "true", code=1)
        names = re.search(r"expected ([\w, ]+) or seed", self.err)[1].split(", ")
        page = (self.SOURCE / "docs/faults.md").read_text().split("## Which faults")[1].split("| key |")[0]
        keys = {row[0]: row[1] for row in re.findall(r"^\| `(\w+)` \| [^|]+ \| ((?:`\w+`(?:, )?)+) \|", page, re.M)}
        self.assertEqual(list(keys), names)
        for name in names:
            self.verbs("--fault", f"{name}:x", "--", "true", code=1)
            accepted = re.search(r"with the keys ([\w, ]+)", self.err)[1].split(", ")
            self.assertEqual(sorted(keys[name].strip("`").split("`, `")), sorted(accepted), name)

    def test_the_example_of_the_page(self):
        page = (self.SOURCE / "docs/faults.md").read_text()
        source = str(self.SOURCE / "examples/unchecked_send.c")
        said = {}
        for name, flags in (("unchecked", []), ("checked", ["-DCHECKED"])):
            program = str(self.scratch / name)
            subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", *flags, "-o", program, source, "-libverbs"],
                           check=True, timeout=LIMIT)
            self.assertEqual(self.verbs("--", program), "100 messages sent\n100 messages arrived\n")
            said[name] = self.verbs("--fault", "error:after=40", "--", program, code=int(name == "checked"))
        self.assertEqual(said["unchecked"], "100 messages sent\n40 messages arrived\n")
        for text in said.values():
            self.assertIn(text, page)


if __name__ == "__main__":
    BUILD = pathlib.Path(os.path.realpath(sys.argv.pop(1)))
    unittest.main()
