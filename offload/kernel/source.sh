# Unpacks the distribution's Linux source into $tree, once. Read by common.sh, which has $work, $tree,
# $log and fail(), and holds $work/lock.
# shellcheck shell=bash disable=SC2154
# The package, wherever it is already.
find_source() {
	# The lab's folder is not there where the lab has built nothing yet.
	for folder in "$work" "$work/../devices/downloads"; do
		[ ! -d "$folder" ] || find "$folder" -maxdepth 1 -name 'linux-source-6.12_*.deb'
	done | sort | tail -n 1
}
source=$(find_source)
if [ -z "$source" ]; then
	echo "==> fetching the source"
	(cd "$work" && apt-get -qq download linux-source-6.12 >>"$log" 2>&1) ||
		code=3 fail "linux-source-6.12 cannot be fetched; run 'apt-get update' first"
	source=$(find_source)
fi

# Without what no ARM kernel of this configuration is built from; all Kconfig files stay.
unpack() {
	echo "==> unpacking the source"
	rm -rf "$tree"
	mkdir -p "$tree"
	dpkg-deb --fsys-tarfile "$source" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' |
		tar -xJ -C "$tree" --strip-components=1 --wildcards --wildcards-match-slash \
			--exclude='*/drivers/gpu/drm/*.[ch]' --exclude='*/drivers/net/wireless/*.[ch]' \
			--exclude='*/drivers/net/ethernet/[a-rt-z]*/*.[ch]' --exclude='*/drivers/net/can/*.[ch]' \
			--exclude='*/drivers/media/*.[ch]' --exclude='*/sound/*.[ch]' \
			--exclude='*/arch/[b-t]*/*.[chS]' --exclude='*/arch/x86/*.[chS]' \
			--exclude='*/arch/arm64/*.[chS]' --exclude='*/arch/arc/*.[chS]' \
			--exclude='*/arch/arm64/*.dts*' --exclude='*/Documentation/*.rst' \
			--exclude='*/Documentation/*.yaml' --exclude='*/Documentation/*.txt' \
			2>>"$log" || fail "cannot unpack $source"
	[ -f "$tree/drivers/base/power/main.c" ] || fail "$source is not a Linux source tree"
	# The dummy devices stand beside the kernel's own code; nothing of that is changed.
	echo 'obj-y += dormouse_dummy.o' >>"$tree/drivers/misc/Makefile"
}

# Nothing is built in the tree itself.
stamp="$(basename "$source") $(stat -c %s "$source") network"
if [ "$(cat "$work/stamp" 2>/dev/null)" != "$stamp" ]; then
	rm -f "$work/stamp"
	unpack
	echo "$stamp" >"$work/stamp"
fi
