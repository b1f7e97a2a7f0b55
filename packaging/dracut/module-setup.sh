#!/bin/bash
# dracut: what wakes a machine that sleeps on stock firmware. As the initramfs-tools hook.

check() {
	require_binaries /usr/bin/dormouse || return 1
	return 0
}

depends() {
	return 0
}

installkernel() {
	# Not kmem: nothing may put persistent memory online before.
	hostonly='' instmods nfit cxl_acpi cxl_pmem nd_pmem dax_pmem dax_hmem device_dax
}

install() {
	inst_binary /usr/bin/dormouse
	# shellcheck disable=SC2154 # dracut sets it
	inst_hook pre-mount 05 "$moddir/wake.sh"
}
