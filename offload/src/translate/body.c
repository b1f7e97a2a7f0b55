// SPDX-License-Identifier: Apache-2.0 OR MIT
/* Chooses the translation of an instruction by its family. */
#include "translate/translate.h"

void translate_body(struct translator *x)
{
	switch (a32_table[x->in.op].family) {
	case DATA_IMMEDIATE:
	case DATA_REGISTER:
	case DATA_SHIFTED:
		translate_data(x);
		break;
	case SINGLE:
	case EXTRA:
		translate_transfer(x);
		break;
	case DOUBLE:
		translate_double(x);
		break;
	case MULTIPLE:
		translate_multiple(x);
		break;
	case EXCLUSIVE:
	case SWAP:
		translate_exclusive(x);
		break;
	case BRANCH:
	case BRANCH_REGISTER:
		translate_branch(x);
		break;
	case COMPARE_BRANCH:
		translate_compare_branch(x);
		break;
	case TABLE_BRANCH:
		translate_table_branch(x);
		break;
	case HINT:
		/* The only one that the executor has something to do for. */
		x->interpret = x->in.op == A32_WFI;
		break;
	case PRELOAD:
		break;
	case BARRIER:
		translate_barrier(x);
		break;
	case COPROCESSOR:
		translate_thread_register(x);
		break;
	case STATUS:
		translate_status(x);
		break;
	case RARE:
		x->interpret = true;
		break;
	default:
		translate_media(x);
		break;
	}
}
