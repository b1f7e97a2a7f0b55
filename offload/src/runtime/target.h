/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Where on a board each part of the executor is: target/boards. */
#ifndef OFFLOAD_RUNTIME_TARGET_H
#define OFFLOAD_RUNTIME_TARGET_H

#include "runtime/executor.h"

#ifdef TARGET_BOARD
#include TARGET_BOARD
#else
#include "target/boards/mps2-an385.h"
#endif

#endif
