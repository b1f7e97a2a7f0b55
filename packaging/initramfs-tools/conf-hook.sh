# Sourced by mkinitramfs: an initramfs that may hold a key is for root alone.
# shellcheck shell=sh disable=SC2034 # mkinitramfs uses it
[ ! -f /etc/dormouse/seal.toml ] || UMASK=0077
for dormouse_key in /etc/ndctl/keys/*.blob; do
	[ ! -f "$dormouse_key" ] || UMASK=0077
done
