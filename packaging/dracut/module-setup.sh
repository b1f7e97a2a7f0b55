#!/bin/bash
# dracut: what wakes a machine that sleeps on stock firmware. As the initramfs-tools hook.

check() {
	require_binaries /usr/lib/dormouse/dormouse-wake || return 1
	return 0
}

depends() {
	return 0
}

installkernel() {
	# Not kmem: nothing may put persistent memory online before.
	hostonly='' instmods libnvdimm nfit cxl_acpi cxl_pci cxl_mem cxl_port cxl_pmem nd_pmem \
		dax_pmem dax_hmem device_dax tpm_tis tpm_crb
	# With CXL memory in use the kernel takes no snapshot, unless a process passes its guard, by this module.
	[ ! -f /etc/dormouse/cxl-regions.toml ] || hostonly='' instmods dormouse_snapshot
}

install() {
	inst_binary /usr/lib/dormouse/dormouse-wake /usr/bin/dormouse-wake
	inst_script /usr/lib/dormouse/dormouse-wake-hook /usr/bin/dormouse-wake-hook
	# shellcheck disable=SC2154 # dracut sets it
	inst_hook pre-udev 05 "$moddir/pre-udev.sh"
	inst_hook pre-mount 05 "$moddir/pre-mount.sh"
	local settings=/etc/dormouse/seal.toml regions=/etc/dormouse/cxl-regions.toml key
	# With ndctl, loading libnvdimm is a command of its, which unlocks NVDIMMs with these keys.
	inst_multiple -o ndctl
	for key in /etc/ndctl/keys/*.blob; do
		[ ! -f "$key" ] || inst_simple "$key"
	done
	[ ! -f "$regions" ] || inst_simple "$regions"
	[ -f "$settings" ] || return 0
	inst_simple "$settings"
	key=$(sed -n 's/^key-file = "\(.*\)"$/\1/p' "$settings")
	if grep -q '^key = "key-file"$' "$settings"; then
		inst_simple "${key:-/etc/dormouse/seal.key}"
	fi
	if grep -q '^key = "tpm"$' "$settings"; then
		inst_multiple /etc/dormouse/seal.tpm/key.pub /etc/dormouse/seal.tpm/key.priv
	fi
	if grep -q -e '^key = "tpm"$' -e '^counter = ' "$settings"; then
		inst_multiple tpm2
		# Opened at run time, so that nothing else names it.
		inst_libdir_file 'libtss2-tcti-device.so*'
	fi
}
