"""CRIU's ZDTM tests from the distribution's source package, built in the cache."""

import hashlib
import os
import shutil
import subprocess
import tarfile

# The suite of which the newest CRIU is, as for the benchmark of process persistence.
SUITE = "unstable"


class Missing(Exception):
    """Something that this machine lacks."""


def cache_folder(name):
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(base, "dormouse", name)
    os.makedirs(folder, exist_ok=True)
    return folder


def archive():
    """The address of Debian's archive, as apt is configured or a variable says, and its keyring."""
    named = os.environ.get("DORMOUSE_DEBIAN_ARCHIVE", "").strip()
    if named:
        return named, "/usr/share/keyrings/debian-archive-keyring.gpg"
    output = subprocess.run(["apt-get", "indextargets"], stdout=subprocess.PIPE, text=True, check=False)
    for stanza in output.stdout.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in stanza.splitlines() if ": " in line)
        wanted = {"Origin": "Debian", "Label": "Debian", "Component": "main", "Identifier": "Packages"}
        if all(fields.get(name) == value for name, value in wanted.items()):
            return fields.get("Repo-URI") or fields["Site"], fields.get("Signed-By", "")
    raise Missing("apt has no archive of Debian configured: run `apt-get update`, or set DORMOUSE_DEBIAN_ARCHIVE")


def apt(state, *words):
    options = {
        "Dir::Etc::sourcelist": os.path.join(state, "sources.list"),
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": os.path.join(state, "lists"),
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", "-qq"]
    for name, value in options.items():
        command += ["-o", f"{name}={value}"]
    done = subprocess.run(
        command + list(words), cwd=state, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"apt-get {words[0]}: {done.stdout.strip()[-400:]}")


def tarball():
    """The source of CRIU, fetched once: its path and version."""
    folder = cache_folder("downloads/criu")
    known = sorted(name for name in os.listdir(folder) if name.startswith("criu_") and ".orig.tar" in name)
    if not known:
        uri, key = archive()
        state = cache_folder("apt/zdtm")
        os.makedirs(os.path.join(state, "lists", "partial"), exist_ok=True)
        signed = f"[signed-by={key}] " if key.startswith("/") else ""
        with open(os.path.join(state, "sources.list"), "w", encoding="utf-8") as file:
            file.write(f"deb-src {signed}{uri} {SUITE} main\n")
        apt(state, "update")
        apt(state, "source", "--download-only", "--tar-only", "criu")
        for name in os.listdir(state):
            if name.startswith("criu_") and ".orig.tar" in name:
                shutil.move(os.path.join(state, name), os.path.join(folder, name))
                known.append(name)
    if not known:
        raise Missing("the source package of CRIU has no tarball")
    name = known[-1]
    return os.path.join(folder, name), name.split("_")[1].split(".orig")[0]


def compiler():
    done = subprocess.run(["gcc", "--version"], stdout=subprocess.PIPE, text=True, check=False)
    return (done.stdout.splitlines() or ["none"])[0]


def build(say):
    """The folder with the built tests (test/zdtm/static), and CRIU's version."""
    path, version = tarball()
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read() + compiler().encode()).hexdigest()[:12]
    folder = os.path.join(cache_folder("zdtm"), f"{version}-{digest}")
    static = os.path.join(folder, "test", "zdtm", "static")
    if not os.path.exists(os.path.join(folder, "built")):
        say(f"building the ZDTM tests of CRIU {version} (2 minutes)")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        with tarfile.open(path) as archive_file:
            # The name of the archive's own folder is taken off.
            for member in archive_file:
                member.name = member.name.partition("/")[2]
                if member.name.split("/")[0] in ("test", "include", "criu", "compel", "lib", "images", "scripts"):
                    archive_file.extract(member, folder, filter="fully_trusted")
        environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        with open(os.path.join(folder, "build.log"), "wb") as log:
            # A test that does not build here is listed as such.
            subprocess.run(
                ["make", "-k", f"-j{os.cpu_count()}", "-C", static, "USERCFLAGS=-Wno-error"],
                stdout=log, stderr=log, env=environment, check=False,
            )
        with open(os.path.join(folder, "built"), "w", encoding="utf-8"):
            pass
    return static, version


def command_of(static, name):
    """How CRIU's Makefile starts a test."""
    done = subprocess.run(
        ["make", "-n", "-s", "-C", static, f"{name}.pid"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
        env={key: value for key, value in os.environ.items() if key != "MAKEFLAGS"},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(f"./{name} --pidfile")]
    return lines[-1].split() if lines else None
