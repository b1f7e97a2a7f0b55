#!/bin/sh
# Puts into the initramfs what wakes a machine that sleeps on stock firmware: `dormouse wake`, and
# the modules that make persistent memory a device. Not kmem: nothing may put it online before.
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

copy_exec /usr/bin/dormouse /usr/bin
manual_add_modules nfit cxl_acpi cxl_pmem nd_pmem dax_pmem dax_hmem device_dax
