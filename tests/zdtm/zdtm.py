#!/usr/bin/env python3
"""CRIU's own test suite, ZDTM, run with Dormouse in place of CRIU.

Each test starts under `dormouse process run` and is judged by its own verdict
after it was persisted and went on, after it was persisted, killed and restored, and after a
background epoch, kill -9 of everything, and a restore. Every scenario runs in namespaces of its
own (PIDs, mounts, network, IPC), so that tests run side by side and nothing stays behind.

Outcomes: passed; refused (by name, while the test runs, and the test then passes); differs (its
verdict is bad for a reason that is documented, or is CRIU's own); wrong; fails alone (without
Dormouse, on this machine). expected.txt lists the refused and the different ones with their reasons.
A test that is wrong, or refused and not in the list, fails the run.
"""

import ast
import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import random
import re
import shutil
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "scenario"))

import options as options_of_suites  # noqa: E402
import prepared  # noqa: E402
import processes  # noqa: E402
import report  # noqa: E402
import source  # noqa: E402

# Longer than all limits of a scenario together.
SCENARIO_S = 600 * processes.SLOWNESS
# What tests and trackers write.
LOGS = (".log", ".out", ".inprogress")
# Names of tests that see each other in spite of namespaces: one at a time. CRIU's harness runs them alone (`excl`).
NOT_APART = ("binfmt_misc", "cgroup")
ONE_AT_A_TIME = threading.Lock()
# As CRIU's harness: tests that are not marked `suid` give up their rights.
USER = {"ZDTM_UID": "18943", "ZDTM_GID": "58467", "ZDTM_GROUPS": "27495 48244"}


def say(text):
    print(f"zdtm: {text}", file=sys.stderr, flush=True)


def description(static, name):
    try:
        with open(os.path.join(static, f"{name}.desc"), encoding="utf-8") as file:
            text = file.read().strip()
            return ast.literal_eval(text) if text else {}
    except FileNotFoundError:
        return {}
    except ValueError:
        # An expression: of one test, which wants a mount point that its environment names.
        return {"flags": "noauto"}


def descriptions(static):
    """The tests for this architecture that built, with what is said of them. Those that CRIU runs in
    namespaces only run here, too: each scenario has namespaces of its own."""
    found = {}
    for file in sorted(os.listdir(static)):
        name, suffix = os.path.splitext(file)
        if suffix != ".c" or not os.access(os.path.join(static, name), os.X_OK):
            continue
        about = description(static, name)
        machines = about.get("arch", "x86_64").split()
        flags = about.get("flags", "").split()
        if os.uname().machine in machines and "noauto" not in flags:
            found[name] = about
    return found


def scenario(test, mode, options):
    """Runs one scenario; its outcome and why."""
    name, about, command = test
    work = tempfile.mkdtemp(prefix=f"{name}.{mode}.", dir=options.work)
    os.chmod(work, 0o777)
    flags = about.get("flags", "").split()
    environment = {} if "suid" in flags else dict(USER)
    if processes.SLOWNESS > 1:
        # The seconds of a poll, in which a test must have been persisted and restored; 5 without a word.
        environment["ZDTM_DELTA"] = str(5 * processes.SLOWNESS)
    if "pre-dump-notify" in flags:
        environment.update(ZDTM_NOTIFY_FDIN="100", ZDTM_NOTIFY_FDOUT="101")
    shutil.copy(os.path.join(options.static, name), work)
    if command is None:
        return {"outcome": "fails alone", "why": "CRIU's Makefile does not start it"}
    # Programs of the test's own that are not in the list of tests.
    for helper in os.listdir(options.static):
        if helper.startswith(name) and helper.endswith((".so", ".sh")):
            shutil.copy(os.path.join(options.static, helper), work)
    words = {
        "name": name, "mode": mode, "command": command, "env": environment,
        "folder": work, "dormouse": options.dormouse,
        "hook": os.path.join(options.static, f"{name}.hook"),
    }
    outcome = processes.run_scenario(os.path.join(HERE, "cell.py"), words, SCENARIO_S)
    if outcome["outcome"] != "passed":
        processes.keep(work, os.path.join(options.out, "logs", f"{name}.{mode}"), LOGS)
    shutil.rmtree(work, ignore_errors=True)
    return outcome


def run_test(test, options, known):
    """All scenarios of a test, from the results that are known where there are some."""
    name, about, _ = test
    outcomes = {}
    for mode in options.modes:
        if mode == "continue" and "reqrst" in about.get("flags", "").split():
            continue
        outcome = known.get((name, mode))
        if outcome is None:
            if time.monotonic() > options.end:
                return name, None
            with ONE_AT_A_TIME if name.startswith(NOT_APART) else contextlib.nullcontext():
                outcome = scenario(test, mode, options)
        outcomes[mode] = outcome
        options.record(name, mode, outcome)
        if mode == "alone" and outcome["outcome"] != "passed":
            break
    return name, outcomes


