#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# The order of devices, tested on this machine: random graphs through the code that the kernel
# compiles, under the address and undefined-behaviour sanitizers.
#
#   run.sh [GRAPHS [SEED [MOST-DEVICES]]]      default: 10000 1 2000
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
power=$here/../files/drivers/base/power
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-gcc}" -std=gnu11 -O2 -g -Wall -Wextra -Werror -fsanitize=address,undefined \
	-fno-sanitize-recover=all -I "$power" \
	-o "$work/graph_core_test" "$here"/*.c "$power/graph_core.c" "$power/graph_choice.c"
"$work/graph_core_test" "$@"
