#!/bin/sh
# Installs Dormouse from this folder.
#
#   install.sh [--prefix DIR] [--destdir DIR] [--dry-run]
#
# --prefix DIR    where programs, units and pages go (default: /usr/local)
# --destdir DIR   put everything below DIR, for packagers; paths in files stay without it
# --dry-run       print what would be done, and change nothing
#
# PREFIX/share/dormouse/installed lists everything that was installed, and uninstall.sh beside it
# removes exactly that. A second run upgrades: files that the new version has no more go, a
# configuration that was changed stays. Exit codes: 0 done; 1 failed; 2 wrong usage.
set -eu

here=$(dirname "$(realpath "$0")")
# shellcheck source=packaging/tarball/options.sh
. "$here/options.sh"
# It has none.
own_option() { return 1; }
read_options "$@"
case $prefix in
/*) ;;
*)
	echo "install.sh: --prefix $prefix: an absolute path is needed" >&2
	exit 2
	;;
esac

list=$destdir$prefix/share/dormouse/installed
new_list=$(mktemp)
old_list=$(mktemp)
trap 'rm -f "$new_list" "$old_list"' EXIT
if [ -f "$list" ]; then
	cp "$list" "$old_list"
	# Folders that an earlier installation made are still this one's.
	sed -n '/^d /p' "$old_list" >"$new_list"
fi

checksum() { sha256sum "$1" | cut -d' ' -f1; }

# What this path's line in the list of an earlier installation says: KIND CHECKSUM
known() {
	awk -v path="$1" '{ p = $0; sub(/^[a-z] [^ ]* /, "", p) } p == path { print $1, $2 }' "$old_list"
}

# make_folder PATH: with those above it; notes those that were not there
make_folder() {
	# A dry run has noted it and not made it.
	if [ -d "$destdir$1" ] || { [ -n "$dry_run" ] && grep -qx "d - $1" "$new_list"; }; then
		return 0
	fi
	make_folder "$(dirname "$1")"
	run mkdir "$destdir$1"
	grep -qx "d - $1" "$new_list" || echo "d - $1" >>"$new_list"
}

# put FROM TO KIND: f a file, c a configuration. Files that name the command get its real place.
put() {
	make_folder "$(dirname "$2")"
	staged=$(mktemp)
	case $2 in
	*.service) sed "s|/usr/bin/dormouse|$prefix/bin/dormouse|; s|/usr/lib/dormouse|$prefix/lib/dormouse|
		s|file:///usr/share|file://$prefix/share|" "$1" >"$staged" ;;
	*) cat "$1" >"$staged" ;;
	esac
	sum=$(checksum "$staged")
	if [ "$3" = c ] && [ -e "$destdir$2" ]; then
		before=$(known "$2")
		if [ "$before" != "c $(checksum "$destdir$2")" ]; then
			echo "install.sh: $destdir$2 stays as it is: it was changed, or is not ours" >&2
			rm -f "$staged"
			[ -z "$before" ] || echo "$before $2" >>"$new_list"
			return 0
		fi
	fi
	# Renamed into place: a program that runs keeps its old file.
	if [ -n "$dry_run" ]; then
		echo "install $destdir$2"
		rm -f "$staged"
	else
		mode=644
		[ ! -x "$1" ] || mode=755
		install -m "$mode" "$staged" "$destdir$2.new"
		mv -f "$destdir$2.new" "$destdir$2"
		rm -f "$staged"
	fi
	echo "$3 $sum $2" >>"$new_list"
}

# Each file below a folder, by its path there.
files_of() { (cd "$1" && find . -type f -o -type l) | sed 's|^\./||' | sort; }

files_of "$here/root" | while IFS= read -r file; do
	put "$here/root/$file" "$prefix/$file" f
done
files_of "$here/etc" | while IFS= read -r file; do
	put "$here/etc/$file" "/etc/$file" c
done
make_folder /etc/dormouse/process

# What an earlier version had and this one has not.
while read -r kind _ path; do
	[ "$kind" = f ] || continue
	grep -q "^f [^ ]* $path\$" "$new_list" || run rm -f "$destdir$path"
done <"$old_list"

if [ -n "$dry_run" ]; then
	echo "list of all: $list"
	exit 0
fi
echo "f - $prefix/share/dormouse/installed" >>"$new_list"
cp "$new_list" "$list"
chmod 644 "$list"
if [ -z "$destdir" ] && [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
echo "Dormouse $(cat "$here/VERSION") is installed in $prefix."
echo "To remove it: $prefix/share/dormouse/uninstall.sh"
case $prefix in
/usr | /usr/local) ;;
*) echo "systemd does not look there for units: systemctl link $prefix/lib/systemd/system/NAME" ;;
esac
