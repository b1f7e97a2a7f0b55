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

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scenario"))
from processes import START_S, STOP_S, Cell, Fails, Wrong, answer, enter  # noqa: E402


class Test(Cell):
    """A test of CRIU's, which writes its number and its verdict into files."""

    def __init__(self, scenario):
        super().__init__(scenario["dormouse"], scenario["env"])
        self.scenario = scenario
        self.name = scenario["name"]

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
        with open(f"/proc/{pid}/fd/101", "rb", buffering=0) as reply:
            with open(f"/proc/{pid}/fd/100", "wb", buffering=0) as message:
                message.write(bytes(4))
                reply.read(4)

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
        tracker = self.spawn(self.run_words(options, self.scenario["command"]), self.log)
        self.started(tracker, Wrong)
        self.tracked(tracker)
        return tracker

    def refused(self, why):
        """It was not persisted: it must not have noticed."""
        try:
            self.stop(Wrong)
        except Wrong as error:
            raise Wrong(f"refused ({why}), and then: {error}") from None
        return "refused", why

    def restore(self, *options):
        tracker = self.restored(*options)
        if self.exited(tracker):
            raise Wrong("it ended by itself after the restore: " + self.tracker_said())
        # A status is answered before the processes run; they are there.
        self.stop(Wrong)
        return "passed", ""

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
        self.killed(tracker)
        return self.restore()

    def background(self):
        self.run("--epoch-interval", "100ms", "--pause", "2s")
        obstacles = self.background_epoch()
        if obstacles:
            return self.refused(obstacles)
        self.others_end()
        return self.restore("--accept-changed-files")


def clean(hook):
    """Control groups outlive a namespace: the test's own hook removes them."""
    if os.access(hook, os.X_OK):
        with open("hook.log", "ab") as output:
            subprocess.run([hook, "--clean"], stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)


def main():
    scenario = json.loads(sys.argv[1])
    os.chdir(scenario["folder"])
    enter()
    cell = Test(scenario)
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
    answer({"outcome": outcome, "why": why})


main()
