#!/usr/bin/env bash
# Takes single files out of the distribution's Linux source.
#
#   offload/linux-source.sh FOLDER FILE…
#
# Leaves the FILEs in FOLDER under their paths in the kernel's tree. Several builds may run at once: one of
# them fetches, the others wait; FOLDER appears complete or not at all. Exit codes: 2 wrong arguments; 3 the
# package cannot be fetched or lacks a file.
set -euo pipefail
if [ $# -lt 2 ]; then
	sed -n '4,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
folder=$1
shift
package=linux-source-6.12
list=$(printf '%s\n' "$@" | sort)

mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
[ "$(cat "$folder/complete" 2>/dev/null)" != "$list" ] || exit 0

new=$folder.new
rm -rf "$new" && mkdir -p "$new"
trap 'rm -rf "$new"' EXIT
# The lab has the package already if it has built a kernel of it.
deb=$(find "$(dirname "$folder")" -maxdepth 3 -name "${package}_*.deb" -print 2>/dev/null | sort | tail -n 1)
if [ -z "$deb" ]; then
	echo "offload: fetching the Linux source (once)" >&2
	(cd "$new" && apt-get -qq download "$package" 2>"$new/log") || {
		cat "$new/log" >&2
		echo "offload: $package cannot be fetched; run 'apt-get update' first" >&2
		exit 3
	}
	deb=$(find "$new" -maxdepth 1 -name '*.deb')
fi
mkdir "$new/tree"
# The last tar stops reading once it has its files, so the first ones end with SIGPIPE.
(set +o pipefail
dpkg-deb --fsys-tarfile "$deb" 2>/dev/null | tar -xO "./usr/src/$package.tar.xz" 2>/dev/null |
	tar -xJ -C "$new/tree" --strip-components=1 --occurrence=1 "${@/#/$package/}") || true
for file in "$@"; do
	[ -e "$new/tree/$file" ] || {
		echo "offload: $deb has no $file, or is damaged" >&2
		exit 3
	}
done
printf '%s\n' "$list" >"$new/tree/complete"
rm -rf "$folder"
mv "$new/tree" "$folder"
