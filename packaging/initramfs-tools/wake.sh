#!/bin/sh
# Wakes the machine if it sleeps; any doubt ends in the boot as usual, with the reason in the kernel's
# log. Installed twice: as init-top/dormouse it runs before udev, which the wake then does not wait for,
# and puts off what it cannot judge yet to init-premount/dormouse, which runs when udev has settled.
case "$0" in
*/init-top/*)
	PREREQ=""
	when=--before-udev
	;;
*)
	PREREQ="udev"
	when=
	;;
esac
case "${1:-}" in
prereqs)
	echo "$PREREQ"
	exit 0
	;;
esac

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
/usr/bin/dormouse-wake $when || true
