#!/usr/bin/env bash
# Makes what the lab's machine needs to boot a Debian tree: root disk, kernel, initial ram disk.
#
#   disk.sh BASE.tar      prints a folder with root.img, vmlinuz, initrd.gz, initrd.debian and release
#
# The folder lies beside the tarball and is made once. The kernel lies in the flash image, where
# Debian's own initial ram disk has no room beside it: this one is busybox and the disk's drivers.
# As root.
set -euo pipefail

[ $# = 1 ] || {
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
base=$(realpath "$1")
result=${base%.tar}.machine
recipe=$(sha256sum "$0" | cut -d' ' -f1)
if [ "$(cat "$result/recipe" 2>/dev/null)" = "$recipe" ]; then
	echo "$result"
	exit 0
fi
work=$(mktemp -d "$result.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$tree" "$work/out"
tar -xf "$base" -C "$tree"
release=$(basename "$tree"/lib/modules/*-amd64)

initrd() {
	local root=$work/initrd module
	mkdir -p "$root"/{bin,dev,proc,sys,modules,newroot}
	cp "$(command -v busybox)" "$root/bin/busybox"
	# Dependencies first, each once.
	for module in virtio_pci virtio_blk crc32c_generic ext4; do
		chroot "$tree" modprobe --set-version "$release" --show-depends "$module"
	done | awk -v tree="$tree" '$1 == "insmod" && !seen[$2]++ { print tree $2 }' >"$work/modules"
	while read -r module; do
		local name
		name=$(basename "$module")
		case $name in
		*.xz) xz -dc "$module" >"$root/modules/${name%.xz}" ;;
		*) cp "$module" "$root/modules/$name" ;;
		esac
		echo "${name%.xz}" >>"$root/modules/order"
	done <"$work/modules"
	cat >"$root/init" <<'INIT'
#!/bin/busybox sh
# Loads the disk's drivers, mounts the disk dormouse-root and starts systemd from it.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
for module in $($b cat /modules/order); do
	$b insmod "/modules/$module"
done
root=
while [ -z "$root" ]; do
	for disk in /sys/block/vd*; do
		[ "$($b cat "$disk/serial" 2>/dev/null)" != dormouse-root ] || root=/dev/${disk##*/}
	done
	[ -n "$root" ] || $b sleep 0.2
done
$b mount -t ext4 -o ro "$root" /newroot
for busy in dev proc sys; do
	$b mount --move "/$busy" "/newroot/$busy"
done
exec $b switch_root /newroot /sbin/init
INIT
	chmod 755 "$root/init"
	(cd "$root" && find . | cpio --quiet --create --format=newc --owner=0:0) | gzip -9 >"$work/out/initrd.gz"
}

initrd
cp "$tree/boot/vmlinuz-$release" "$work/out/vmlinuz"
echo "$release" >"$work/out/release"
# The distribution's own, for firmware that takes a large one.
cp "$tree/boot/initrd.img-$release" "$work/out/initrd.debian"
mke2fs -q -t ext4 -m 0 -L dormouse-root -E lazy_itable_init=0,lazy_journal_init=0 \
	-d "$tree" "$work/out/root.img" 6G
echo "$recipe" >"$work/out/recipe"
rm -rf "$result"
mv "$work/out" "$result"
echo "$result"
