#!/usr/bin/env bash
# Makes the flash image of a machine that boots the Debian system of disk.sh.
#
#   rom.sh LAB-ROM FOLDER COMMAND-LINE OUTPUT
#
# LAB-ROM is the flash image that `dormouse lab build` made: the file `inputs` beside it names the
# firmware without a payload, beside which cbfstool lies. FOLDER is what disk.sh printed.
set -euo pipefail

[ $# = 4 ] || {
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
made=$(dirname "$1")
key=$(sed -n 's/^firmware = "\(.*\)"/\1/p' "$made/inputs")
firmware=$made/../../firmware/$key
cp "$firmware/coreboot.rom" "$4"
"$firmware/cbfstool" "$4" add-payload -n fallback/payload -c none -C "$3" \
	-f "$2/vmlinuz" -I "$2/initrd.gz"
