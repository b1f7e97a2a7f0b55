#!/usr/bin/env bash
# Builds the documentation as a book into out/book.
#
#   scripts/book.sh DORMOUSE     DORMOUSE is the built command, which prints its own reference page
#
# mdBook comes from crates.io and is kept in the user's cache directory.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

mdbook_version=0.5.4
dormouse=${1:?usage: scripts/book.sh DORMOUSE}
tools=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/tools/mdbook-$mdbook_version

if [ ! -x "$tools/bin/mdbook" ]; then
	echo "book: building mdBook $mdbook_version (once, some minutes)" >&2
	# Outside the workspace: its configuration is for binaries that run in the emulated machine.
	if ! (cd / && cargo install --quiet --locked --root "$tools" "mdbook@$mdbook_version"); then
		echo "book: mdBook cannot be built: cargo's message above says why" >&2
		exit 1
	fi
fi

# A page that the table of contents does not name would not be in the book.
while read -r page; do
	grep -qF "(${page#docs/})" docs/SUMMARY.md || missing "docs/SUMMARY.md does not name $page" "add a line for it"
done < <(git ls-files 'docs/*.md' ':!docs/SUMMARY.md')

# The pages are copied, because one of them is generated, and because links to files outside of the book would
# lead nowhere: these become the file's name.
rm -rf out/book
mkdir -p out/book
cp -r docs out/book/src
# shellcheck disable=SC2016 # the backquotes are Markdown's
find out/book/src -name '*.md' -exec sed -E -i \
	's#\[([^]]+)\]\(((\.\./)+)((machine|lab|process|devices|bandwidth|offload|report|cli|tests|system|packaging|scripts|LICENSES)/[^)]*|[A-Z]+\.md)\)#\1 (`\4`)#g' {} +
# "Options:" of every verb as a heading would fill the table of contents.
"$dormouse" man --markdown | sed -E 's/^#{6} (\*\*.*\*\*)$/\1/' >out/book/src/reference/command-line.md
"$tools/bin/mdbook" build --dest-dir "$PWD/out/book/html" out/book/src
echo "book: out/book/html/index.html"
