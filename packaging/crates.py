#!/usr/bin/env python3
"""Prints the Rust crates that are linked into `dormouse`, with their licences and notices.

Their licences ask for it: the command is one static binary. Reads `cargo metadata` and the crates'
own files in the registry's cache; run at the top of the tree.
"""

import json
import os
import pathlib
import subprocess
import sys

TARGET = "x86_64-unknown-linux-gnu"
NOTICES = ("LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*")
RULE = "-" * 78


def linked_packages(metadata: dict) -> list[dict]:
    """The packages that `dormouse` needs at run time: no build and no test dependencies."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    seen: set[str] = set()
    todo = [id for id, package in packages.items() if package["name"] == "dormouse"]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for dependency in nodes[current]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                todo.append(dependency["pkg"])
    # A crate without a source is one of the workspace.
    linked = [packages[id] for id in seen if packages[id]["source"]]
    return sorted(linked, key=lambda package: (package["name"], package["version"]))


def notices(package: dict) -> list[pathlib.Path]:
    folder = pathlib.Path(package["manifest_path"]).parent
    return sorted({path for pattern in NOTICES for path in folder.glob(pattern) if path.is_file()})


def main() -> int:
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--format-version", "1", "--locked"]
    command += ["--filter-platform", TARGET]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = linked_packages(metadata)
    # Many crates carry the same text: each text is printed once.
    texts: dict[str, list[str]] = {}
    print(f"Rust crates in the dormouse command: {len(packages)}\n")
    for package in packages:
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see its file'}")
        for path in notices(package):
            text = path.read_text(encoding="utf-8", errors="replace").strip()
            texts.setdefault(text, []).append(f"{name} ({path.name})")
    for text, names in sorted(texts.items(), key=lambda item: item[1]):
        print(f"\n{RULE}\n{', '.join(names)}\n{RULE}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
