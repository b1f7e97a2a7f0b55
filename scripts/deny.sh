#!/usr/bin/env bash
# Licences, bans, sources and advisories of all crates that the command is built from (deny.toml).
#
# Installs cargo-deny from crates.io into the cache when there is none (it takes some minutes to compile, so
# this is part of `make test-full` and not of `make lint`). Advisories need a database from the network: where
# that cannot be fetched this says so and goes on; DENY_ADVISORIES=required makes it an error.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

tools=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/tools
export PATH=$tools/bin:$PATH
if ! cargo deny --version >/dev/null 2>&1; then
	say "installing cargo-deny into $tools (once)"
	cargo install --quiet --locked --root "$tools" cargo-deny ||
		missing "cargo-deny cannot be installed" "it needs the network: see the lines above"
fi

cargo deny --locked --log-level warn check --hide-inclusion-graph licenses bans sources
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if cargo deny --locked --log-level warn check advisories 2>"$log"; then
	exit 0
fi
# No database is no finding.
if grep -qiE 'failed to (fetch|clone|load|acquire|open)|unable to (fetch|connect)|network|advisory database' "$log" &&
	! grep -qE 'ID: RUSTSEC' "$log"; then
	say "advisories were NOT checked: their database cannot be fetched: $(grep -m1 . "$log")"
	say "  next: run 'make deny' on a machine that reaches it, before a release"
	[ "${DENY_ADVISORIES:-}" != required ] || exit 3
	exit 0
fi
cat "$log" >&2
failed "a crate has an advisory" "next: 'cargo update -p CRATE', or an entry in deny.toml with its reason"
