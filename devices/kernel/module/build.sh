#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Builds dormouse_dpm.ko, and with it the made-up devices of the lab (pm_graph_test.ko), against
# kernel headers that were unpacked (dpkg -x), not installed.
#
#   build.sh EXTRACTED-ROOT KERNEL-RELEASE WORK-DIR OUTPUT-DIR [TOOLS-ROOT]
#
# The arguments are those of machine/kernel/build.sh, which does it.
set -eu

here=$(dirname "$(realpath "$0")")
MODULE_SOURCE=$here MODULE_TREE="tree TEST=y" exec "$here/../../../machine/kernel/build.sh" "$@"
