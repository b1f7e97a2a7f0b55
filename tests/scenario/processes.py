"""The processes of one scenario, in namespaces of its own: starting them, asking the tracker, and the
end of everything that a power loss is. Used by tests/zdtm and tests/programs."""

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

# An emulated machine is many times slower.
SLOWNESS = int(os.environ.get("DORMOUSE_TEST_SLOWNESS", "1"))
# Longer than anything here takes on a busy machine.
START_S = 60 * SLOWNESS
PERSIST_S = 60 * SLOWNESS
RESTORE_S = 60 * SLOWNESS
STOP_S = 120 * SLOWNESS
POLL_S = 0.02
# In front of the command that runs a scenario.
NAMESPACES = [
    "unshare", "--fork", "--kill-child", "--pid", "--mount", "--mount-proc", "--net", "--ipc", "--uts",
]


def run_scenario(script, words, limit_s):
    """Runs a script in namespaces of its own; the outcome that it answers, or why it does not."""
    try:
        done = subprocess.run(
            NAMESPACES + [sys.executable, script, json.dumps(words)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=limit_s, check=False, text=True, errors="replace",
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"outcome": "wrong", "why": f"no end after {limit_s} s"}
    except (IndexError, ValueError):
        return {"outcome": "wrong", "why": "the scenario died: " + done.stderr.strip()[-300:]}


def keep(work, folder, endings):
    """Copies what a scenario wrote: the files of its folder with names that end so."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for file in os.listdir(work):
        if file.endswith(endings):
            shutil.copy(os.path.join(work, file), folder)


class Wrong(Exception):
    """A promise that was not kept."""


class Fails(Exception):
    """The program fails without us, too, or cannot start."""


def loopback_up():
    """`ip link set lo up`, also where there is no iproute2. See netdevice(7)."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, get_flags, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH22x", b"lo", flags | up))


def enter():
    """What a scenario needs besides its namespaces: a loopback device, and numbers of pseudo-terminals
    of its own. New devices get no link-local address: it is tentative at first, and a test of the
    configuration takes the end of that for a change of ours."""
    loopback_up()
    addresses = "/proc/sys/net/ipv6/conf/default/addr_gen_mode"
    if os.path.exists(addresses):
        with open(addresses, "w", encoding="ascii") as file:
            file.write("1")
    subprocess.run(
        ["mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620,gid=5", "devpts", "/dev/pts"], check=True
    )


def answer(outcome):
    """Prints the outcome and ends everything else in the namespace."""
    print(json.dumps(outcome), flush=True)
    os._exit(0)


class Cell:
    """This process is the first one of its namespace: what has no parent any more becomes its child,
    and is reaped here."""

    def __init__(self, dormouse, environment):
        self.dormouse_command = dormouse
        self.environment = dict(os.environ, **environment)
        self.ended = {}
        self.log = open("dormouse.log", "ab")

    def spawn(self, words, output, errors=None):
        """Starts a command; its number."""
        pid = os.fork()
        if pid:
            return pid
        try:
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output.fileno(), 1)
            os.dup2((errors or output).fileno(), 2)
            os.execvpe(words[0], words, self.environment)
        finally:
            os._exit(127)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.ended[pid] = os.waitstatus_to_exitcode(status)

    def until(self, limit_s, state):
        """Waits until `state()` is true; its value, or None after `limit_s`."""
        end = time.monotonic() + limit_s
        while True:
            self.reap()
            value = state()
            if value:
                return value
            if time.monotonic() > end:
                return None
            time.sleep(POLL_S)

    def exited(self, pid):
        self.reap()
        return pid in self.ended

    def dormouse(self, verb, *options, limit_s=PERSIST_S):
        """Runs a verb to its end: exit code (None: it hangs) and output."""
        words = [self.dormouse_command, "process", verb, "test", "--store", "store", *options]
        with open("verb.log", "wb") as output:
            pid = self.spawn(words, output)
        done = self.until(limit_s, lambda: pid in self.ended)
        with open("verb.log", encoding="utf-8", errors="replace") as output:
            text = output.read().strip()
        if not done:
            os.kill(pid, signal.SIGKILL)
            return None, text
        return self.ended[pid], text

    def status(self):
        code, text = self.dormouse("status", "--json")
        if code != 0:
            return {}
        try:
            return json.loads(text).get("tracker") or {}
        except ValueError:
            return {}

    def tracker_said(self):
        with open("dormouse.log", encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        return " ".join(lines[-3:])[-600:]

    def run_words(self, options, command):
        """The command that starts a tracked program."""
        words = [self.dormouse_command, "process", "run", "test", "--store", "store"]
        return words + ["--on-power-loss", "none", *options, "--", *command]

    def tracked(self, tracker):
        """Waits until a tracker that was just started answers."""
        if not self.until(START_S, lambda: self.exited(tracker) or self.status()):
            raise Wrong("its tracker does not answer")
        if self.exited(tracker):
            raise Wrong("the tracker ended: " + self.tracker_said())

    def persist(self, *options):
        """Whether it was persisted, and what was said."""
        code, text = self.dormouse("persist", *options)
        if code is None:
            raise Wrong("the persist hangs")
        return code == 0, text

    def killed(self, tracker):
        """After `persist --then kill`: the tracker's end, and that of all others."""
        if not self.until(RESTORE_S, lambda: self.exited(tracker)):
            raise Wrong("the tracker stays after --then kill")
        self.others_end()

    def restored(self, *options):
        """Starts a restore and waits until its tracker answers; the tracker's number. A program may
        have ended by then."""
        words = [self.dormouse_command, "process", "restore", "test", "--store", "store"]
        tracker = self.spawn(words + list(options), self.log)
        if not self.until(RESTORE_S, lambda: self.exited(tracker) or self.status()):
            raise Wrong("the restore hangs: " + self.tracker_said())
        if self.ended.get(tracker, 0) != 0:
            raise Wrong("the restore failed: " + self.tracker_said())
        return tracker

    def background_epoch(self):
        """Waits for an epoch that began after this call; what hinders it, if anything does."""
        first = self.status()
        epochs, rounds = first.get("epochs", 0), first.get("rounds", 0)

        def epoch_or_obstacle():
            status = self.status()
            # One epoch may have begun before this call.
            if status.get("epochs", 0) >= epochs + 2:
                return status
            # What was in the way before this call may be gone, as a program that starts is in many states. Each try of
            # an epoch stops the program after a round, and the one after the second round replaces what is reported.
            if status.get("rounds", 0) < rounds + 2:
                return None
            return status if status.get("obstacles") else None

        status = self.until(PERSIST_S, epoch_or_obstacle)
        if not status:
            raise Wrong("no background epoch: " + self.tracker_said())
        return "\n".join(status.get("obstacles") or [])

    def others_end(self):
        """What a power loss does to all others."""
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass

        def all_gone():
            return [p for p in os.listdir("/proc") if p.isdigit()] == ["1"]

        if not self.until(STOP_S, all_gone):
            raise Wrong("processes remain after kill -9")
