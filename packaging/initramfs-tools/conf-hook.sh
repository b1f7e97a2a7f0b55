# Sourced by mkinitramfs: an initramfs that may hold a key is for root alone.
# shellcheck shell=sh disable=SC2034 # mkinitramfs uses it
[ ! -f /etc/dormouse/seal.toml ] || UMASK=0077
