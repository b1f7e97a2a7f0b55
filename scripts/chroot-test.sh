#!/usr/bin/env bash
# Runs a command of the README as a newcomer would: in a minimal chroot of a distribution's release,
# in a fresh clone of this tree's last commit.
#
#   scripts/chroot-test.sh [OPTION…] RELEASE [demo|test|COMMAND…]
#
# RELEASE: a code name: bookworm, trixie, sid, or one of Ubuntu's. demo and test are `make demo` and
# `make test`; COMMAND is anything else, run by bash in the clone. Without a command: demo.
#
#   --mirror URL      the archive of the release; default: this machine's own, and for Ubuntu the folder
#                     `ubuntu` beside it (or DORMOUSE_MIRROR)
#   --keyring FILE    the keys that sign it; default: what /usr/share/keyrings has of Debian or Ubuntu
#   --keep            use the chroot of the last run with its packages, clone and cache; default: a new one
#
# The chroot is made in ~/.cache/dormouse/chroots (about 10 GiB) and stays there. Needs root, mmdebstrap.
# Prints a line of a Markdown table at the end, and adds it to out/distributions.md.
# Exit codes: the command's own; 1 the chroot cannot be made; 2 wrong usage; 3 something is missing.
set -Eeuo pipefail
# shellcheck source=scripts/lib/say.sh
. "$(dirname "$0")/lib/say.sh"
trap 'died "$LINENO" "$BASH_COMMAND"' ERR
cd "$(dirname "$0")/.."

usage() {
	sed -n '2,17s/^# \{0,1\}//p' scripts/chroot-test.sh >&2
	exit 2
}

mirror=${DORMOUSE_MIRROR:-}
keyring=
keep=
while [ $# -gt 0 ]; do
	case $1 in
	--mirror) mirror=${2:?$(usage)} && shift 2 ;;
	--keyring) keyring=${2:?$(usage)} && shift 2 ;;
	--keep) keep=yes && shift ;;
	-*) usage ;;
	*) break ;;
	esac
done
[ $# -gt 0 ] || usage
release=$1
shift
case "$*" in
"" | demo) command=(make demo) ;;
test) command=(make test) ;;
*) command=("$@") ;;
esac

[ "$(id -u)" = 0 ] || missing "a chroot needs root" "run it as root: sudo scripts/chroot-test.sh $release"
command -v mmdebstrap >/dev/null || missing "mmdebstrap is not installed" "apt-get install mmdebstrap"

# Which distribution a code name belongs to: Debian's are few, and known.
case $release in
bookworm | trixie | forky | duke | sid | unstable | testing | stable) family=debian ;;
*) family=ubuntu ;;
esac

# archive NAME: where this machine's apt finds Debian's archive (Debian) or its security archive
# (Debian-Security), by the label that the archive gives itself.
archive() {
	local configured
	# shellcheck disable=SC2016  # apt's own placeholders
	configured=$(LC_ALL=C apt-get indextargets --format '$(LABEL)|$(REPO_URI)' 'Identifier: Packages')
	sed -n "s/^$1|//p" <<<"$configured" | head -n 1
}

debian=$(archive Debian)
[ -n "$mirror$debian" ] ||
	missing "this machine's apt knows no Debian archive" "run 'apt-get update', or give --mirror URL"
case $family in
debian)
	mirror=${mirror:-$debian}
	key=${keyring:-/usr/share/keyrings/debian-archive-keyring.gpg}
	components=main
	suites=("$mirror $release")
	security=$(archive Debian-Security)
	case $release in
	sid | unstable) ;;
	*)
		suites+=("$mirror $release-updates")
		[ -z "$security" ] || suites+=("$security $release-security")
		;;
	esac
	;;
