/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GRAPH_CHOICE_TEST_H
#define GRAPH_CHOICE_TEST_H

/* List order comes exactly where graph order takes more than it gains, and not for ever. */
void one_choice(void);

#endif
