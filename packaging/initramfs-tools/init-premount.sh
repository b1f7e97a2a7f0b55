#!/bin/sh
# Wakes the machine if it sleeps; any doubt ends in the boot as usual, with the reason in the
# kernel's log.
PREREQ="udev"
case "${1:-}" in
prereqs)
	echo "$PREREQ"
	exit 0
	;;
esac

for module in nfit cxl_acpi cxl_pci cxl_mem cxl_port cxl_pmem nd_pmem dax_pmem dax_hmem device_dax \
	tpm_tis tpm_crb; do
	modprobe -q "$module" || true
done
/usr/bin/dormouse-wake || true
