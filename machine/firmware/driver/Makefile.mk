## SPDX-License-Identifier: GPL-2.0-only

ifeq ($(CONFIG_DRIVERS_DORMOUSE),y)

# The image format: the same files that Linux and the Rust crates compile.
dormouse-image := image/src/xxh64.c image/src/strings.c image/src/header.c
dormouse-image += image/src/geometry.c image/src/check.c image/src/plan.c image/src/copy.c
dormouse-image += image/src/user_pages.c

dormouse-both := event.c copy_pages.c $(dormouse-image)

ramstage-y += chip.c geometry.c handover.c facs.c paging.c wake.c restore.c
ramstage-y += user_check.c
ramstage-y += $(dormouse-both)
ramstage-$(CONFIG_DORMOUSE_FAULT_POINTS) += fault.c
ramstage-$(CONFIG_DORMOUSE_TPM) += tpm.c
ramstage-$(CONFIG_DORMOUSE_BOARD_QEMU) += board_qemu.c

smm-y += smi.c save.c serial_smm.c
smm-y += $(dormouse-both)
smm-$(CONFIG_DORMOUSE_FAULT_POINTS) += fault.c
smm-$(CONFIG_DORMOUSE_BOARD_QEMU) += board_qemu_smm.c
smm-$(CONFIG_DORMOUSE_BOARD_NATIVE) += board_native_smm.c

CPPFLAGS_common += -I$(src)/drivers/dormouse/image/include

# Copying and hashing are the whole time of a sleep: speed before size here.
$(obj)/ramstage/drivers/dormouse/image/%.o: CFLAGS_ramstage += -O2
$(obj)/smm/drivers/dormouse/image/%.o: CFLAGS_smm += -O2

endif
