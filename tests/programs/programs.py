#!/usr/bin/env python3
"""Programs of the distribution, run with Dormouse and killed: do they come back the same?

programs.toml lists them. Each is run alone first, then persisted while it runs, persisted and killed and
restored, and killed after a background epoch and restored, each time in namespaces and a folder of its
own. A service must answer as before, with the same words; a job is lost up to three times at instants
drawn by the seed, and must end with the output of an uninterrupted run.

Outcomes: passed; newer (passed, but after the loss the restore is refused because the program wrote to
files after its last epoch, or removed them); refused (by name, while the program runs, and it goes on as before); wrong;
fails alone (without Dormouse, on this machine). A program that is wrong, or refused without a reason in
programs.toml (`refused = "..."`), fails the run.
"""

import datetime
import json
import os
import shutil
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "scenario"))

import options as options_of_suites  # noqa: E402
import page  # noqa: E402
import processes  # noqa: E402

TABLE = os.path.join(HERE, "programs.toml")
BEGIN = "<!-- programs: begin -->"
END = "<!-- programs: end -->"
# Longer than all limits of a scenario together.
SCENARIO_S = 2400
# What the program and its tracker write.
LOGS = ("dormouse.log", "verb.log", "shell.out", "shell.err", "job.out")


def say(text):
    print(f"programs: {text}", file=sys.stderr, flush=True)


def scenario(name, mode, program, alone, options):
    """Runs one scenario; its outcome."""
    # Some programs give up root: they must reach their folder.
    work = tempfile.mkdtemp(prefix=f"{name}.{mode}.", dir=options.work)
    os.chmod(work, 0o755)
    words = {
        "program": program, "mode": mode, "folder": work, "dormouse": options.dormouse, "alone": alone,
        "seed": f"{options.seed} {name} {mode}",
    }
    outcome = processes.run_scenario(os.path.join(HERE, "cell.py"), words, SCENARIO_S)
    if outcome["outcome"] not in ("passed", "newer"):
        processes.keep(work, os.path.join(options.out, "logs", f"{name}.{mode}"), LOGS)
    shutil.rmtree(work, ignore_errors=True)
    return outcome


def run_program(name, program, options):
    """All scenarios of a program: the worst outcome, where, and why."""
    outcomes = {}
    for mode in ["alone"] + [mode for mode in options.modes if mode != "alone"]:
        outcomes[mode] = scenario(name, mode, program, outcomes.get("alone"), options)
        if mode == "alone" and outcomes[mode]["outcome"] != "passed":
            break
    for kind in ("fails alone", "wrong", "refused", "newer"):
        for mode, outcome in outcomes.items():
            if outcome["outcome"] == kind:
                return kind, mode, outcome["why"], 0
    return "passed", "", "", sum(outcome.get("losses", 0) for outcome in outcomes.values())


def arguments():
    parser = options_of_suites.parser(__doc__, "programs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs of programs.toml; default: all")
    return options_of_suites.parse(parser)


def main():
    options = arguments()
    with open(TABLE, "rb") as file:
        table = tomllib.load(file)
    unknown = set(options.names) - set(table)
    if unknown:
        say(f"not in programs.toml: {', '.join(sorted(unknown))}")
        return 2
    lack = options_of_suites.lacks(options)
    if lack:
        say(lack)
        return 3
    os.makedirs(options.out, exist_ok=True)
    options.work = options_of_suites.folder("programs")
    chosen = options.names or list(table)
    results = {}
    try:
        for number, name in enumerate(chosen, 1):
            results[name] = run_program(name, table[name], options)
            kind, mode, why, losses = results[name]
            where = f" ({mode}): {why}" if kind != "passed" else f", {losses} losses" if losses else ""
            print(f"{number}/{len(chosen)} {name}: {kind}{where}", flush=True)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        shutil.rmtree(options.work, ignore_errors=True)
    return finish(results, table, options)


def finish(results, table, options):
    """Prints the sum, publishes the table, and gives the exit code."""
    unlisted = [name for name, result in results.items() if result[0] == "refused" and "refused" not in table[name]]
    wrong = [name for name, result in results.items() if result[0] == "wrong"]
    alone = [name for name, result in results.items() if result[0] == "fails alone"]
    for name in unlisted:
        print(f"refused, and programs.toml has no reason: {name}: {results[name][2]}")
    failed = len(unlisted) + len(wrong)
    if options.publish:
        publish(options.publish, results, table)
    print(f"{len(results) - failed - len(alone)} passed, {failed} failed, {len(alone)} skipped")
    return 1 if failed else 0


def publish(path, results, table):
    lines = [
        f"Measured on {datetime.date.today().isoformat()} with `make test-programs`: Linux {os.uname().release}, "
        f"{os.cpu_count()} processors.",
        "",
        "| program | what is compared | result |",
        "|---|---|---|",
    ]
    for name, (kind, mode, why, losses) in sorted(results.items()):
        said = {
            "passed": "same" + (f", {losses} losses" if losses else ""),
            "newer": "same; from a background epoch refused, because it had written to or removed files since",
        }.get(kind)
        reason = table[name].get("refused") or (why.splitlines() or [""])[0].replace("|", "/")
        lines.append(f"| {name} | {table[name]['compares']} | {said or f'{kind} ({mode}): {reason}'} |")
    page.replace(path, BEGIN, END, lines)


if __name__ == "__main__":
    sys.exit(main())
