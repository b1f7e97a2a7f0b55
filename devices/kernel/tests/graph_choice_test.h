/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GRAPH_CHOICE_TEST_H
#define GRAPH_CHOICE_TEST_H

/* A machine finds out which order is faster on it, and finds out again when its devices change. */
void one_choice(void);

#endif
