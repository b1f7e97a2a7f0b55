#!/bin/sh
# Removes what install.sh installed, and nothing else.
#
#   uninstall.sh [--prefix DIR] [--destdir DIR] [--dry-run] [--purge]
#
# --prefix DIR    as for install.sh (default: where this script is installed, or /usr/local)
# --destdir DIR   as for install.sh
# --dry-run       print what would be removed
# --purge         remove a changed configuration and the programs' stores, too
#
# Units are disabled and stopped first. Exit codes: 0 done; 1 failed; 2 wrong usage.
set -eu

here=$(dirname "$(realpath "$0")")
# shellcheck source=packaging/tarball/options.sh
. "$here/options.sh"
[ ! -f "$here/installed" ] || prefix=$(realpath "$here/../..")
purge=
own_option() {
	[ "$1" = --purge ] && purge=yes
}
read_options "$@"
# Run from where a destination folder has it: the prefix is what follows.
[ -z "$destdir" ] || prefix=${prefix#"$destdir"}

list=$destdir$prefix/share/dormouse/installed
[ -f "$list" ] || {
	echo "uninstall.sh: there is no $list: nothing was installed there" >&2
	exit 1
}
copy=$(mktemp)
trap 'rm -f "$copy"' EXIT
cp "$list" "$copy"

stop_units() {
	[ -z "$destdir" ] && [ -d /run/systemd/system ] || return 0
	run systemctl stop 'dormouse-process@*.service'
	for wanted in /etc/systemd/system/*.wants/dormouse-process@*.service; do
		[ ! -L "$wanted" ] || run systemctl disable "$(basename "$wanted")"
	done
	sed -n 's|^f [^ ]* .*/\(dormouse-[a-z]*\.service\)$|\1|p' "$copy" | while read -r unit; do
		run systemctl disable --now "$unit"
	done
}

remove_files() {
	while read -r kind sum path; do
		case $kind in
		f) run rm -f "$destdir$path" ;;
		c)
			[ -e "$destdir$path" ] || continue
			if [ -z "$purge" ] && [ "$(sha256sum "$destdir$path" | cut -d' ' -f1)" != "$sum" ]; then
				echo "uninstall.sh: $destdir$path stays: it was changed (--purge removes it)" >&2
			else
				run rm -f "$destdir$path"
			fi
			;;
		esac
	done <"$copy"
}

# The inner folders first; one that holds something of others stays.
remove_folders() {
	sed -n 's/^d - //p' "$copy" | sort -r | while IFS= read -r folder; do
		if [ -n "$dry_run" ]; then
			echo "rmdir $destdir$folder"
		else
			rmdir "$destdir$folder" 2>/dev/null || [ ! -d "$destdir$folder" ] ||
				echo "uninstall.sh: $destdir$folder stays: it is not empty" >&2
		fi
	done
}

stop_units
remove_files
if [ -n "$purge" ]; then
	run rm -rf "$destdir/var/lib/dormouse" "$destdir/etc/dormouse/process"
fi
remove_folders
if [ -z "$destdir$dry_run" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
