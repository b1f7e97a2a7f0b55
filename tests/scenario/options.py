"""What the suites of programs have in common on their command line, and need before they run."""

import argparse
import datetime
import os
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODES = ["alone", "continue", "kill", "background"]


def parser(description, out):
    """A parser with the options of every suite; results go below `out`."""
    parsed = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    command = os.path.join(ROOT, "target", "x86_64-unknown-linux-gnu", "release", "dormouse")
    parsed.add_argument("--dormouse", default=command, help="the command under test")
    parsed.add_argument("--seed", default=datetime.date.today().isoformat(), help="default: today's date")
    parsed.add_argument("--modes", type=lambda text: text.split(","), default=MODES, help=",".join(MODES))
    parsed.add_argument("--out", default=os.path.join(ROOT, "out", out))
    parsed.add_argument("--publish", metavar="FILE", help="write the table into this page")
    return parsed


def parse(parsed):
    """The options that were given; ends the program where a mode is unknown."""
    options = parsed.parse_args()
    unknown = set(options.modes) - set(MODES)
    if unknown:
        parsed.error(f"unknown modes: {', '.join(sorted(unknown))}")
    return options


def lacks(options):
    """What keeps the suite from running; None: it can, and `options.dormouse` is an absolute path."""
    if os.geteuid() != 0:
        return "needs root: namespaces, and the rights of a tracker"
    if not os.access(options.dormouse, os.X_OK):
        return f"{options.dormouse} is not there: run `make build` first"
    options.dormouse = os.path.realpath(options.dormouse)
    return None


def folder(name):
    """A temporary folder that programs reach which give up root."""
    path = tempfile.mkdtemp(prefix=f"dormouse-{name}.", dir="/var/tmp")
    os.chmod(path, 0o755)
    return path
