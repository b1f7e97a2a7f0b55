"""One scenario of one test, as the first process of namespaces of its own: see zdtm.py.

    alone       the test by itself: start, SIGTERM, verdict
    continue    start, persist, SIGTERM, verdict
    kill        start, persist --then kill, restore, SIGTERM, verdict
    background  start, a background epoch, kill -9 of everything, restore, SIGTERM, verdict

Reads the scenario as JSON from its argument and prints the outcome as JSON:
{"outcome": "passed" | "refused" | "wrong" | "fails alone", "why": "..."}.
"""

import json
import os
import signal
import subprocess
import sys
import time

# Longer than anything here takes on a busy machine.
START_S = 60
PERSIST_S = 60
RESTORE_S = 60
STOP_S = 120
POLL_S = 0.02


class Wrong(Exception):
    """A promise that was not kept."""


class Fails(Exception):
    """The test fails without us, too, or cannot start."""


class Cell:
    """The processes of one scenario. This process is the first one of its namespace: what has no
    parent any more becomes its child, and is reaped here."""

    def __init__(self, scenario):
        self.scenario = scenario
        self.name = scenario["name"]
        self.ended = {}
        self.log = open("dormouse.log", "ab")

    def spawn(self, words, output):
        """Starts a command; its number."""
        pid = os.fork()
        if pid:
            return pid
        try:
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            os.execvpe(words[0], words, dict(os.environ, **self.scenario["env"]))
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
        words = [self.scenario["dormouse"], "process", verb, "test", "--store", "store", *options]
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

    # The test.

    def pid(self):
        try:
            with open(self.name + ".pid", encoding="ascii") as file:
                return int(file.read() or 0)
        except (FileNotFoundError, ValueError):
            return 0

    def started(self, starter, error):
        """Waits until the test says that it is ready."""
        self.until(START_S, lambda: self.pid() or starter in self.ended)
        # The file may have come with the end of the starter.
        if not self.pid():
            raise error("it does not start: " + self.verdict_text())
        self.notify()

    def notify(self):
        """The message that some tests want before they are dumped."""
        if "ZDTM_NOTIFY_FDIN" not in self.scenario["env"]:
            return
        pid = self.pid()
        with open(f"/proc/{pid}/fd/101", "rb", buffering=0) as answer:
            with open(f"/proc/{pid}/fd/100", "wb", buffering=0) as message:
                message.write(bytes(4))
                answer.read(4)

    def verdict_text(self):
        for suffix in (".out", ".out.inprogress"):
            try:
                with open(self.name + suffix, encoding="utf-8", errors="replace") as file:
                    lines = [line.strip() for line in file if line.strip()]
            except FileNotFoundError:
                continue
            failed = [line for line in lines if "FAIL" in line or "ERR" in line]
            return " ".join((failed or lines)[-2:])[-400:] or "no word of it"
        return "no output of it"

    def stop(self, error):
        """Asks the test for its verdict, as CRIU's own harness does."""
        pid = self.pid()
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            raise error(f"process {pid} is gone: {self.verdict_text()}") from None
        if not self.until(STOP_S, lambda: not os.path.exists(f"/proc/{pid}")):
            raise error(f"it does not end: {self.verdict_text()}")
        try:
            with open(self.name + ".out", encoding="utf-8", errors="replace") as file:
                words = file.read().split()
        except FileNotFoundError:
            words = []
        if "PASS" not in words:
            raise error(self.verdict_text())

    # The scenarios.

    def alone(self):
        with open("alone.log", "wb") as output:
            starter = self.spawn(self.scenario["command"], output)
        self.started(starter, Fails)
        # As CRIU's harness leaves a test at work for a while.
        time.sleep(0.1)
        self.stop(Fails)
        return "passed", ""

    def run(self, *options):
        words = [self.scenario["dormouse"], "process", "run", "test", "--store", "store"]
        words += ["--on-power-loss", "none", *options, "--", *self.scenario["command"]]
        tracker = self.spawn(words, self.log)
        self.started(tracker, Wrong)
        if not self.until(START_S, lambda: self.exited(tracker) or self.status()):
            raise Wrong("its tracker does not answer")
        if self.exited(tracker):
            raise Wrong("the tracker ended: " + self.tracker_said())
        return tracker

    def refused(self, why):
        """It was not persisted: it must not have noticed."""
        try:
            self.stop(Wrong)
        except Wrong as error:
            raise Wrong(f"refused ({why}), and then: {error}") from None
        return "refused", why

    def restore(self, *options):
        words = [self.scenario["dormouse"], "process", "restore", "test", "--store", "store"]
        tracker = self.spawn(words + list(options), self.log)
        if not self.until(RESTORE_S, lambda: self.exited(tracker) or self.status()):
            raise Wrong("the restore hangs: " + self.tracker_said())
        if self.exited(tracker):
            raise Wrong("the restore failed: " + self.tracker_said())
        # A status is answered before the processes run; they are there.
        self.stop(Wrong)
        return "passed", ""

    def persist(self, *options):
        code, text = self.dormouse("persist", *options)
        if code is None:
            raise Wrong("the persist hangs")
        return code == 0, text

    def go_on(self):
        self.run("--epoch-interval", "1h")
        done, text = self.persist()
        if not done:
            return self.refused(text)
        self.stop(Wrong)
        return "passed", ""

    def kill(self):
        tracker = self.run("--epoch-interval", "1h")
        done, text = self.persist("--then", "kill")
        if not done:
            return self.refused(text)
        if not self.until(RESTORE_S, lambda: self.exited(tracker)):
            raise Wrong("the tracker stays after --then kill")
        self.others_end()
        return self.restore()

    def background(self):
        self.run("--epoch-interval", "100ms", "--pause", "2s")
        first = self.status().get("epochs", 0)

        def epoch_or_obstacle():
            status = self.status()
            # One epoch may have begun before the test was ready.
            if status.get("epochs", 0) >= first + 2:
                return status
            return status if status.get("obstacles") else None

        status = self.until(PERSIST_S, epoch_or_obstacle)
        if not status:
            raise Wrong("no background epoch: " + self.tracker_said())
        if status.get("obstacles"):
            return self.refused("\n".join(status["obstacles"]))
        self.others_end()
        return self.restore("--accept-changed-files")

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


def clean(hook):
    """Control groups outlive a namespace: the test's own hook removes them."""
    if os.access(hook, os.X_OK):
        with open("hook.log", "ab") as output:
            subprocess.run([hook, "--clean"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)


def main():
    scenario = json.loads(sys.argv[1])
    os.chdir(scenario["folder"])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Numbers of pseudo-terminals are this scenario's own.
    subprocess.run(["mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620,gid=5", "devpts", "/dev/pts"], check=True)
    cell = Cell(scenario)
    clean(scenario["hook"])
    scenarios = {
        "alone": cell.alone,
        "continue": cell.go_on,
        "kill": cell.kill,
        "background": cell.background,
    }
    try:
        outcome, why = scenarios[scenario["mode"]]()
    except Wrong as error:
        outcome, why = "wrong", str(error)
    except Fails as error:
        outcome, why = "fails alone", str(error)
    clean(scenario["hook"])
    print(json.dumps({"outcome": outcome, "why": why}))
    sys.stdout.flush()
    # Everything else in the namespace ends with this process.
    os._exit(0)


main()
