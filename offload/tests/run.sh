#!/usr/bin/env bash
# Builds and runs the comparison of the translator with an oracle.
#
#   offload/tests/run.sh WHAT COUNT [SEED [OPTIONS [CACHE]]]
#
# WHAT: instructions, blocks, loops, the same with thumb- before it, hand-back, interrupted, kept, caches, directed, wild-stores, modes;
# seeds: all of them with COUNT random seeds. SEED: of the random numbers, otherwise the time; it is printed. OPTIONS: a set of
# enum offload_option.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
program=
case ${1-} in
caches | seeds) program=big-core ;;
esac
"$(dirname "$0")/build.sh" "$folder" $program
OFFLOAD_BIG_CORE=$folder "$folder/differential" "$@"
