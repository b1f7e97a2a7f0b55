"""One scenario of one program, as the first process of namespaces of its own: see programs.py.

    alone       the program without Dormouse: what it answers, or what it computes
    continue    persisted while it runs
    kill        persisted and killed, everything else killed, restored
    background  a background epoch, kill -9 of everything, restored

A service must answer as before, with the same words; a job, which is lost at several instants drawn by
the seed, must end with the output of an uninterrupted run. Reads the scenario as JSON from its argument
and prints the outcome as JSON: {"outcome": "passed" | "newer" | "refused" | "wrong" | "fails alone",
"why": "..."}, and for a job alone its output and time. "newer": the restore is refused because the
program wrote to files after the epoch, or removed them, which a restore does not take back. A job's output
file is such a file; jobs write the same again, so their restores accept files with other contents.
"""

import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scenario"))
from processes import Cell, Fails, Wrong, answer, enter  # noqa: E402

# A browser or a database on a busy machine.
READY_S = 180
QUERY_S = 60
# A job takes seconds alone.
JOB_S = 900
LOSSES = 3
OUTPUT = "job.out"
# What a restore says that is refused because files were written or removed after the last epoch.
NEWER = ("changed since the program was persisted", "No such file or directory (os error 2); the program had it open")


def newer(error):
    return any(words in str(error) for words in NEWER)


