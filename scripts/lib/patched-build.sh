# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=sh
# What the builds of a patched source have in common. Read by devices/kernel/build.sh and
# machine/firmware/build.sh, which set $here to their folders, with the patches in hooks/.

log=

# Ends the build with the reason and the end of the log.
fail() {
	echo "build.sh: $*" >&2
	if [ -n "$log" ] && [ -s "$log" ]; then
		echo "--- last lines of $log ---" >&2
		tail -n 25 "$log" >&2
	fi
	exit 1
}

# begin WORK OUTPUT: sets $work, $output and $log, an empty file.
begin() {
	mkdir -p "$1" "$2"
	work=$(cd "$1" && pwd)
	# shellcheck disable=SC2034 # the reader uses it
	output=$(cd "$2" && pwd)
	log=$work/build.log
	: >"$log"
}

# need PROGRAM...
need() {
	for tool in "$@"; do
		command -v "$tool" >/dev/null || fail "$tool is missing"
	done
}

# apply_hooks_to TREE NAME: each hook is one small change; all of it must fit exactly where it belongs.
apply_hooks_to() {
	# shellcheck disable=SC2154 # the reader sets it
	for hook in "$here"/hooks/*.patch; do
		name=hooks/$(basename "$hook")
		patch -d "$1" -p1 --fuzz=0 --no-backup-if-mismatch --forward \
			<"$hook" >>"$log" 2>&1 ||
			fail "$name does not apply to this $2"
		patch -d "$1" -p1 --fuzz=0 --reverse --dry-run --force \
			<"$hook" >>"$log" 2>&1 ||
			fail "$name applied, but its change is not there"
	done
}

# lost_option WANTED CONFIG: prints the first option of a file that a configuration does not have. One that
# Kconfig dropped would silently build something else.
lost_option() {
	grep -v -e '^#' -e '^$' "$1" | while read -r option; do
		grep -qxF "$option" "$2" || {
			echo "$option"
			break
		}
	done
}
