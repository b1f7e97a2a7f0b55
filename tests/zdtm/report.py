"""What a run of ZDTM comes to: the list of refusals, the table, the exit code."""

import datetime
import json
import os
import re
import subprocess

import page

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected.txt")
BEGIN = "<!-- zdtm: begin -->"
END = "<!-- zdtm: end -->"
MACHINES_BEGIN = "<!-- zdtm in machines: begin -->"
MACHINES_END = "<!-- zdtm in machines: end -->"
KINDS = ["passed", "refused", "differs", "wrong", "fails alone"]


def one_line(why):
    """The first reason, without the number and name of its process."""
    lines = [line for line in why.splitlines() if ": not supported" in line] or why.splitlines() or [""]
    return re.sub(r"^(dormouse: |error: )*(process \d+ \([^)]*\): )?", "", lines[0]).removesuffix(": not supported")


def listed():
    """Tests that are expected not to pass, by name: outcome and reason."""
    reasons = {}
    with open(LIST, encoding="utf-8") as file:
        for line in file:
            words = line.split(None, 2)
            if len(words) == 3 and not line.startswith("#"):
                reasons[words[0]] = (words[1], words[2].strip())
    return reasons


def kind_of(name, outcome, reasons):
    """The kind of an outcome: a verdict may be bad for a known and documented reason."""
    return "differs" if outcome == "wrong" and reasons.get(name, ("",))[0] == "differs" else outcome


def sorted_by_kind(total):
    """Names of the tests of each kind."""
    reasons = listed()
    for name, result in total.items():
        total[name] = (kind_of(name, result[0], reasons), *result[1:])
    return {kind: sorted(name for name, result in total.items() if result[0] == kind) for kind in KINDS}


def finish(total, options, version):
    """Prints the sum and what is not as it should be; the exit code."""
    reasons = listed()
    by_kind = sorted_by_kind(total)
    unlisted = [name for name in by_kind["refused"] if reasons.get(name, ("",))[0] != "refused"]
    better = [name for name in by_kind["passed"] if name in reasons]
    print()
    for name in by_kind["wrong"]:
        print(f"wrong: {name} ({total[name][1]}): {one_line(total[name][2])}")
    for name in unlisted:
        print(f"refused, and not in expected.txt: {name}: {one_line(total[name][2])}")
    for name in better:
        print(f"passes, and is still in expected.txt: {name}")
    print(", ".join(f"{len(by_kind[kind])} {kind}" for kind in KINDS) + f" of {len(total)} (CRIU {version})")
    if options.publish:
        publish(options.publish, total, by_kind, version)
    failed = len(by_kind["wrong"]) + len(unlisted)
    print(f"{len(total) - failed - len(by_kind['fails alone'])} passed, {failed} failed, "
          f"{len(by_kind['fails alone'])} skipped")
    return 1 if failed else 0


def publish(path, total, by_kind, version):
    """Puts the table between its marks in a page."""
    reasons = listed()
    said = subprocess.run(["gcc", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    lines = [
        f"Measured on {datetime.date.today().isoformat()} with `make test-zdtm`: Linux {os.uname().release}, "
        f"{os.cpu_count()} processors, CRIU {version}, {said.splitlines()[0] if said else 'no gcc'}.",
        "",
        "| outcome | tests |",
        "|---|---|",
    ]
    lines += [f"| {kind} | {len(by_kind[kind])} |" for kind in KINDS]
    for kind, title in (("refused", "refused test"), ("differs", "different test")):
        lines += ["", f"| {title} | reason |", "|---|---|"]
        for name in by_kind[kind]:
            lines.append(f"| `{name}` | {reasons.get(name, ('', ''))[1] or one_line(total[name][2])} |")
    if by_kind["wrong"]:
        lines += ["", "| wrong | when | what |", "|---|---|---|"]
        for name in by_kind["wrong"]:
            lines.append(f"| `{name}` | {total[name][1]} | {one_line(total[name][2]).replace('|', '/')} |")
    lines += ["", "Tests that fail here without Dormouse: " + ", ".join(f"`{n}`" for n in by_kind["fails alone"]) + "."]
    page.replace(path, BEGIN, END, lines)


def publish_machine(path, state, kernel, total, number, version):
    """Puts what was measured in the emulated machine, on this kernel and before on others, between its marks.
    `state` is the file that remembers the others."""
    by_kind = sorted_by_kind(total)
    rows = {}
    if os.path.exists(state):
        with open(state, encoding="utf-8") as file:
            rows = json.load(file)
    rows[kernel] = {
        "date": datetime.date.today().isoformat(),
        "version": version,
        "tests": f"{len(total)} of {number}",
        "kinds": [len(by_kind[kind]) for kind in KINDS],
        "wrong": {name: [total[name][1], one_line(total[name][2]).replace("|", "/")] for name in by_kind["wrong"]},
    }
    with open(state, "w", encoding="utf-8") as file:
        json.dump(rows, file)
    lines = [
        "| kernel | date | CRIU | tests | " + " | ".join(KINDS) + " |",
        "|---|---|---|---|" + "---|" * len(KINDS),
    ]
    for name, row in sorted(rows.items()):
        lines.append(
            f"| {name} | {row['date']} | {row['version']} | {row['tests']} | "
            + " | ".join(str(count) for count in row["kinds"]) + " |"
        )
    wrong = [(name, test, *what) for name, row in sorted(rows.items()) for test, what in sorted(row["wrong"].items())]
    if wrong:
        lines += ["", "| kernel | wrong | when | what |", "|---|---|---|---|"]
        lines += [f"| {kernel} | `{test}` | {mode} | {what} |" for kernel, test, mode, what in wrong]
    page.replace(path, MACHINES_BEGIN, MACHINES_END, lines)
