#!/usr/bin/env bash
# Installs the distribution packages and the Rust that building, testing and running Dormouse needs.
#
#   scripts/setup.sh            install what is missing (as root, or through sudo)
#   scripts/setup.sh --check    only say what is missing; exit 3 if anything is
#   scripts/setup.sh --for packages   what `make packages` and its test need, too; containers: `make test-containers`;
#                                     programs: `make test-programs`
#
# Exit codes: 0 nothing is missing (any more); 1 an installation failed; 2 wrong usage; 3 this machine
# lacks something that this script cannot give it. Each end but 0 says what is missing and what to do next.
# Quick when nothing is missing, so every make target may call it.
set -Eeuo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/lib/say.sh
. "$here/lib/say.sh"
# shellcheck source=scripts/lib/rust.sh
. "$here/lib/rust.sh"
# shellcheck source=scripts/lib/apt.sh
. "$here/lib/apt.sh"
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

# Programs' words are read below, and a user's language would change them.
export LC_ALL=C

# As root, or through sudo where that can ask for a password or needs none.
root_prefix() {
	if [ "$(id -u)" = 0 ]; then
		return 0
	elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
		echo sudo
	else
		return 1
	fi
}

check_machine() {
	[ -n "${HOME:-}" ] || missing "HOME is not set, and the build keeps its cache below it" \
		"export HOME=/path/to/your/home"
	local machine
	machine=$(uname -m)
	[ "$machine" = x86_64 ] || missing "this machine is $machine, and Dormouse is built on x86-64 only" \
		"use an x86-64 machine, or an emulated one"
	command -v apt-get >/dev/null || missing "this is $(distribution), and it has no apt-get" \
		"use Debian 12 or newer, in a virtual machine or a container: docs/howto/distributions.md"
	command -v dpkg-query >/dev/null || missing "apt-get is there, but dpkg-query is not" \
		"reinstall the package dpkg, or use Debian 12 or newer: docs/howto/distributions.md"
}

# Says which packages are missing and what each is for.
list_missing() {
	local names use
	say "missing packages:"
	while read -r names use; do
		case " ${wanted[*]} " in *" $names "*) say "  $(printf '%-20s %s' "${names%%|*}" "$use")" ;; esac
	done < <(needed_packages)
}

case "${1:-} ${2:-}" in
" " | "--check ") ;;
"--for packages" | "--for containers" | "--for programs") package_lists+=("$here/for-$2.txt") ;;
*)
	sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac

check_machine
installed=$(missing_packages) || failed "dpkg-query does not say which packages are installed" \
	"next: run 'dpkg --audit', and 'dpkg --configure -a' as root"
wanted=()
[ -z "$installed" ] || mapfile -t wanted <<<"$installed"
find_rust
if [ ${#wanted[@]} = 0 ] && [ "$rust_state" = ok ]; then
	exit 0
fi

[ ${#wanted[@]} = 0 ] || list_missing
[ "$rust_state" = ok ] || say "missing: Rust $rust_needed or newer ($rust_found)"
if [ "${1:-}" = --check ]; then
	say "  next: run 'make setup'"
	exit 3
fi
# Installing a second cargo behind a broken one in the search path does not help.
[ "$rust_state" != broken ] || missing "$rust_found" "$rust_next"

if ! prefix=$(root_prefix); then
	mapfile -t candidates < <(choose_packages)
	[ "$rust_state" != none ] || read -ra rust_from_archive <<<"$(rust_packages)"
	say "packages are missing, and this user is not root and cannot become root through sudo"
	[ "$rust_state" != shim ] || say "  next: run 'rustup default stable'"
	say "  next: run this as root, then make again:"
	echo "apt-get update && apt-get install --yes --no-install-recommends" \
		"${candidates[*]} ${rust_from_archive[*]:-}" >&2
	exit 3
fi

if [ ${#wanted[@]} != 0 ] || [ "$rust_state" = none ]; then
	apt_run update
	mapfile -t chosen < <(choose_packages)
	if [ "$rust_state" = none ]; then
		read -ra rust_from_archive <<<"$(rust_packages)"
		[ ${#rust_from_archive[@]} != 0 ] ||
			missing "the archives of $(distribution) have no Rust $rust_needed and no rustup" \
				"install rustup as its site says, then make again"
		chosen+=("${rust_from_archive[@]}")
	fi
	# Nothing that is installed is ever removed for it: then apt says what is in the way.
	apt_run install --yes --no-install-recommends --no-remove "${chosen[@]}"
fi
if [ "$rust_state" = shim ] || [ "${rust_from_archive[0]:-}" = rustup ]; then
	say "rustup default stable"
	rustup default stable >&2 || missing "rustup cannot install a toolchain" \
		"it needs the network: see the lines above; HTTPS_PROXY names a proxy" \
		"or install Rust $rust_needed in another way, and put its cargo into the search path first"
fi
find_rust
[ "$rust_state" = ok ] || missing "after the installation: $rust_found" "$rust_next"
say "nothing is missing any more"
