#!/usr/bin/env python3
"""CRIU's test suite in the emulated machine, on one of the archive's kernels.

The tests are built here and copied to a disk of the machine, which runs zdtm.py. The machine is kept
with its results: the same command goes on where it was, and --time-limit ends a part of the run in good
order. Tests come in random order, so those that ran so far are a sample.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "scenario"))

import kernel  # noqa: E402
import options as options_of_suites  # noqa: E402
import report  # noqa: E402
from zdtm import results_in, worst  # noqa: E402

# Emulated processors are about so much slower.
SLOWNESS = 10
# Tests wait more than they compute, and some do nothing until they are given up.
JOBS = 4
# For booting and what follows the last scenario that began.
SPARE_S = 900
RESULTS = "results"
# In the machine. Its root disk has no package manager, so libraries and programs come along. A module that is
# missing is loaded as soon as a test needs it, as anywhere else.
SCRIPT = """
for library in /mnt/scratch/lib/* /mnt/scratch/root/usr/lib/x86_64-linux-gnu/*; do
    [ -e "/usr/lib/x86_64-linux-gnu/${library##*/}" ] || cp -r "$library" /usr/lib/x86_64-linux-gnu/
done
for program in /mnt/scratch/root/usr/sbin/*; do
    command -v "${program##*/}" >/dev/null || cp "$program" /usr/sbin/
done
mkdir -p /lib/modules && mount --bind /mnt/scratch/root/lib/modules /lib/modules
# Their devices appear when they are loaded, and there is no udev that would make them before.
modprobe -a autofs4 tun
# Tests and their stores have 4 GiB there, and less than a third of one on the root disk.
rm -rf /mnt/scratch/tmp && mkdir -p /mnt/scratch/tmp /var/tmp && mount --bind /mnt/scratch/tmp /var/tmp
chmod 1777 /var/tmp /tmp
export DORMOUSE_TEST_SLOWNESS=%(slowness)s
python3 /mnt/scratch/suite/zdtm/zdtm.py --prepared /mnt/scratch --out /mnt/scratch/%(results)s \\
    --dormouse /run/dormouse/bin/dormouse --jobs %(jobs)s --seed %(seed)s --time-limit %(limit)s >/mnt/scratch/log 2>&1
tail -n 3 /mnt/scratch/log >&2
cat /mnt/scratch/%(results)s/results.jsonl
"""


def arguments():
    parser = options_of_suites.parser(__doc__, "zdtm-machine")
    parser.add_argument("--kernel", required=True, metavar="PATTERN", help="as for `dormouse lab boot --kernel`")
    parser.add_argument("--only", metavar="PATTERN", help="tests of which the name matches")
    parser.add_argument("--time-limit", type=int, default=9000, metavar="S", help="begin no scenario after that")
    return options_of_suites.parse(parser)


def prepare(folder, options):
    words = [sys.executable, os.path.join(HERE, "zdtm.py"), "--prepare", folder]
    done = subprocess.run(words + (["--only", options.only] if options.only else []), check=False)
    if done.returncode == 0:
        kernel.install(options.dormouse, options.kernel, os.path.join(folder, "root"))
    return done.returncode


def boot(machine, share, options):
    """What the machine answers, or None."""
    script = SCRIPT % {
        "slowness": SLOWNESS, "results": RESULTS, "seed": shlex.quote(options.seed), "limit": options.time_limit,
        "jobs": JOBS,
    }
    words = [
        options.dormouse, "lab", "boot", "--json", "--machine", machine, "--keep", "--kernel", options.kernel,
        "--dram", "3G", "--cxl", "256M", "--share", share, "--command", script,
        "--time-limit", f"{options.time_limit + SPARE_S}s",
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return None


def outcomes(lines, names):
    """Of each test of which all scenarios ran: outcome, scenario, reason, and all outcomes."""
    by_test = {}
    for result in results_in(lines):
        if result["name"] in names:
            by_test.setdefault(result["name"], {})[result["mode"]] = result
    complete = {
        name: of for name, of in by_test.items()
        if of.get("alone", {}).get("outcome") == "fails alone" or "background" in of
    }
    return {name: (*worst(of), of) for name, of in complete.items()}


def main():
    options = arguments()
    lack = options_of_suites.lacks(options)
    if lack:
        print(f"zdtm: {lack}", file=sys.stderr)
        return 3
    machine = os.path.join(options.out, options.kernel.replace("/", "_").replace(" ", "-"))
    # Of this kernel alone: another one may run other tests.
    share = machine + "-prepared"
    if not os.path.exists(os.path.join(machine, "scratch.img")):
        try:
            code = prepare(share, options)
        except kernel.Failed as error:
            print(f"zdtm: {error}", file=sys.stderr)
            return 3
        if code:
            return code
    answer = boot(machine, share, options)
    if answer is None:
        print(f"zdtm: the machine did not come to the end; its logs are in {machine}", file=sys.stderr)
        return 1
    with open(os.path.join(share, "tests.json"), encoding="utf-8") as file:
        prepared = json.load(file)
    total = outcomes(answer["stdout"].splitlines(), prepared["tests"])
    print(answer["stderr"].strip(), file=sys.stderr)
    print(f"{answer['kernel']}: {len(total)} of {len(prepared['tests'])} tests ran")
    if options.publish:
        state = os.path.join(options.out, "kernels.json")
        report.publish_machine(
            options.publish, state, answer["kernel"], total, len(prepared["tests"]), prepared["version"]
        )
        # The other table is of this machine.
        options.publish = None
    return report.finish(total, options, prepared["version"])


if __name__ == "__main__":
    sys.exit(main())
