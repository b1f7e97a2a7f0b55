#!/usr/bin/env bash
# The hook for initramfs-tools takes along what the settings of sealed images name, for root alone, and
# nothing else. The functions of initramfs-tools are replaced by ones that print their arguments.
set -euo pipefail

cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
cases=0

cat >"$work/functions" <<'FUNCTIONS'
copy_exec() { echo "program $1"; }
copy_file() { echo "$1 $2 as $3"; }
manual_add_modules() { echo "modules $*"; }
FUNCTIONS
sed -e "s|/usr/share/initramfs-tools/hook-functions|$work/functions|" \
	-e "s|/etc/dormouse|$work/etc|g" -e "s|/usr/bin/tpm2|$work/tpm2|g" \
	-e "s|/etc/ndctl|$work/ndctl-etc|g" -e "s|/usr/bin/ndctl|$work/ndctl|g" \
	packaging/initramfs-tools/hook.sh >"$work/hook.sh"

# Settings in, then what must be there and what must not: program, file name or module, or "rc N".
expect() {
	local name=$1 settings=$2 found word
	shift 2
	cases=$((cases + 1))
	rm -rf "${work:?}/etc" "${work:?}/destination"
	mkdir -p "$work/etc/seal.tpm" "$work/destination"
	[ ! -f "$work/cxl-regions.toml" ] || cp "$work/cxl-regions.toml" "$work/etc"
	touch "$work/etc/seal.key" "$work/etc/other.key" "$work"/etc/seal.tpm/key.{pub,priv}
	[ -z "$settings" ] || printf '%b' "$settings" >"$work/etc/seal.toml"
	found=$(
		DESTDIR=$work/destination sh "$work/hook.sh" 2>&1 || echo "rc $?"
		find "$work/destination" -type f -printf '%m %f\n'
	)
	for word in "$@"; do
		case $word in
		!*) ! grep -qF -- "${word#!}" <<<"$found" || wrong "$name: there is ${word#!}" "$found" ;;
		*) grep -qF -- "$word" <<<"$found" || wrong "$name: there is no $word" "$found" ;;
		esac
	done
}

wrong() {
	echo "initramfs-hook: $1" >&2
	printf "%s\n" "$2" >&2
	failures=$((failures + 1))
}

printf '#!/bin/sh\n' >"$work/tpm2"
chmod 755 "$work/tpm2"
expect "plain text" "" "program /usr/lib/dormouse/dormouse-wake" \
	"script /usr/lib/dormouse/dormouse-wake-hook as /usr/bin/dormouse-wake-hook" \
	dax_pmem libnvdimm cxl_pci cxl_mem '!kmem' '!seal' '!tpm' '!ndctl' '!cxl-regions' '!dormouse_snapshot'
touch "$work/cxl-regions.toml"
expect "regions of CXL memory" "" "600 cxl-regions.toml" "modules dormouse_snapshot"
rm "$work/cxl-regions.toml"
expect "the usual key file" 'key = "key-file"\n' "600 seal.toml" "600 seal.key" '!other.key' '!tpm2'
expect "another key file" "key = \"key-file\"\nkey-file = \"$work/etc/other.key\"\n" \
	"600 other.key" '!600 seal.key'
expect "the TPM" 'key = "tpm"\npcrs = "sha256:7"\ncounter = 1\n' \
	"600 key.pub" "600 key.priv" tpm2 "modules tpm_tis tpm_crb" '!seal.key'
expect "a passphrase" 'key = "passphrase"\npassphrase-id = "00"\n' "600 seal.toml" '!key.priv' '!tpm2'
expect "a passphrase and a counter" 'key = "passphrase"\ncounter = 1\n' tpm2 '!key.priv'
printf '#!/bin/sh\n' >"$work/ndctl"
chmod 755 "$work/ndctl"
mkdir -p "$work/ndctl-etc/keys"
touch "$work/ndctl-etc/keys/keys.readme"
expect "ndctl without keys" "" "program $work/ndctl" '!keys.readme'
touch "$work/ndctl-etc/keys/nvdimm-master.blob"
expect "the keys of locked NVDIMMs" "" "program $work/ndctl" "600 nvdimm-master.blob" '!keys.readme'
rm "$work/tpm2"
expect "a TPM without its tools" 'key = "tpm"\n' "rc 1" "tpm2-tools"


# The script for the boot, in both of its places: which modules it loads, and what it calls; then whether
# it comes before udev in the order that initramfs-tools makes of all scripts.
mkdir -p "$work/bin" "$work/scripts/init-top" "$work/scripts/init-premount"
cat >"$work/bin/modprobe" <<'PROGRAM'
#!/bin/sh
echo "load $2"
PROGRAM
cat >"$work/dormouse-wake" <<'PROGRAM'
#!/bin/sh
echo "wake $*"
PROGRAM
chmod 755 "$work/bin/modprobe" "$work/dormouse-wake"
staged() {
	sed -e "s|/etc/dormouse|$work/etc|g" -e "s|/usr/bin/dormouse-wake|$work/dormouse-wake|" "packaging/$1"
}
staged initramfs/wake.sh >"$work/dormouse-wake-hook"
chmod 755 "$work/dormouse-wake-hook"
staged initramfs-tools/wake.sh |
	tee "$work/scripts/init-top/dormouse" >"$work/scripts/init-premount/dormouse"
boots() {
	local name=$1 place=$2 found word
	shift 2
	cases=$((cases + 1))
	found=$(PATH=$work/bin /bin/sh "$work/scripts/$place/dormouse" 2>&1 || echo "rc $?")
	for word in "$@"; do
		case $word in
		!*) ! grep -qxF -- "${word#!}" <<<"$found" || wrong "$name: there is ${word#!}" "$found" ;;
		*) grep -qxF -- "$word" <<<"$found" || wrong "$name: there is no $word" "$found" ;;
		esac
	done
	! grep -qF "not found" <<<"$found" || wrong "$name: a program is not there" "$found"
}
rm -f "$work"/etc/*.toml
boots "before udev" init-top "load nfit" "load device_dax" "wake --before-udev" '!load cxl_pci' '!load tpm_tis' '!load kmem' \
	'!load dormouse_snapshot'
boots "after udev" init-premount "load nfit" "load cxl_pci" "load tpm_tis" "wake " '!wake --before-udev' '!load kmem'
touch "$work/etc/cxl-regions.toml"
printf 'key = "tpm"\n' >"$work/etc/seal.toml"
boots "CXL and a TPM before udev" init-top "load cxl_mem" "load dormouse_snapshot" "load tpm_crb" \
	"wake --before-udev"
boots "CXL after udev" init-premount "load dormouse_snapshot"
printf 'key = "key-file"\ncounter = 1\n' >"$work/etc/seal.toml"
boots "a counter" init-top "load tpm_tis"
printf 'key = "key-file"\n' >"$work/etc/seal.toml"
boots "no counter" init-top '!load tpm_tis'

for script in all_generic_ide blacklist keymap udev; do
	printf '#!/bin/sh\necho\n' >"$work/scripts/init-top/$script"
done
order=$(
	for script in "$work"/scripts/init-top/*; do
		name=${script##*/}
		echo "$name $name"
		for before in $(sh "$script" prereqs); do
			echo "$before $name"
		done
	done | tsort | grep -x -e dormouse -e udev | tr '\n' ' '
)
[ "$order" = "dormouse udev " ] || wrong "the order of scripts" "$order"

[ "$failures" = 0 ] || exit 1
echo "initramfs-hook: $cases settings, each with what it names"
