#!/usr/bin/env python3
"""Prints debian/changelog, made from CHANGELOG.md.

    changelog.py VERSION MAINTAINER DATE [CHANGELOG.md]

VERSION is the version to build: that of Cargo.toml, perhaps with a suffix. DATE (RFC 2822) is the
date of the newest entry, or of an entry without one. A section of CHANGELOG.md is
`## 1.2.3 (2026-01-31)`, the date and square brackets being optional; `## Unreleased` belongs to
VERSION. Its list items become those of the entry.
"""

import datetime
import email.utils
import pathlib
import re
import sys
import textwrap

SECTION = re.compile(r"^## +\[?v?(?P<name>[0-9][^\]\s]*|Unreleased)\]?[^0-9]*(?P<date>\d{4}-\d\d-\d\d)?", re.I)
ITEM = re.compile(r"^[-*] +(.*)")


def plain(text: str) -> str:
    """Without the marks of bold type and the targets of links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text.replace("**", ""))


def sections(text: str) -> list[tuple[str, str | None, list[str]]]:
    """Name, date and items of each section, the newest first."""
    found: list[tuple[str, str | None, list[str]]] = []
    for line in text.splitlines():
        if match := SECTION.match(line):
            found.append((match["name"], match["date"], []))
        elif found and (match := ITEM.match(line)):
            found[-1][2].append(plain(match[1]))
        elif found and found[-1][2] and line.startswith("  "):
            found[-1][2][-1] += " " + plain(line.strip())
    return found


def entry(version: str, items: list[str], maintainer: str, date: str) -> str:
    wrap = {"width": 78, "initial_indent": "  * ", "subsequent_indent": "    "}
    wrap["break_on_hyphens"] = wrap["break_long_words"] = False
    lines = [textwrap.fill(item, **wrap) for item in items or [f"Version {version}."]]
    body = "\n".join(lines)
    return f"dormouse ({version}) unstable; urgency=medium\n\n{body}\n\n -- {maintainer}  {date}\n"


def main(arguments: list[str]) -> int:
    if len(arguments) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    version, maintainer, date = arguments[:3]
    path = pathlib.Path(arguments[3]) if len(arguments) == 4 else None
    known = sections(path.read_text(encoding="utf-8")) if path and path.exists() else []
    current: list[str] = []
    older = []
    for name, day, items in known:
        if name.lower() == "unreleased" or version == name or version.startswith(name + "+"):
            current += items
        else:
            older.append((name, day, items))
    print(entry(version, current, maintainer, date))
    for name, day, items in older:
        at = datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.timezone.utc) if day else None
        print(entry(name, items, maintainer, email.utils.format_datetime(at) if at else date))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
