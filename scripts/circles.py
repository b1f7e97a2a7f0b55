#!/usr/bin/env python3
"""Finds import circles in the Rust crates and the C folders, and prints what ties each of them.

Rust: the children of one module, each taken with everything below it, must not import each other
in a circle. A module that imports its own children, and a child that uses its parent's items, are
no circle. A name that a module only re-exports counts for the module that defines it. Code under
`#[cfg(test)]` does not count.

C: the files of one folder must not include or call each other in a circle, and folders must not
include each other's files in a circle.

Usage: scripts/circles.py [FOLDER…]   looks at these folders only; exit code 1: there is a circle
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TEST_NAMES = re.compile(r"(^|/)(tests?|fuzz|examples|benches)/|_tests?\.(rs|c)$|/tests?\.rs$")


def components(graph):
    """Strongly connected parts of more than one node (Tarjan), each sorted."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def without_comments(text, quotes):
    """Blanks comments and the contents of strings and characters."""
    pattern = r'//[^\n]*|/\*.*?\*/|' + quotes
    return re.sub(pattern, lambda hit: re.sub(r"[^\n]", " ", hit.group()), text, flags=re.S)


RUST_QUOTES = r'b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]+?|[^\'\\\n])\''
C_QUOTES = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''


def closing(text, at):
    """The place behind the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


class Module:
    """One Rust module: a file."""

    def __init__(self, file, parent, folder):
        self.file, self.parent, self.folder = file, parent, folder
        self.children, self.exports, self.imports = {}, {}, []

    def line(self):
        """The module and its parents, itself first."""
        return [self] + (self.parent.line() if self.parent else [])


def read_module(file, parent, folder):
    module = Module(file, parent, folder)
    original = file.read_text()
    text = without_comments(original, RUST_QUOTES)
    while hit := re.search(r"#\[cfg\(test\)\]\s*(#\[[^\]]*\]\s*)*(pub )?mod \w+\s*[{;]", text):
        end = hit.end() if text[hit.end() - 1] == ";" else closing(text, hit.end() - 1)
        text = text[: hit.start()] + " " * (end - hit.start()) + text[end:]
    declared = re.compile(r"((?:#\[[^\]]*\]\s*)*)(?:pub(?:\([^)]*\))?\s+)?\bmod (\w+);")
    for hit in declared.finditer(text):
        name = hit.group(2)
        path = re.search(r'#\[path = "([^"]*)"\]', original[hit.start() : hit.end()])
        candidates = [folder / f"{name}.rs", folder / name / "mod.rs"]
        if path:
            candidates = [file.parent / path.group(1)]
        found = next((one for one in candidates if one.is_file()), None)
        if found:
            module.children[name] = read_module(found, module, folder / name)
    uses = re.compile(r"\b(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
    for hit in uses.finditer(text):
        for path, name in leaves(hit.group(2)):
            module.imports.append(path)
            if hit.group(1):
                module.exports[name] = path
    rest = uses.sub(" ", text)
    inline = r"(?<![\w:])((?:crate|super|self)(?:::\w+)+)"
    module.imports += [hit.group(1).split("::") for hit in re.finditer(inline, rest)]
    return module


def leaves(tree):
    """The paths of a use tree, each with the name that it gets."""
    tree = re.sub(r"\s+", " ", tree.strip())
    if not tree:
        return
    opening = tree.find("{")
    if opening < 0:
        path, _, alias = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::") if part.strip()]
        if parts and parts[-1] == "self" and len(parts) > 1:
            parts.pop()
        yield parts, alias.strip() or parts[-1]
        return
    prefix = tree[:opening]
    depth, begin, inside = 0, 0, tree[opening + 1 : tree.rfind("}")]
    for place, letter in enumerate(inside + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if one := inside[begin:place].strip():
                yield from leaves(prefix + one)
            begin = place + 1


def resolve(module, path, hops=0):
    """The module that defines what `path` names, and the name; none for another crate's."""
    at, parts = module, list(path)
    if parts[0] == "crate":
        at, parts = module.line()[-1], parts[1:]
    elif parts[0] == "self":
        parts = parts[1:]
    elif parts[0] == "super":
        while parts and parts[0] == "super":
            at, parts = at.parent or at, parts[1:]
    elif parts[0] not in module.children:
        return None
    while parts and parts[0] in at.children:
        at, parts = at.children[parts[0]], parts[1:]
    name = parts[0] if parts else ""
    if name in at.exports and hops < 8:
        return resolve(at, at.exports[name] + parts[1:], hops + 1) or (at, name)
    return at, name or "(the module)"


