#!/bin/sh
# Prepares a Debian tree for the lab's machine: mmdebstrap calls it with the tree's path.
#
# The system boots systemd from the disk `dormouse-root`. Its only addition is the lab's agent, a
# service that talks to the lab on the second serial line; the program is on the lab's own disk.
set -eu

root=$1
echo dormouse >"$root/etc/hostname"
echo "127.0.0.1 localhost dormouse" >"$root/etc/hosts"
# udev finds the disks one after the other, the lab's own perhaps last: whoever needs it waits.
cat >"$root/etc/fstab" <<'FSTAB'
/dev/disk/by-id/virtio-dormouse-root / ext4 defaults 0 1
/dev/disk/by-id/virtio-dormouse-payload /run/payload ext4 ro,noload,noauto,x-systemd.device-timeout=infinity 0 0
FSTAB
: >"$root/etc/machine-id"
# Its own redis must not run beside the one that the test starts.
rm -f "$root/etc/systemd/system/multi-user.target.wants/redis-server.service" \
	"$root/etc/systemd/system/redis.service"

cat >"$root/etc/systemd/system/lab-agent.service" <<'UNIT'
[Unit]
Description=Agent of the lab
After=multi-user.target
RequiresMountsFor=/run/payload

[Service]
ExecStart=/run/payload/bin/dormouse-guest agent
Environment=PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

UNIT
# The target after multi-user.target: the machine reports to the lab when its services run.
mkdir -p "$root/etc/systemd/system/graphical.target.wants"
ln -s ../lab-agent.service "$root/etc/systemd/system/graphical.target.wants/lab-agent.service"
