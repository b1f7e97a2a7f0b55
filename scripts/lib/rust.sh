# Which Rust make will use, whether it is new enough, and which packages bring one that is.
# Read with `.` after say.sh.
# shellcheck shell=bash disable=SC2034  # the script reads what is set here

# Oldest Rust with the edition and the library functions that the workspace uses (Cargo.toml: rust-version).
rust_needed=1.91

# version_at_least HAVE NEEDED
version_at_least() {
	[ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | sed -n 1p)" = "$2" ]
}

# Sets rust_state, rust_found (in words) and rust_next (what to do about it):
#   ok       new enough
#   none     there is none, or only the distribution's, which is too old: packages may help
#   shim     rustup's, which has no toolchain yet
#   broken   one stands first in the search path that does not work or is too old
find_rust() {
	local path="${HOME:-}/.cargo/bin:$PATH" cargo said status=0 version
	rust_state=none
	rust_found="this machine has none"
	rust_next="install the packages cargo and rustc"
	cargo=$(PATH=$path command -v cargo) || return 0
	said=$("$cargo" --version 2>&1 </dev/null) || status=$?
	version=$(sed -n 's/^cargo \([0-9][0-9]*\.[0-9][^ ]*\).*/\1/p' <<<"$said" | sed -n 1p)
	if [ "$status" != 0 ] || [ -z "$version" ]; then
		rust_is_broken "$cargo" "$status" "$said"
	elif version_at_least "$version" "$rust_needed"; then
		rust_state=ok
	else
		rust_found="$cargo is $version"
		# What the distribution ships is replaced by its newer package; any other one would stay first.
		case $cargo in
		/usr/bin/cargo | /bin/cargo) ;;
		*)
			rust_state=broken
			rust_next="if it is rustup's, run 'rustup update stable && rustup default stable'; otherwise remove it"
			;;
		esac
	fi
}

# rust_is_broken CARGO STATUS SAID: cargo is there and does not say its version.
rust_is_broken() {
	rust_state=broken
	case $3 in
	*rustup*default* | *"no default toolchain"* | *rustup*"is not installed"*)
		rust_found="$1 is rustup's and has no toolchain"
		rust_next="run 'rustup default stable'"
		if PATH="${1%/*}:$PATH" command -v rustup >/dev/null; then
			rust_state=shim
			PATH="${1%/*}:$PATH"
		fi
		;;
	*)
		rust_found="'$1 --version' fails with exit code $2: $(sed -n 1p <<<"${3:-it says nothing}")"
		[ "$2" -lt 128 ] || rust_found="$1 was ended by signal $(($2 - 128))"
		[ "$2" != 0 ] || rust_found="'$1 --version' prints no version: $(sed -n 1p <<<"${3:-nothing}")"
		rust_next="repair or remove $1, or put a working cargo $rust_needed into the search path before it"
		;;
	esac
}

# Names of packages with a Rust that is new enough; nothing if the archive has none.
rust_packages() {
	if version_at_least "$(archive_version cargo)" "$rust_needed"; then
		echo cargo rustc rustfmt rust-clippy
	elif version_at_least "$(archive_version cargo-web)" "$rust_needed"; then
		# Debian has a current Rust under this name in stable releases, for building browsers.
		echo cargo-web rustc-web rustfmt-web rust-web-clippy
	elif [ -n "$(archive_version rustup)" ]; then
		echo rustup
	fi
}
