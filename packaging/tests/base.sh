#!/usr/bin/env bash
# Prints the path of a tarball with a Debian system to install the packages in; makes it if needed.
#
#   base.sh [initramfs-tools|dracut [uefi]]     what makes its initial ram disks; with what a boot
#                                               entry of UEFI needs
#
# Made by mmdebstrap from this machine's release and apt sources: systemd, a stock kernel and its
# headers, DKMS, redis. Kept in ~/.cache/dormouse/packages (or DORMOUSE_CACHE) under a name that says
# what it was made from; seven days old, it is made anew, because the archive will have replaced the
# packages. As root.
set -euo pipefail

initramfs=${1:-initramfs-tools}
uefi=()
[ "${2:-}" != uefi ] || uefi=(systemd-boot-efi efibootmgr binutils cpio dosfstools fdisk)
here=$(dirname "$(realpath "$0")")
cache=${DORMOUSE_CACHE:-$HOME/.cache/dormouse}/packages
days=7

# The meta package of the stock kernel for virtual machines: 6.12 or newer.
kernel_package() {
	local part=$1 name
	for name in "linux-$part-6.12-cloud-amd64" "linux-$part-cloud-amd64"; do
		if [ -n "$(apt-cache show "$name" 2>/dev/null)" ]; then
			echo "$name"
			return
		fi
	done
	echo "base.sh: the archives have no linux-$part-cloud-amd64: run apt-get update" >&2
	exit 3
}

sources() {
	local file
	for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
		if [ -s "$file" ]; then
			echo "$file"
			return
		fi
	done
}

packages=(ca-certificates systemd-sysv dbus libpam-systemd udev kmod procps util-linux dkms
	"$initramfs" "${uefi[@]}" ndctl redis-server "$(kernel_package headers)" "$(kernel_package image)")
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
sources=$(sources)
key=$({
	echo "$release" "${packages[@]}"
	cat "$sources" "$here/machine.sh"
} | sha256sum | cut -c1-16)
result=$cache/$release-$key.tar
mkdir -p "$cache"
find "$cache" -name '*.tar' -mtime "+$days" -delete
if [ ! -f "$result" ]; then
	echo "base.sh: making $result" >&2
	include=$(IFS=, && echo "${packages[*]}")
	# The lists stay: apt in the machine resolves dependencies without a network.
	mmdebstrap --quiet --format=tar --variant=minbase --include="$include" \
		--skip=cleanup/apt/lists --customize-hook="$here/machine.sh \"\$1\"" \
		"$release" "$result.new" "$sources" >&2
	mv "$result.new" "$result"
fi
echo "$result"