def worst(outcomes):
    """What a test's scenarios come to, and why."""
    for kind in ("fails alone", "wrong", "refused"):
        for mode, outcome in outcomes.items():
            if outcome["outcome"] == kind:
                return kind, mode, outcome["why"]
    return "passed", "", ""


def chosen(tests, options):
    pattern = re.compile(options.only) if options.only else None
    if pattern:
        tests = {name: about for name, about in tests.items() if pattern.search(name)}
    if options.sample and options.sample < len(tests):
        drawn = random.Random(options.seed).sample(sorted(tests), options.sample)
        tests = {name: tests[name] for name in sorted(drawn)}
    return tests


def tests_of(options):
    """The chosen tests: name, description, command; and the version of the suite."""
    if options.prepared:
        options.static, known, version = prepared.read(options.prepared)
        tests = [(name, test["about"], test["command"]) for name, test in chosen(known, options).items()]
        # Whenever time is over, those that ran are a sample.
        random.Random(options.seed).shuffle(tests)
        return tests, version
    options.static, version = source.build(say)
    tests = chosen(descriptions(options.static), options)
    if options.prepare:
        return tests, version
    return [(name, about, source.command_of(options.static, name)) for name, about in tests.items()], version


def stamp(options):
    """Results are taken over as long as this stays the same."""
    digest = hashlib.sha256(os.uname().release.encode())
    for path in (options.dormouse, os.path.join(HERE, "cell.py"), processes.__file__):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def results_in(lines):
    """The results in lines of a journal; what a loss of power left in place of a line is none."""
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            pass


def known_results(path, mark, fresh):
    known = {}
    if os.path.exists(path) and not fresh:
        with open(path, encoding="utf-8", errors="replace") as file:
            for result in results_in(file):
                # What a test does without us does not depend on us.
                if result["stamp"] == mark or (result["mode"] == "alone" and result["outcome"] == "passed"):
                    known[result["name"], result["mode"]] = {"outcome": result["outcome"], "why": result["why"]}
    return known


def arguments():
    parser = options_of_suites.parser(__doc__, "zdtm")
    parser.add_argument("--only", metavar="PATTERN", help="tests of which the name matches")
    parser.add_argument("--sample", type=int, metavar="N", help="N tests, drawn by the seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="scenarios side by side")
    parser.add_argument("--fresh", action="store_true", help="forget results of this build")
    parser.add_argument("--prepare", metavar="DIR", help="write the built tests into this folder, and run nothing")
    parser.add_argument("--prepared", metavar="DIR", help="take the tests from such a folder, in random order")
    parser.add_argument("--time-limit", type=float, default=math.inf, metavar="S", help="begin no scenario after that")
    return options_of_suites.parse(parser)


def main():
    options = arguments()
    lack = options_of_suites.lacks(options)
    if lack:
        say(lack)
        return 3
    options.end = time.monotonic() + options.time_limit
    try:
        tests, version = tests_of(options)
    except source.Missing as error:
        say(error)
        return 3
    if options.prepare:
        prepared.write(options.prepare, options.static, tests, version)
        return 0
    os.makedirs(options.out, exist_ok=True)
    results_path = os.path.join(options.out, "results.jsonl")
    mark = stamp(options)
    known = known_results(results_path, mark, options.fresh)
    total = {}
    options.work = options_of_suites.folder("zdtm")
    with open(results_path, "a", encoding="utf-8") as results:

        def record(name, mode, outcome):
            if (name, mode) not in known:
                line = {"name": name, "mode": mode, "stamp": mark, **outcome}
                results.write(json.dumps(line) + "\n")
                results.flush()
                os.fsync(results.fileno())

        options.record = record
        try:
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                runs = [pool.submit(run_test, test, options, known) for test in tests]
                reasons = report.listed()
                for number, run in enumerate(concurrent.futures.as_completed(runs), 1):
                    name, outcomes = run.result()
                    if outcomes is None:
                        continue
                    total[name] = (*worst(outcomes), outcomes)
                    outcome, mode, why = total[name][:3]
                    kind = report.kind_of(name, outcome, reasons)
                    where = f" ({mode})" if kind == "wrong" else ""
                    print(f"{number}/{len(tests)} {name}: {kind}{where} {report.one_line(why)}", flush=True)
        except KeyboardInterrupt:
            say("interrupted; the same command goes on from here")
            os._exit(1)
        finally:
            shutil.rmtree(options.work, ignore_errors=True)
    return report.finish(total, options, version)


if __name__ == "__main__":
    sys.exit(main())
