#!/usr/bin/env bash
# Builds the comparison of the translator with an oracle.
#
#   offload/tests/build.sh OUT [big-core]     writes the program differential into OUT; with big-core also what its
#                                             big core runs in the test caches, for which OUT is in OFFLOAD_BIG_CORE
set -euo pipefail
out=$(realpath "$1")
cd "$(dirname "$0")/.."
mapfile -t sources < <(find src -name '*.c')
cc -std=c11 -Wall -Wextra -Werror -O2 -I. -Iinclude -Isrc "${sources[@]}" tests/*.c tests/caches/*.c -lunicorn \
	-o "$out/differential"
if [ "${2-}" = big-core ]; then
	tests/caches/big/build.sh "$out"
fi
