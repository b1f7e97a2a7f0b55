#!/usr/bin/env bash
# Builds and runs the comparison of the translator with an oracle.
#
#   offload/tests/run.sh WHAT COUNT [SEED [OPTIONS [CACHE]]]
#
# WHAT: instructions, blocks, loops, the same with thumb- before it, hand-back, kept, directed, wild-stores, modes; seeds:
# all of them with COUNT random seeds. SEED: of the random numbers, otherwise the time; it is printed. OPTIONS: a set of enum offload_option.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(mktemp)
trap 'rm -f "$program"' EXIT
mapfile -t sources < <(find src -name '*.c')
cc -std=c11 -Wall -Wextra -Werror -O2 -I. -Iinclude -Isrc "${sources[@]}" tests/*.c -lunicorn -o "$program"
"$program" "$@"
