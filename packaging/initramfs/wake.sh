#!/bin/sh
# Wakes the machine if it sleeps; any doubt ends in the boot as usual, with the reason in the kernel's
# log. With --before-udev it loads only the modules that a wake before udev needs, and puts off to the
# later run what it cannot judge yet. In every initramfs it is /usr/bin/dormouse-wake-hook.
when=${1:-}
# Whether the key or the counter is the TPM's. An initramfs may have no grep.
needs_tpm() {
	[ -f "$settings" ] || return 1
	while read -r line; do
		case $line in
		'key = "tpm"' | 'counter = '*) return 0 ;;
		esac
	done <"$settings"
	return 1
}

settings=/etc/dormouse/seal.toml
modules="nfit nd_pmem dax_pmem dax_hmem device_dax"
if [ -z "$when" ] || [ -f /etc/dormouse/cxl-regions.toml ]; then
	modules="cxl_port cxl_acpi cxl_pci cxl_mem cxl_pmem $modules"
fi
if [ -z "$when" ] || needs_tpm; then
	modules="$modules tpm_tis tpm_crb"
fi
if [ -f /etc/dormouse/cxl-regions.toml ]; then
	modules="$modules dormouse_snapshot"
fi
for module in $modules; do
	modprobe -q "$module" || true
done
/usr/bin/dormouse-wake "$@" || true
