#!/usr/bin/env bash
# Tests of our own checks in `make lint`: each finds what it is for, and nothing in a clean tree.
#
# Prints "N passed, N failed"; exit 1 if any failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# A tree of its own, with the checks as they are and a few pages.
cp -r "$here/.." "$work/scripts"
mkdir "$work/lab"
cd "$work"
git init --quiet .

# finds NAME CHECK CODE PATTERN FILE TEXT: FILE with TEXT makes CHECK end with CODE and say PATTERN.
finds() {
	local name=$1 check=$2 code=$3 pattern=$4 file=$5 status=0
	printf '%s\n' "$6" >"$file"
	git add "$file"
	case $check in
	words) scripts/lint-words.sh "$file" >said 2>&1 || status=$? ;;
	rooms) scripts/lint-words.sh >said 2>&1 || status=$? ;;
	links) python3 scripts/lint/links.py >said 2>&1 || status=$? ;;
	esac
	if [ "$status" = "$code" ] && grep -qE -- "$pattern" said; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "lint test: $name: exit code $status, not $code, or nothing said of '$pattern':"
		cat said
	fi
	git rm --quiet --cached "$file"
	rm "$file"
}

word="what the see""d's method does"
finds a_banned_word_is_named_with_its_line words 1 'lab/a.rs:1: .*: write: cite' lab/a.rs "$word"
finds a_word_in_an_identifier_is_found words 1 'min_' lab/a.rs "let mo""st_bytes = 3;"
finds a_word_inside_another_is_none words 0 'clean' lab/a.rs 'the sheet is at_most_three'
finds an_alias_keeps_its_old_name words 0 'clean' lab/a.rs "#[arg(long, alias = \"mo""st-bytes\")]"
finds a_random_number_has_a_seed words 0 'clean' lab/a.rs 'print the seed of the random numbers, --seed 3'
finds a_word_in_any_file_of_the_tree_fails rooms 1 'a.md:1' a.md "# $word"
finds a_heading_that_is_a_question_is_found words 1 'a.md:1: .*noun' a.md '## What it doe''s'
finds a_good_link_passes links 0 'links: .* clean' page.md $'# One thing\n[it](page.md#one-thing) [that](scripts)'
finds a_link_to_nothing_is_named links 1 'page.md:1: gone.md: there is no such file' page.md '[x](gone.md)'
finds an_anchor_that_is_gone_is_named links 1 'no heading' page.md $'# One\n[x](page.md#two)'
finds a_link_in_a_code_block_is_none links 0 'clean' page.md $'```\n[x](gone.md)\n```'
echo "lint: $passed passed, $failed failed"
[ "$failed" = 0 ]
