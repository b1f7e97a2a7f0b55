#!/usr/bin/env bash
# Builds the Debian packages and the static tarball from this tree.
#
#   packaging/build.sh [OUTPUT-DIRECTORY]      default: out/packages
#
# PACKAGE_SUFFIX=+2   appended to the version, for a second build that upgrades the first
# DORMOUSE=FILE       the command that `make build` made; without it one is compiled from the copy
#
# The files that git knows, and new ones that it does not ignore, are copied to OUTPUT/tree with
# packaging/debian as debian/; dpkg-buildpackage works there and nothing is written into the tree
# itself. Logs: OUTPUT/build.log. Exit codes: 0 built and without lintian errors; 1 failed;
# 3 a program is missing.
set -euo pipefail

cd "$(dirname "$0")/.."
output=$(realpath -m "${1:-out/packages}")
tree=$output/tree
log=$output/build.log
suffix=${PACKAGE_SUFFIX:-}
[ -z "${DORMOUSE:-}" ] || DORMOUSE=$(realpath "$DORMOUSE")
export ${DORMOUSE:+DORMOUSE}

say() { printf 'packages: %s\n' "$*" >&2; }

fail() {
	say "$*"
	exit 1
}

for tool in dpkg-buildpackage dh dh_dkms lintian python3 cargo git xz; do
	command -v "$tool" >/dev/null || {
		say "$tool is missing: scripts/setup.sh --for packages"
		exit 3
	}
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)$suffix

stage() {
	rm -rf "$tree"
	mkdir -p "$tree"
	# A file that was deleted and not yet committed is still in the index.
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do
			[ ! -e "$file" ] || printf '%s\0' "$file"
		done | tar --null --files-from=- -cf - | tar -xf - -C "$tree"
	cp -a packaging/debian "$tree/debian"
	local maintainer date
	maintainer=$(sed -n 's/^Maintainer: //p' packaging/debian/control)
	date=$(git log -1 --format=%cD)
	packaging/changelog.py "$version" "$maintainer" "$date" CHANGELOG.md \
		>"$tree/debian/changelog"
}

build() {
	# debhelper gives the build another home; crates and toolchain are in this user's.
	export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
	# -d: Rust may come from rustup, which dpkg does not know; setup.sh has checked the rest.
	(cd "$tree" && dpkg-buildpackage -b -us -uc -d --no-pre-clean) >"$log" 2>&1 || {
		tail -n 25 "$log" >&2
		fail "dpkg-buildpackage failed; all of it: $log"
	}
}

mkdir -p "$output"
rm -f "$output"/*.deb "$output"/*.changes "$output"/*.buildinfo "$output"/*.tar.xz
say "staging version $version"
stage
say "building the Debian packages"
build
say "checking them with lintian"
lintian --fail-on error --tag-display-limit 0 "$output"/*.changes ||
	fail "lintian found errors"
say "building the static tarball"
packaging/tarball/build.sh "$tree" "$version" "$output"
rm -rf "$tree"
ls -l "$output"/*.deb "$output"/*.tar.xz >&2
