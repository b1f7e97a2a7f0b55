#!/usr/bin/env bash
# Checks the C of the kernel module and the firmware with the kernel's own checkpatch.pl,
# which comes from the distribution's linux-source package and is kept in the cache.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
trap 'died "$LINENO" "$BASH_COMMAND"' ERR
command -v perl >/dev/null || missing "perl is missing" "run 'make setup'"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/checkpatch
if [ ! -x "$cache/scripts/checkpatch.pl" ]; then
	echo "lint: fetching the kernel's checkpatch.pl (once)"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get -qq download linux-source-6.12 2>"$work/apt.log") ||
		missing "linux-source-6.12 cannot be fetched: $(tail -n 1 "$work/apt.log")" \
			"run 'apt-get update', and look at the network and the disk's free space"
	# The last tar stops reading once it has its files, so the first ones end with SIGPIPE.
	(set +o pipefail
	dpkg-deb --fsys-tarfile "$work"/linux-source-6.12_*.deb 2>/dev/null |
		tar -xO ./usr/src/linux-source-6.12.tar.xz 2>/dev/null |
		tar -xJ -C "$work" --strip-components=1 --occurrence=1 \
			linux-source-6.12/scripts/checkpatch.pl \
			linux-source-6.12/scripts/spelling.txt \
			linux-source-6.12/scripts/const_structs.checkpatch) ||
		failed "checkpatch.pl cannot be unpacked from linux-source-6.12" \
			"next: look at the free space of ${TMPDIR:-/tmp}, then make again"
	mkdir -p "$cache"
	# All or nothing, so that an interrupted copy is not taken for a whole one.
	rm -rf "$cache/scripts.new"
	cp -r "$work/scripts" "$cache/scripts.new"
	rm -rf "$cache/scripts"
	mv "$cache/scripts.new" "$cache/scripts"
fi

# What differs from a patch to the kernel tree:
#  LINUX_VERSION_CODE      one file serves several stock kernels
#  FILE_PATH_CHANGES       there is no MAINTAINERS file here
#  SPDX_LICENSE_TAG        checkpatch asks the kernel tree for the licence list
ignore=LINUX_VERSION_CODE,FILE_PATH_CHANGES,SPDX_LICENSE_TAG
status=0

# check NAME OPTIONS -- FILES
check() {
	local name=$1 options=()
	shift
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	for file in "$@"; do
		"$cache/scripts/checkpatch.pl" --no-tree --terse --no-summary --max-line-length=100 \
			"${options[@]}" --file "$file" || status=1
	done
	[ "$status" != 0 ] || echo "lint: checkpatch: $name: $# files clean"
}

mapfile -t kernel < <(git ls-files 'machine/kernel/*.[ch]')
mapfile -t firmware < <(git ls-files 'machine/firmware/driver/*.[ch]')
check kernel --strict --ignore "$ignore" -- "${kernel[@]}"
mapfile -t devices < <(git ls-files 'devices/kernel/files/*.[ch]' 'devices/kernel/tests/*.[ch]')
# The ordering code and its test compile on the host as well, which has C's own types. Trace events
# have a form of their own.
check devices --strict --ignore \
	"$ignore,PREFER_KERNEL_TYPES,CAMELCASE,PARENTHESIS_ALIGNMENT,OPEN_ENDED_LINE,MACRO_ARG_UNUSED,MACRO_ARG_REUSE" \
	-- "${devices[@]}"
# Function types stand for functions of the kernel that are not exported; a name is shared by two files.
mapfile -t module < <(git ls-files 'devices/kernel/module/*.[ch]')
check module --strict --ignore "$ignore,NEW_TYPEDEFS,STATIC_CONST_CHAR_ARRAY" -- "${module[@]}"
# The schedulers have no headers of a kernel's, so they declare what they call and use C's types.
mapfile -t schedulers < <(git ls-files 'bandwidth/bpf/*.[ch]' 'process/bpf/*.c')
check schedulers --strict --ignore "$ignore,PREFER_KERNEL_TYPES,AVOID_EXTERNS,CAMELCASE" -- \
	"${schedulers[@]}"
# coreboot's printk takes BIOS_… levels, it has no strscpy, and its linker's symbols are declared
# where they are used.
check firmware --ignore "$ignore,PRINTK_WITHOUT_KERN_LEVEL,STRCPY,AVOID_EXTERNS" -- \
	"${firmware[@]}"
exit "$status"
