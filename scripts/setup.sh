#!/usr/bin/env bash
# Installs the distribution packages that building, testing and running Dormouse needs.
#
#   scripts/setup.sh            install what is missing (as root, or through sudo)
#   scripts/setup.sh --check    only say what is missing; exit 3 if anything is
#
# Exit codes: 0 nothing is missing (any more); 1 an installation failed; 3 something is
# missing and this user cannot install it: the line to run as root is printed.
# Quick when nothing is missing, so every make target may call it.
set -euo pipefail

# Oldest Rust with the edition that the workspace uses.
rust_needed=1.88

# package  what for
packages=(
	"build-essential      compilers for firmware, module and crates"
	"nasm                 firmware"
	"acpica-tools         firmware: its ACPI tables (iasl)"
	"pkg-config           firmware: its configuration tool"
	"patch                firmware: our hooks"
	"python3              firmware: its build scripts"
	"ccache               firmware and kernel: quick second builds"
	"flex                 the kernel for devices: its configuration tool"
	"bison                the kernel for devices: its configuration tool"
	"bc                   the kernel for devices: its build"
	"libelf-dev           module: the kernel's build tools; the loader of the scheduler"
	"zlib1g-dev           the loader of the scheduler"
	"xz-utils             the kernel package's modules"
	"e2fsprogs            disk images"
	"fakeroot             disk images, when built by a user"
	"qemu-system-x86      the emulated machine"
	"qemu-system-arm      the virtual executor: its Cortex-M3, and the big core beside it"
	"qemu-utils           the emulated machine: disks of its own"
	"clang                Rust bindings of the image format; fuzzing it; the scheduler"
	"libclang-rt-dev      fuzzing the image format: the sanitizers"
	"gcc-arm-none-eabi    the virtual executor and its guest programs"
	"libunicorn-dev       a test: the translator against an oracle"
	"cpio                 a test: what we write, the tool unpacks"
	"shellcheck           make lint"
	"perl                 make lint: the kernel's checkpatch"
	"git                  make lint: which files are ours"
	"redis-server         tests of process persistence: a program to persist"
	"nginx-light          tests of process persistence: a program to persist"
	"sqlite3              tests of process persistence: a program to persist"
	"nut-server           tests of process persistence: a UPS that loses power"
	"p7zip-full           benchmark of process persistence: a program beside it"
	"libprotobuf-dev      benchmark of process persistence: its peer, CRIU"
	"libprotobuf-c-dev    benchmark of process persistence: its peer, CRIU"
	"protobuf-compiler    benchmark of process persistence: its peer, CRIU"
	"protobuf-c-compiler  benchmark of process persistence: its peer, CRIU"
	"libcap-dev           benchmark of process persistence: its peer, CRIU"
	"libnl-3-dev          benchmark of process persistence: its peer, CRIU"
	"libnet1-dev          benchmark of process persistence: its peer, CRIU"
	"uuid-dev             benchmark of process persistence: its peer, CRIU"
)

say() { printf 'setup: %s\n' "$*" >&2; }

# version_at_least HAVE NEEDED
version_at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

missing_packages() {
	local names installed entry
	names=("${packages[@]%% *}")
	# dpkg-query fails when it does not know a name; what it prints is still right.
	# shellcheck disable=SC2016
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${names[@]}" 2>/dev/null ||
		true)
	for entry in "${names[@]}"; do
		grep -qx "installed $entry" <<<"$installed" || echo "$entry"
	done
}

# The version of the Rust that make will use; nothing if there is none.
rust_version() {
	local cargo
	cargo=$(PATH="$HOME/.cargo/bin:$PATH" command -v cargo) || return 0
	"$cargo" --version 2>/dev/null | awk '{ print $2 }'
}

# The archive's version of a package, without epoch and revision.
archive_version() {
	apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ { print $2 }' | sed 's/^[0-9]*://; s/[^0-9.].*//'
}

# Names of packages with a Rust that is new enough; nothing if the archive has none.
rust_packages() {
	if version_at_least "$(archive_version cargo)" "$rust_needed"; then
		echo cargo rustc rustfmt rust-clippy
	elif version_at_least "$(archive_version cargo-web)" "$rust_needed"; then
		# Debian 12 has a current Rust under this name, for building browsers.
		echo cargo-web rustc-web rustfmt-web rust-web-clippy
	elif [ -n "$(archive_version rustup)" ]; then
		echo rustup
	fi
}

# How this user becomes root: nothing for root, sudo, or failure.
root_prefix() {
	if [ "$(id -u)" = 0 ]; then
		return 0
	elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
		echo sudo
	else
		return 1
	fi
}

check_only=
case "${1:-}" in
"") ;;
--check) check_only=yes ;;
*)
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
	say "this machine has no apt: Dormouse is built on Debian 12 or newer"
	exit 3
fi

mapfile -t wanted < <(missing_packages)
rust=$(rust_version)
rust_missing=
if [ -z "$rust" ] || ! version_at_least "$rust" "$rust_needed"; then
	rust_missing=yes
fi
if [ ${#wanted[@]} = 0 ] && [ -z "$rust_missing" ]; then
	exit 0
fi

if [ ${#wanted[@]} != 0 ]; then
	say "missing packages:"
	for entry in "${packages[@]}"; do
		for name in "${wanted[@]}"; do
			[ "${entry%% *}" != "$name" ] || say "  $entry"
		done
	done
fi
if [ -n "$rust_missing" ]; then
	say "missing: Rust $rust_needed or newer (this machine has ${rust:-none})"
fi
[ -z "$check_only" ] || exit 3

if ! prefix=$(root_prefix); then
	read -ra from_archive <<<"$([ -z "$rust_missing" ] || rust_packages)"
	say "run this as root, then make again:"
	echo "apt-get update && apt-get install --yes --no-install-recommends" \
		"${wanted[*]}" "${from_archive[*]}" >&2
	exit 3
fi

run() {
	say "$*"
	"$@"
}

run ${prefix:+"$prefix"} apt-get -q update
if [ -n "$rust_missing" ]; then
	read -ra from_archive <<<"$(rust_packages)"
	if [ ${#from_archive[@]} = 0 ]; then
		say "this machine's archives have no Rust $rust_needed: install rustup as its site says"
		exit 3
	fi
	wanted+=("${from_archive[@]}")
fi
# Nothing that is installed is ever removed for it: then apt says what is in the way.
run ${prefix:+"$prefix"} env DEBIAN_FRONTEND=noninteractive \
	apt-get -q install --yes --no-install-recommends --no-remove "${wanted[@]}"
if [ -n "$rust_missing" ] && [ "${from_archive[0]}" = rustup ]; then
	run rustup default stable
fi
rust=$(rust_version)
if [ -z "$rust" ] || ! version_at_least "$rust" "$rust_needed"; then
	say "cargo is ${rust:-missing} after the installation, and $rust_needed is needed:" \
		"another one is in the search path or in ~/.cargo/bin"
	exit 3
fi
say "nothing is missing any more"
