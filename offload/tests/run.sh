#!/usr/bin/env bash
# Builds and runs the comparison of the translator with an oracle.
#
#   offload/tests/run.sh instructions|blocks COUNT [SEED [OPTIONS [CACHE]]]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(mktemp)
trap 'rm -f "$program"' EXIT
cc -std=c11 -Wall -Wextra -Werror -O2 -Iinclude -Isrc src/*.c tests/*.c -lunicorn -o "$program"
"$program" "$@"
