# Read by install.sh and uninstall.sh: their options, and what a dry run does in place of a command.
# shellcheck shell=sh

# shellcheck disable=SC2034 # the reader uses it
prefix=/usr/local
destdir=
dry_run=

# Prints the comment at the script's beginning.
usage() {
	sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

# Sets $prefix, $destdir and $dry_run. What is none of these is for the script's own_option.
read_options() {
	while [ $# -gt 0 ]; do
		case $1 in
		--prefix | --destdir)
			[ $# -ge 2 ] || usage
			if [ "$1" = --prefix ]; then prefix=${2%/}; else destdir=${2%/}; fi
			shift
			;;
		--dry-run) dry_run=yes ;;
		*) own_option "$1" || usage ;;
		esac
		shift
	done
}

run() {
	if [ -n "$dry_run" ]; then echo "$*"; else "$@"; fi
}