class Program(Cell):
    def __init__(self, scenario):
        super().__init__(scenario["dormouse"], {"HOME": os.getcwd(), "LC_ALL": "C.UTF-8"})
        self.program = scenario["program"]
        self.random = random.Random(scenario["seed"])
        self.alone_outcome = scenario.get("alone") or {}

    def command(self):
        # A job's output is a file of its own: that of its tracker would be the restore's afterwards.
        output = f" >{OUTPUT}" if self.program["kind"] == "job" else ""
        return ["bash", "-c", f"exec {self.program['command']}{output}"]

    def tracker_words(self, mode):
        interval = ["--epoch-interval", "300ms", "--pause", "2s"] if mode == "background" else ["--epoch-interval", "1h"]
        return self.run_words(interval, self.command())

    def shell(self, line):
        """What a line of shell prints; None if it fails."""
        with open("shell.out", "wb") as output, open("shell.err", "wb") as errors:
            pid = self.spawn(["bash", "-c", "set -eo pipefail; " + line], output, errors)
        done = self.until(QUERY_S, lambda: pid in self.ended)
        if not done:
            os.kill(pid, 9)
            return None
        with open("shell.out", encoding="utf-8", errors="replace") as output:
            text = output.read()
        return text if self.ended[pid] == 0 else None

    def said(self):
        with open("shell.err", encoding="utf-8", errors="replace") as errors:
            return errors.read().strip()[-200:]

    def set_up(self):
        line = self.program.get("setup")
        if line and self.shell(line) is None:
            raise Fails("its setup fails: " + self.said())

    def take(self, mode):
        """Persists it, or waits for an epoch; what hinders that."""
        if mode == "background":
            return self.background_epoch()
        done, why = self.persist(*(["--then", "kill"] if mode == "kill" else []))
        return "" if done else why

    # Services.

    def state(self, error):
        text = self.shell(self.program["state"])
        if text is None or not text.strip():
            raise error("it does not answer: " + self.said())
        return text

    def serves(self, pid, error):
        """Waits until it is ready, gives it something to keep, and returns what it answers."""
        ready = self.program.get("ready") or self.program["state"]
        if not self.until(READY_S, lambda: self.exited(pid) or self.shell(ready) is not None):
            raise error("it does not get ready: " + self.said())
        if self.exited(pid):
            raise error("it does not start: " + self.tracker_said())
        work = self.program.get("work")
        if work and self.shell(work) is None:
            raise error("it does not work: " + self.said())
        return self.state(error)

    def same(self, before, when):
        after = self.state(Wrong)
        if after != before:
            raise Wrong(f"{when} it answers otherwise: {after.strip()[:120]!r} instead of {before.strip()[:120]!r}")
        use = self.program.get("use")
        if use and self.shell(use) is None:
            raise Wrong(f"{when} it does not work: {self.said()}")

    def service(self, mode):
        if mode == "alone":
            pid = self.spawn(self.command(), self.log)
            before = self.serves(pid, Fails)
            if self.state(Fails) != before:
                raise Fails("its answer changes by itself: the table asks the wrong thing")
            return {"outcome": "passed", "why": ""}
        tracker = self.spawn(self.tracker_words(mode), self.log)
        self.tracked(tracker)
        before = self.serves(tracker, Wrong)
        why = self.take(mode)
        if why:
            self.same(before, f"refused ({why}), and then")
            return {"outcome": "refused", "why": why}
        if mode == "continue":
            self.same(before, "after a persist")
            return {"outcome": "passed", "why": ""}
        if mode == "kill":
            self.killed(tracker)
            self.restored()
        else:
            self.others_end()
            try:
                self.restored()
            except Wrong as error:
                if not newer(error):
                    raise
                return {"outcome": "newer", "why": str(error)}
        self.same(before, "after the restore")
        # It can be persisted again.
        done, why = self.persist()
        if not done:
            raise Wrong("after the restore it cannot be persisted: " + why)
        self.same(before, "after the restore and another persist")
        return {"outcome": "passed", "why": ""}

    # Jobs.

    def output(self):
        with open(OUTPUT, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ends(self, pid, error):
        if not self.until(JOB_S, lambda: pid in self.ended):
            raise error("the job does not end: " + self.tracker_said())
        if self.ended[pid] != 0:
            raise error(f"the job ends with {self.ended[pid]}: {self.tracker_said()}")

    def job(self, mode):
        began = time.monotonic()
        words = self.command() if mode == "alone" else self.tracker_words(mode)
        tracker = self.spawn(words, self.log)
        if mode == "alone":
            self.ends(tracker, Fails)
            if not self.output().strip():
                raise Fails("the job prints nothing")
            return {"outcome": "passed", "why": "", "output": self.output(), "time_s": time.monotonic() - began}
        losses = 0
        for _ in range(LOSSES):
            wait_s = self.random.uniform(0, self.alone_outcome["time_s"])
            self.until(wait_s, lambda: self.exited(tracker))
            self.until(READY_S, lambda: self.exited(tracker) or self.status())
            if self.exited(tracker):
                break
            try:
                why = self.take(mode)
            except Wrong:
                if not self.exited(tracker):
                    raise
                break
            # It may have ended by itself just before.
            if why and (self.exited(tracker) or not self.status()):
                break
            if why:
                self.ends(tracker, Wrong)
                self.equal("refused, and then")
                return {"outcome": "refused", "why": why}
            losses += 1
            if mode == "continue":
                continue
            if mode == "kill":
                self.killed(tracker)
                tracker = self.restored()
            else:
                self.others_end()
                try:
                    tracker = self.restored("--accept-changed-files")
                except Wrong as error:
                    if not newer(error):
                        raise
                    return {"outcome": "newer", "why": str(error)}
        self.ends(tracker, Wrong)
        self.equal(f"after {losses} losses")
        return {"outcome": "passed", "why": "", "losses": losses if mode != "continue" else 0}

    def equal(self, when):
        expected = self.alone_outcome["output"]
        got = self.output()
        if got != expected:
            raise Wrong(f"{when} its output differs: {got.strip()[-120:]!r} instead of {expected.strip()[-120:]!r}")


def main():
    scenario = json.loads(sys.argv[1])
    os.chdir(scenario["folder"])
    enter()
    program = Program(scenario)
    mode = scenario["mode"]
    try:
        program.set_up()
        outcome = program.job(mode) if program.program["kind"] == "job" else program.service(mode)
    except Wrong as error:
        outcome = {"outcome": "wrong", "why": str(error)}
    except Fails as error:
        outcome = {"outcome": "fails alone", "why": str(error)}
    except subprocess.CalledProcessError as error:
        outcome = {"outcome": "fails alone", "why": str(error)}
    answer(outcome)


main()
