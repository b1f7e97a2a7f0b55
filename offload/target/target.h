/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Output through semihosting. */
#ifndef OFFLOAD_TARGET_OUTPUT_H
#define OFFLOAD_TARGET_OUTPUT_H

#include <stdint.h>

void print(const char *text);
void print_decimal(uint32_t value);
void print_hex(uint32_t value);
/* name, a space, the value in decimal */
void print_number(const char *name, uint32_t value);
/* Writes memory to a file in the emulator's folder. */
void dump(const char *name, uint32_t address, uint32_t bytes);
/* Ends the emulator. */
void leave(uint32_t failed);

#endif
