#!/bin/sh
# Runs what wakes the machine if it sleeps. Installed twice: as init-top/dormouse it runs before udev,
# which the wake then does not wait for, and puts off what it cannot judge yet to init-premount/dormouse,
# which runs when udev has settled.
case "$0" in
*/init-top/*)
	PREREQ=""
	when=--before-udev
	;;
*)
	PREREQ="udev"
	when=
	;;
esac
case "${1:-}" in
prereqs)
	echo "$PREREQ"
	exit 0
	;;
esac

/usr/bin/dormouse-wake-hook $when || true
