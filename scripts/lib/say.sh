# How scripts speak: one line for each fact on stderr, and an end that always has a reason.
# Read with `.`; lines begin with the script's name.
# shellcheck shell=bash

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# missing WHAT NEXT…: this machine lacks something; NEXT says what to do about it.
missing() {
	say "$1"
	shift
	for next; do say "  next: $next"; done
	exit 3
}

# failed WHAT NEXT…: something that should work here did not.
failed() {
	say "$1"
	shift
	for next; do say "  $next"; done
	exit 1
}

# For `trap 'died "$LINENO" "$BASH_COMMAND"' ERR`: an unforeseen end names its place.
died() {
	local status=$?
	# A subshell's end is its parent's to report.
	[ "$BASH_SUBSHELL" = 0 ] || exit "$status"
	say "failed with exit code $status at line $1 of ${BASH_SOURCE[1]##*/}: $2"
	say "  next: if the lines above do not say why, run 'bash -x ${BASH_SOURCE[1]}' and report its end"
	[ "$status" = 0 ] && status=1
	exit "$status"
}
