# What builds from the distribution's Linux source have in common. Read by kernel/build.sh, linux/build.sh and
# programs/build.sh, which set $here to their folders.
# shellcheck shell=bash disable=SC2034,SC2154

prefix=arm-none-eabi-

# need MIN COUNT: with fewer arguments than that, prints the comment at the head of the script, and ends.
need() {
	if [ "$2" -lt "$1" ]; then
		sed -n '/^#   /,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
		exit 2
	fi
}

# Ends the build with the reason and the end of the log; with exit code $code, if that is set.
fail() {
	echo "offload/$(basename "$here")/build.sh: $*" >&2
	tail -n 25 "$log" >&2
	exit "${code:-1}"
}

# begin WORK OUT LOG: sets $work, $out, $tree and $log, a file of that name in WORK. Locks WORK by descriptor 9, because
# all builds in it are from the same tree.
begin() {
	mkdir -p "$1" "$2"
	work=$(cd "$1" && pwd)
	out=$(cd "$2" && pwd)
	tree=$work/linux
	log=$work/$3.log
	: >"$log"
	exec 9>"$work/lock"
	flock 9
}

# Finds the compilers, and unpacks the source into $tree.
prepare() {
	local tool
	for tool in ${prefix}gcc make flex bison bc tar xz gcc; do
		command -v "$tool" >/dev/null || code=3 fail "$tool is missing: run scripts/setup.sh"
	done
	compiler=${prefix}gcc
	host=gcc
	if command -v ccache >/dev/null; then
		compiler="ccache ${prefix}gcc"
		host="ccache gcc"
	fi
	# shellcheck source=offload/kernel/source.sh
	. "$here/../kernel/source.sh"
}

# Runs make on the source, with the results in $objects.
build() {
	make -C "$tree" O="$objects" ARCH=arm CROSS_COMPILE="$prefix" CC="$compiler" HOSTCC="$host" "$@" >>"$log" 2>&1
}
