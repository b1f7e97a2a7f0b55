#!/usr/bin/env bash
# Makes dormouse-VERSION-x86_64.tar.xz, for distributions without Debian packages.
#
#   build.sh TREE VERSION OUTPUT-DIRECTORY
#
# TREE is a staged tree after dpkg-buildpackage: what the packages hold is put into the tarball, in
# the places that a prefix has.
set -euo pipefail

[ $# = 3 ] || {
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
tree=$1 version=$2 output=$3
here=$(dirname "$(realpath "$0")")
packages=$tree/debian
name=dormouse-$version-x86_64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name/root

# place FROM TO: a folder's contents
place() {
	mkdir -p "$root/$2"
	cp -a "$1/." "$root/$2/"
}

command=$packages/dormouse
units=$(dirname "$(find "$command" -name dormouse-suspend.service)")
place "$command/usr/bin" bin
place "$command/usr/lib/dormouse" lib/dormouse
place "$command/usr/share/man" share/man
place "$command/usr/share/bash-completion" share/bash-completion
place "$command/usr/share/zsh/vendor-completions" share/zsh/site-functions
place "$command/usr/share/fish" share/fish
place "$command/usr/share/doc/dormouse" share/doc/dormouse
rm -f "$root"/share/doc/dormouse/changelog*
cp "$tree/LICENSES/"*.txt "$root/share/doc/dormouse/"
place "$units" lib/systemd/system
place "$command/usr/lib/tmpfiles.d" lib/tmpfiles.d
place "$packages/dormouse-dkms/usr/src/dormouse-$version" "share/dormouse/module"
place "$packages/dormouse-firmware/usr/share/dormouse" share/dormouse
mkdir -p "$work/$name/etc"
cp -a "$command/etc/dormouse" "$work/$name/etc/"
cp -a "$here/install.sh" "$here/uninstall.sh" "$here/options.sh" "$here/README" "$work/$name/"
cp -a "$here/uninstall.sh" "$here/options.sh" "$root/share/dormouse/"
echo "$version" >"$work/$name/VERSION"

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-$(
	dpkg-parsechangelog -l "$packages/changelog" -S Timestamp
)}" -C "$work" -cf - "$name" | xz -T0 >"$output/$name.tar.xz"
