#!/usr/bin/env bash
# Makes a root file system for a container image from the distribution's packages, untouched otherwise.
#
#   scripts/container-image.sh FILE.tar PACKAGE…
#
# Nothing is done when the file exists. No registry of images is asked: `podman import FILE.tar NAME`.
# Needs root and mmdebstrap. Exit codes: 0 it is there; 1 it cannot be made; 2 wrong usage; 3 something is missing.
set -Eeuo pipefail
# shellcheck source=scripts/lib/say.sh
. "$(dirname "$0")/lib/say.sh"
trap 'died "$LINENO" "$BASH_COMMAND"' ERR

if [ $# -lt 2 ]; then
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
file=$1
shift
[ ! -s "$file" ] || exit 0
[ "$(id -u)" = 0 ] || missing "making a root file system needs root" "run it as root"
command -v mmdebstrap >/dev/null || missing "mmdebstrap is not installed" "scripts/setup.sh --for containers"

# This machine's own release and archive.
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
packages=$(IFS=, && echo "$*")
mkdir -p "$(dirname "$file")"
new=$file.new-$$.tar
log=$file.log
trap 'rm -f "$new"' EXIT
mmdebstrap --variant=apt --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
	"$release" "$new" >"$log" 2>&1 || failed "mmdebstrap cannot make $file" "next: read $log"
mv "$new" "$file"
