"""Checks the relative links and anchors of the Markdown pages of this tree.

Run by scripts/lint.sh, in the tree's top folder. A finding is a line: FILE:LINE: what is wrong. Addresses of
other sites are not fetched: a check that needs the network would fail for reasons that are not the tree's.
"""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

LINK = re.compile(r"!?\[(?:[^\]\\]|\\.)*\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
NAMED = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"|\{#([^}]+)\}")
FENCE = re.compile(r"^\s*(```|~~~)")


def prose(path):
    """The lines outside code blocks, with their numbers."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchor(heading):
    """A heading's anchor, as forges and mdBook make it."""
    text = re.sub(r"\{#[^}]+\}", "", heading)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[^\w\- ]", "", text.replace("`", "").lower()).strip()
    return text.replace(" ", "-")


def anchors(path, known={}):
    """Every anchor of a page."""
    if path not in known:
        found = set()
        for _, line in prose(path):
            heading = HEADING.match(line)
            if heading:
                name, again, number = anchor(heading.group(1)), "", 0
                while name + again in found:
                    number += 1
                    again = f"-{number}"
                found.add(name + again)
            found.update(first or second for first, second in NAMED.findall(line))
        known[path] = found
    return known[path]


def wrong(page, target):
    """What is wrong with a link, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target, re.I):
        return None
    name, _, part = unquote(target).partition("#")
    if name.startswith("/"):
        return f"{target}: an absolute path; link relative to this page"
    path = page if not name else (page.parent / name)
    if not path.exists():
        return f"{target}: there is no such file"
    if part and path.suffix == ".md" and part not in anchors(path.resolve()):
        return f"{target}: {path.name} has no heading with that anchor"
    return None


def main():
    """Prints the findings; the exit code says whether there was one."""
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True)
    links = bad = 0
    for name in listed.stdout.splitlines():
        page = Path(name)
        if not page.exists():
            continue
        for number, line in prose(page):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                links += 1
                problem = wrong(page, target)
                if problem:
                    bad += 1
                    print(f"{name}:{number}: {problem}")
    if bad:
        print(f"lint: links: {bad} of {links} lead nowhere", file=sys.stderr)
        sys.exit(1)
    print(f"lint: links: {links} relative and absolute links clean")


if __name__ == "__main__":
    main()
