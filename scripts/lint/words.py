"""Looks for the words of scripts/words.txt in the files of this tree.

Run by scripts/lint-words.sh:
    lint-words.sh            every file of the tree (as with --all); exit 1 if there is a word anywhere
    lint-words.sh PATH…      only these files and folders
    --count                  one line for each top folder instead of one for each word

A finding is a line: FILE:LINE: "word": write: what to write instead.
"""

import fnmatch
import re
import subprocess
import sys
from pathlib import Path

WORDS = Path("scripts/words.txt")


class Word:
    """One line of words.txt: what is looked for, what to write, and where it is right."""

    def __init__(self, number, line):
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) < 2:
            sys.exit(f"{WORDS}:{number}: needs an expression and what to write, separated by ' | '")
        expression, self.instead = fields[0], fields[1]
        unless = fields[2] if len(fields) > 2 else ""
        self.files = fields[3].split() if len(fields) > 3 else []
        try:
            # A letter before or after would make it another word; so would a capital's small letters.
            begin = "" if expression.startswith(("#", "-", "\\(")) else "(?<![A-Za-z])"
            self.expression = re.compile(f"{begin}(?:{expression})(?![A-Za-z])", re.I)
            self.unless = re.compile(unless, re.I) if unless else None
        except re.error as error:
            sys.exit(f"{WORDS}:{number}: {error}")

    def found(self, name, line):
        """The word as the line has it, or None."""
        match = self.expression.search(line)
        if not match or (self.unless and self.unless.search(line)):
            return None
        if any(fnmatch.fnmatch(name, pattern) for pattern in self.files):
            return None
        return match.group(0)


def read_words():
    """The settings and the words of words.txt."""
    settings = {"skip": [], "allow": []}
    words = []
    for number, line in enumerate(WORDS.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        kind, _, rest = line.partition(" ")
        if kind in settings and " | " not in line:
            settings[kind].append(rest.strip())
        elif line and not re.match(r"#( |$)", line):
            words.append(Word(number, line))
    return settings, words


def is_in(name, folders):
    """Whether a file is one of these or below one of these folders."""
    return any(name == folder or name.startswith(folder.rstrip("/") + "/") for folder in folders)


def lines_with(words, names):
    """The lines that have any of the words, by git's grep: its expressions are compiled, ours are not."""
    any_word = "|".join(f"(?:{word.expression.pattern})" for word in words)
    grep = subprocess.run(
        ["git", "grep", "--line-number", "-z", "-I", "-i", "-P", "-e", any_word, "--", *names],
        capture_output=True, check=False,
    )
    if grep.returncode > 1:
        sys.exit(f"lint: words: git grep failed: {grep.stderr.decode()}")
    for line in grep.stdout.decode("utf-8", "replace").splitlines():
        name, number, text = line.split("\0", 2)
        yield name, int(number), text


def without_old_words(name, line):
    """The glossary's last column lists the old words."""
    if name == "docs/glossary.md" and line.startswith("|"):
        return "|".join(line.split("|")[:-2])
    return line


def findings(names, settings, words):
    """Every word in every file: (name, line number, word, instead)."""
    allow = re.compile("|".join(settings["allow"]) or r"(?!)", re.I)
    for name, number, line in lines_with(words, names) if names else []:
        if allow.search(line):
            continue
        line = without_old_words(name, line)
        for word in words:
            found = word.found(name, line)
            if found:
                yield name, number, found, word.instead


def main():
    """Prints the findings; the exit code says whether there was one."""
    arguments = sys.argv[1:]
    count = "--count" in arguments
    paths = [a.rstrip("/") for a in arguments if not a.startswith("--")]
    settings, words = read_words()
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    names = [
        name
        for name in listed.stdout.splitlines()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in settings["skip"])
    ]
    if paths:
        names = [name for name in names if is_in(name, paths)]
    rooms, number_found = {}, 0
    for name, number, found, instead in findings(names, settings, words):
        number_found += 1
        room = name.split("/")[0]
        rooms[room] = rooms.get(room, 0) + 1
        if not count:
            print(f'{name}:{number}: "{found}": write: {instead}')
    if count:
        for room, times in sorted(rooms.items(), key=lambda pair: -pair[1]):
            print(f"{times:6} {room}")
    if number_found:
        print(f"lint: words: {number_found} to be replaced; docs/glossary.md has the terms, "
              "scripts/words.txt the list", file=sys.stderr)
        sys.exit(1)
    print(f"lint: words: {len(names)} files clean")


if __name__ == "__main__":
    main()
