"""What a whole distribution has beside its kernel, for the emulated machine: modules, and the programs that tests
call. They go into a folder that is laid out as the machine's root.

    lib/modules/RELEASE/         the kernel's modules, with modprobe's index
    usr/sbin/                    modprobe, ip, iptables, nft, diff
    usr/lib/x86_64-linux-gnu/    what those are linked with, and the matches and targets of iptables
"""

import glob
import json
import os
import shutil
import subprocess

import prepared

# Of each package, the programs by all the names under which tests, scripts and the kernel call them.
PROGRAMS = {
    "kmod": ("modprobe",),
    "iproute2": ("ip",),
    "iptables": (
        "iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore",
        "iptables-legacy", "ip6tables-legacy",
    ),
    "nftables": ("nft",),
    "diffutils": ("diff",),
}
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class Failed(Exception):
    """Something of it cannot be had."""


def program(package, name):
    """The path of a program of this machine."""
    path = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise Failed(f"no program {name}: install the package {package}, or run `make setup`")
    return path


def built(dormouse, pattern):
    """Release of the kernel with this in its name, and the folder of its modules; built where it is not."""
    words = [dormouse, "lab", "build", "--json", "--kernel", pattern]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise Failed(f"the machine with the kernel {pattern} cannot be built: see above")
    made = json.loads(done.stdout)
    return made["kernel_release"], made["modules"]


def install(dormouse, pattern, root):
    """Writes all of it to the folder `root`."""
    release, modules = built(dormouse, pattern)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(modules, os.path.join(root, "lib/modules", release), symlinks=True)
    programs = os.path.join(root, "usr/sbin")
    libraries = os.path.join(root, LIBRARIES)
    os.makedirs(programs)
    os.makedirs(libraries)
    needed = set()
    for package, names in PROGRAMS.items():
        for name in names:
            path = program(package, name)
            shutil.copy(path, programs)
            needed.update(prepared.libraries(path))
    # iptables loads them by name.
    for path in glob.glob(os.path.join("/", LIBRARIES, "xtables", "*.so")):
        os.makedirs(os.path.join(libraries, "xtables"), exist_ok=True)
        shutil.copy(path, os.path.join(libraries, "xtables"))
        needed.update(prepared.libraries(path))
    for path in needed:
        shutil.copy(path, libraries)
    index = [program("kmod", "depmod"), "-b", root, release]
    done = subprocess.run(index, stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        raise Failed(f"depmod: {done.stderr.strip()}")
