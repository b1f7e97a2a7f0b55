#!/bin/sh
# Puts into the initramfs what wakes a machine that sleeps on stock firmware: `dormouse-wake`, and the
# modules that make persistent memory a device, CXL memory with the record of its regions. Not kmem: nothing may put it online before. Where
# images are sealed: the settings, a key file, or what talks to the TPM. Where NVDIMMs are locked: their
# keys.
set -e

PREREQ=""
case "${1:-}" in
prereqs)
	echo "$PREREQ"
	exit 0
	;;
esac

# shellcheck disable=SC1091 # of the package initramfs-tools
. /usr/share/initramfs-tools/hook-functions

# shellcheck disable=SC2154 # mkinitramfs sets it
place() {
	install -D -m 600 "$1" "$DESTDIR$1"
}

copy_exec /usr/lib/dormouse/dormouse-wake /usr/bin
copy_file script /usr/lib/dormouse/dormouse-wake-hook /usr/bin/dormouse-wake-hook
# libnvdimm by its own name: ndctl has modprobe run a command in its place, which mkinitramfs does not
# follow where another module needs it, and without it no NVDIMM is there. The command unlocks NVDIMMs
# with the keys of ndctl, so all of it comes along.
manual_add_modules libnvdimm nfit cxl_acpi cxl_pci cxl_mem cxl_port cxl_pmem nd_pmem \
	dax_pmem dax_hmem device_dax
if [ -x /usr/bin/ndctl ]; then
	copy_exec /usr/bin/ndctl
	for key in /etc/ndctl/keys/*.blob; do
		[ ! -f "$key" ] || place "$key"
	done
fi

regions=/etc/dormouse/cxl-regions.toml
if [ -f "$regions" ]; then
	place "$regions"
	# With CXL memory in use the kernel takes no snapshot, unless a process passes its guard, by this module.
	manual_add_modules dormouse_snapshot
fi

settings=/etc/dormouse/seal.toml
[ -f "$settings" ] || exit 0

value() {
	sed -n "s/^$1 = \"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$settings"
}

place "$settings"
key=$(value key)
if [ "$key" = key-file ]; then
	file=$(value key-file)
	place "${file:-/etc/dormouse/seal.key}"
fi
if [ "$key" = tpm ]; then
	place /etc/dormouse/seal.tpm/key.pub
	place /etc/dormouse/seal.tpm/key.priv
fi
if [ "$key" = tpm ] || [ -n "$(value counter)" ]; then
	if [ ! -x /usr/bin/tpm2 ]; then
		echo "dormouse: the package tpm2-tools is needed to open images with the TPM" >&2
		exit 1
	fi
	copy_exec /usr/bin/tpm2
	# Opened at run time, so that nothing else names it.
	for library in /usr/lib/*/libtss2-tcti-device.so.0; do
		copy_exec "$library"
	done
	manual_add_modules tpm_tis tpm_crb
fi