ubuntu)
	mirror=${mirror:-${debian%/debian*}/ubuntu}
	key=${keyring:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
	components="main universe"
	suites=("$mirror $release" "$mirror $release-updates" "$mirror $release-security")
	# The lab's machine is Debian's.
	export DORMOUSE_DEBIAN_ARCHIVE=${DORMOUSE_DEBIAN_ARCHIVE:-$debian}
	;;
esac
[ -r "$key" ] || missing "$key is not there, so $release's archive cannot be verified" \
	"install the package debian-archive-keyring or ubuntu-keyring (Debian 12 has it in backports)" \
	"or give --keyring FILE"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dormouse/chroots
chroot=$cache/$release
log=$cache/$release.log
mkdir -p "$cache"

make_chroot() {
	local suite lines=() options=()
	for suite in "${suites[@]}"; do
		lines+=("deb [signed-by=$key] $suite $components")
	done
	# A machine that is set not to mind old lists (a mirror of a day) hands that on.
	if apt-config dump | grep -q 'Acquire::Check-Valid-Until "false"'; then
		options+=(--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"')
	fi
	say "making a minimal $release in $chroot"
	rm -rf --one-file-system "$chroot"
	printf '%s\n' "${lines[@]}" |
		mmdebstrap --mode=root --variant=minbase --include=apt,git,make,ca-certificates "${options[@]}" \
			"$release" "$chroot" - >"$log" 2>&1 ||
		failed "$release cannot be made; the end of $log:" "$(tail -n 15 "$log")"
	# What this machine's administrator trusts beside the distribution's authorities.
	if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
		cp /usr/local/share/ca-certificates/*.crt "$chroot/usr/local/share/ca-certificates/"
		chroot "$chroot" update-ca-certificates >>"$log" 2>&1
	fi
	cp /etc/resolv.conf /etc/hosts "$chroot/etc/"
	mkdir -p "$chroot$(dirname "$key")"
	[ -e "$chroot$key" ] || cp "$key" "$chroot$key"
}

if [ -z "$keep" ] || [ ! -x "$chroot/usr/bin/git" ]; then
	make_chroot
fi
if [ -d "$chroot/root/dormouse" ]; then
	git -C "$chroot/root/dormouse" fetch --quiet --force "$PWD" HEAD
	git -C "$chroot/root/dormouse" reset --quiet --hard FETCH_HEAD
else
	git clone --quiet --no-hardlinks . "$chroot/root/dormouse"
fi

# What runs inside: a mount and process namespace of its own, so that nothing stays behind. The folder
# becomes the root of its mounts, as on a machine: what is restored there has a mount to be restored on.
inside() {
	# shellcheck disable=SC2016  # expanded inside
	unshare --mount --pid --fork --kill-child --propagation private bash -euc '
		root=$1
		shift
		mount --bind "$root" "$root"
		mount --rbind /dev "$root/dev"
		mount -t proc proc "$root/proc"
		mount --rbind /sys "$root/sys"
		mount -t tmpfs tmpfs "$root/run"
		cd "$root"
		pivot_root . .
		umount --lazy .
		cd /
		exec /usr/bin/env -i HOME=/root USER=root TERM=dumb LANG=C.UTF-8 \
			${DORMOUSE_DEBIAN_ARCHIVE:+DORMOUSE_DEBIAN_ARCHIVE="$DORMOUSE_DEBIAN_ARCHIVE"} \
			PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
			bash -c "cd /root/dormouse && \"\$@\"" bash "$@"
	' bash "$chroot" "$@"
}

begin=$SECONDS
status=0
say "running '${command[*]}' in $release"
inside "${command[@]}" </dev/null || status=$?
seconds=$((SECONDS - begin))

describe() { # shellcheck disable=SC1091
	(. "$chroot/etc/os-release" && echo "${PRETTY_NAME:-$release}")
}
result=passed
[ "$status" = 0 ] || result="failed with $status"
mkdir -p out
# shellcheck disable=SC2016  # Markdown
printf '| %s | %s | %s | %s | `%s` | %s | %d min %02d s |\n' "$(date +%F)" "$(describe)" \
	"$(cat "$chroot/etc/debian_version")" "$(git -C "$chroot/root/dormouse" rev-parse --short HEAD)" "${command[*]}" "$result" \
	$((seconds / 60)) $((seconds % 60)) | tee -a out/distributions.md
exit "$status"