def everything(module):
    yield module
    for child in module.children.values():
        yield from everything(child)


def rust_circles(root):
    """Circles of one crate, each with its ties."""
    ties = defaultdict(lambda: defaultdict(set))
    for module in everything(root):
        for path in module.imports:
            target = resolve(module, path)
            if not target or target[0] is module:
                continue
            own, its = module.line(), target[0].line()
            if module in its or target[0] in own:
                continue
            while own[-1] is its[-1]:
                shared = own.pop()
                its.pop()
            ties[shared][own[-1], its[-1]].add((str(module.file), str(target[0].file), target[1]))
    for shared, pairs in ties.items():
        names = {id(child): name for name, child in shared.children.items()}
        graph = defaultdict(set)
        for a, b in pairs:
            graph[names[id(a)]].add(names[id(b)])
        for part in components(graph):
            inside = [
                tie
                for (a, b), found in pairs.items()
                if names[id(a)] in part and names[id(b)] in part
                for tie in found
            ]
            yield str(shared.folder), part, inside


def crate_roots(files):
    for manifest in (file for file in files if file.name == "Cargo.toml"):
        text = manifest.read_text()
        paths = re.findall(r'^path = "([^"]*\.rs)"', text, re.M)
        roots = [manifest.parent / path for path in paths]
        roots += [manifest.parent / "src/lib.rs", manifest.parent / "src/main.rs"]
        for root in dict.fromkeys(roots):
            if root in files and not TEST_NAMES.search(str(root)):
                yield read_module(root, None, root.parent)


DEFINITION = re.compile(r"^(static\s[^;{}()]*|[A-Za-z_][\w \t*]*[ \t*])?(\w+)\([^;{}]*\)\s*\{", re.M)


class Source:
    """One C source or header: what it includes, defines for others, and calls."""

    def __init__(self, file):
        original = file.read_text(errors="replace")
        text = without_comments(original, C_QUOTES)
        self.includes = set(re.findall(r'^#\s*include\s+"([^"]+)"', original, re.M))
        self.defines, self.calls = set(), set()
        for hit in DEFINITION.finditer(text):
            if not (hit.group(1) or "").lstrip().startswith("static"):
                self.defines.add(hit.group(2))
            body = text[hit.end() - 1 : closing(text, hit.end() - 1)]
            self.calls |= set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", body))


def c_ties(sources):
    """Which file needs which, and by what names: its includes, and calls within its folder."""
    by_name, definers = defaultdict(list), defaultdict(list)
    for file, source in sources.items():
        by_name[file.name].append(file)
        for name in source.defines:
            definers[file.parent, name].append(file)
    ties = defaultdict(set)
    for file, source in sources.items():
        for name in source.includes:
            near = file.parent / name
            found = [near] if near in sources else by_name[Path(name).name]
            if len(found) == 1 and found[0] != file:
                ties[file, found[0]].add(f"includes {name}")
        for name in source.calls - source.defines:
            found = definers[file.parent, name]
            if len(found) == 1:
                ties[file, found[0]].add(name)
    return ties


def c_circles(files):
    ties = c_ties({file: Source(file) for file in files})
    inner, outer = defaultdict(set), defaultdict(set)
    for a, b in ties:
        if a.parent == b.parent:
            inner[a].add(b)
        else:
            outer[a.parent].add(b.parent)
    for graph, end in ((inner, lambda file: file), (outer, lambda file: file.parent)):
        for part in components(graph):
            inside = [
                (str(a), str(b), name)
                for (a, b), names in ties.items()
                if end(a) in part and end(b) in part and end(a) != end(b)
                for name in names
            ]
            yield str(part[0].parent), [one.name for one in part], inside


def shown(number, folder, part, ties):
    names = defaultdict(set)
    for a, b, name in ties:
        names[a, b].add(name)
    print(f"circle {number}: {folder}: {' <-> '.join(part)}")
    for (a, b), found in sorted(names.items()):
        print(f"  {a} -> {b}: {', '.join(sorted(found))}")


def main():
    listed = subprocess.run(
        ["git", "ls-files", "--", *sys.argv[1:]], check=True, capture_output=True, text=True
    )
    files = {Path(line) for line in listed.stdout.splitlines() if Path(line).is_file()}
    sources = {
        file for file in files if file.suffix in (".c", ".h") and not TEST_NAMES.search(str(file))
    }
    found = [circle for root in crate_roots(files) for circle in rust_circles(root)]
    found += c_circles(sorted(sources))
    for number, circle in enumerate(found, 1):
        shown(number, *circle)
    if found:
        print(f"{len(found)} import circles: move what both sides need into a module below them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
