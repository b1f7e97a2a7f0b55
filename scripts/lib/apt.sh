# What is installed, what the archive has, and apt's failures in words.
# Read with `.` after say.sh; `wanted` and `prefix` are the script's.
# shellcheck shell=bash disable=SC2154

# More lists may follow: what only one target needs.
package_lists=("$(dirname "${BASH_SOURCE[0]}")/../packages.txt")

# The distribution's name as it gives it.
distribution() {
	local name
	name=$(sed -n 's/^PRETTY_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "${OS_RELEASE:-/etc/os-release}" 2>/dev/null |
		sed -n 1p) || name=
	echo "${name:-an unknown distribution}"
}

# Lines of the lists without comments.
needed_packages() { grep -hv '^#' "${package_lists[@]}"; }

# The entries of packages.txt of which nothing is installed.
missing_packages() {
	local names all installed entry name found
	mapfile -t names < <(needed_packages | sed 's/ .*//')
	mapfile -t all < <(printf '%s\n' "${names[@]}" | tr '|' '\n')
	# dpkg-query fails with 1 when it does not know a name; what it prints is still right.
	# shellcheck disable=SC2016
	installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${all[@]}" 2>/dev/null) ||
		[ $? = 1 ] || return 1
	for entry in "${names[@]}"; do
		found=
		for name in ${entry//|/ }; do
			! grep -qxF "installed $name" <<<"$installed" || found=yes
		done
		[ -n "$found" ] || echo "$entry"
	done
}

# The archive's version of a package, without epoch and revision; nothing where it has none.
archive_version() {
	{ apt-cache policy "$1" 2>/dev/null || true; } |
		sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}\([0-9][0-9.]*\).*/\2/p' | sed -n 1p
}

# Of each entry of `wanted` the package that the archive has; the first where it has none.
choose_packages() {
	local entry name chosen
	for entry in "${wanted[@]}"; do
		chosen=${entry%%|*}
		for name in ${entry//|/ }; do
			[ -z "$(archive_version "$name")" ] || { chosen=$name && break; }
		done
		echo "$chosen"
	done
}

last_update=

# apt_run VERB ARGUMENTS…: as root; a failure ends the script with its reason.
apt_run() {
	local log status=0 command
	log=$(mktemp 2>/dev/null) || missing "no file can be made in ${TMPDIR:-/tmp}" \
		"$(df -h "${TMPDIR:-/tmp}" 2>&1 | sed -n '$p')" "make room there, then make again"
	command=(${prefix:+"$prefix"} env LC_ALL=C DEBIAN_FRONTEND=noninteractive
		apt-get -q -o DPkg::Lock::Timeout=120 "$@")
	say "${command[*]}"
	"${command[@]}" 2>&1 | tee "$log" >&2 || status=${PIPESTATUS[0]}
	local said
	said=$(cat "$log")
	rm -f "$log"
	# `apt-get update` reports success even if it reached no archive: remember what it said.
	[ "$1" != update ] || last_update=$said
	[ "$status" = 0 ] || explain_apt "$1" "$status" "$said"
}

# explain_apt VERB STATUS SAID: why apt failed, and what to do.
explain_apt() {
	local what
	case $3 in
	*"No space left"* | *"enough free space"*)
		missing "a disk is full: $(df -h / /var/cache/apt 2>/dev/null | sed -n '2s/  */ /gp')" \
			"make room (packages take about 3 GiB, the build 10 GiB; 'apt-get clean' helps), then make again"
		;;
	*"Unable to locate package"* | *"has no installation candidate"*)
		what=$(sed -n "s/^E: Unable to locate package //p; s/^E: Package '\(.*\)' has no installation.*/\1/p" <<<"$3" |
			tr '\n' ' ')
		if grep -qE '^(W|E): .*(Failed to fetch|index files failed)' <<<"$last_update"; then
			missing "the package archive cannot be reached, and the lists that are here lack: $what" \
				"look at the network; a proxy goes into /etc/apt/apt.conf (Acquire::http::Proxy)"
		fi
		missing "the archives of $(distribution) do not have: $what" \
			"see docs/howto/distributions.md for the releases that do; Ubuntu: enable 'universe'"
		;;
	*"Temporary failure resolving"* | *"Could not resolve"* | *"Failed to fetch"* | *"Unable to connect"* | \
		*"Connection failed"* | *"Connection timed out"* | *"Unable to fetch"*)
		missing "the package archive cannot be reached" \
			"look at the network; a proxy goes into /etc/apt/apt.conf (Acquire::http::Proxy)"
		;;
	*"Could not get lock"* | *"Unable to acquire"* | *"Unable to lock"*)
		missing "another program is installing packages" "wait until it is done, then make again"
		;;
	*"dpkg was interrupted"* | *"unmet dependencies"*)
		failed "packages of this machine are half installed or do not fit together" \
			"next: run as root: dpkg --configure -a && apt-get --fix-broken install"
		;;
	*"but remove is disabled"*)
		failed "a package that is installed is in the way of those that are needed" \
			"next: see above which; remove it, or use another machine or a chroot (scripts/chroot-test.sh)"
		;;
	*)
		failed "apt-get $1 failed with exit code $2" "next: see its lines above; then make again"
		;;
	esac
}
