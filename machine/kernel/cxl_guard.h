/* SPDX-License-Identifier: GPL-2.0-only */
/* Passing the kernel's guard over CXL memory. */
#ifndef DORMOUSE_CXL_GUARD_H
#define DORMOUSE_CXL_GUARD_H

void dormouse_cxl_guard_init(void);
void dormouse_cxl_guard_exit(void);

#endif /* DORMOUSE_CXL_GUARD_H */
