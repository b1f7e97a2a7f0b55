"""The built tests as a folder that runs where there is neither a compiler nor make: an emulated machine.

    tests.json     name of each test: what its .desc file says, and the command that starts it
    static/        programs, libraries and hooks of the tests
    lib/           shared libraries that they are linked with
    suite/         this suite, as in the tree
"""

import json
import os
import re
import shutil
import subprocess

import source

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = re.compile(r"\s=>\s(/\S+)\s")


def libraries(program):
    """Paths of the shared libraries that a program needs."""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return LIBRARY.findall(done.stdout)


def write(folder, static, tests, version):
    """Copies these tests to a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    programs = os.path.join(folder, "static")
    shared = os.path.join(folder, "lib")
    os.makedirs(programs)
    os.makedirs(shared)
    needed = set()
    for file in os.listdir(static):
        path = os.path.join(static, file)
        # Sources and objects stay here.
        if os.access(path, os.X_OK) and os.path.isfile(path) or file.endswith((".so", ".sh")):
            shutil.copy(path, programs)
            needed.update(libraries(path))
    for path in needed:
        shutil.copy(path, shared)
    for room in ("zdtm", "scenario"):
        shutil.copytree(
            os.path.join(os.path.dirname(HERE), room), os.path.join(folder, "suite", room),
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    about = {name: {"about": what, "command": source.command_of(static, name)} for name, what in tests.items()}
    with open(os.path.join(folder, "tests.json"), "w", encoding="utf-8") as file:
        json.dump({"version": version, "tests": about}, file)


def read(folder):
    """The folder of the programs, the tests, and the version of the suite."""
    with open(os.path.join(folder, "tests.json"), encoding="utf-8") as file:
        prepared = json.load(file)
    return os.path.join(folder, "static"), prepared["tests"], prepared["version"]
