#!/usr/bin/env bash
# The main job once: fill memory, run a service, sleep into CXL memory, lose power, wake, verify; then the
# timeline.
#
#   scripts/demo.sh DORMOUSE DIRECTORY
#
# DORMOUSE is the command; DIRECTORY gets the run's files and is emptied first. Exit codes are the
# command's; an end before the last line always says what happened and what to do next.
set -Eeuo pipefail
# shellcheck source=scripts/lib/say.sh
. "$(dirname "$0")/lib/say.sh"
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

[ $# = 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
dormouse=$1
directory=$2
[ -x "$dormouse" ] || missing "$dormouse has not been built" "run 'make build'"

# step WHAT COMMAND…: runs it; a failure says which part it was and where to look.
step() {
	local what=$1 status=0
	shift
	"$@" || status=$?
	case $status in
	0) return ;;
	3) say "$what: this machine lacks something" "(exit code 3)" && say "  next: run '$dormouse doctor lab'" ;;
	4) say "$what: the data after waking differ (exit code 4)" &&
		say "  next: report it with the directory $directory: this must not happen" ;;
	13[0-9] | 14[0-9])
		say "$what: $(basename "$1") was ended by signal $((status - 128))"
		say "  next: signal 9 is mostly a lack of memory ('dmesg' shows it; 8 GiB are needed); then 'make demo' again"
		;;
	*)
		say "$what: failed with exit code $status"
		say "  next: see the lines above, '$dormouse doctor lab', and the logs in $directory"
		;;
	esac
	exit "$status"
}

rm -rf "$directory"
step "the emulated machine" "$dormouse" lab cycle --machine "$directory" --cycles 1 \
	--dram 1G --cxl 2G --fill 512M
step "the timeline" "$dormouse" report "$directory"
