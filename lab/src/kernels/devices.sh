# shellcheck shell=sh
# Down to the devices and back where the kernel has pm_test; otherwise a whole suspend to idle. The
# emulated real-time clock wakes no machine from that: its alarm reaches ACPI only in S3. So the host
# writes to the agent's serial line, which may wake the machine.
how="--test devices"
if [ ! -e /sys/power/pm_test ]; then
    how="--wake-after never"
    echo enabled >/sys/class/tty/ttyS1/power/wakeup || exit 1
fi
# shellcheck disable=SC2086 # an option and its value
dormouse devices record /root/recording $how >/run/devices.log 2>&1
code=$?
if [ $code != 0 ]; then
    tail -n 5 /run/devices.log >&2
    exit $code
fi
dormouse devices analyze /root/recording --strict --json >/run/devices.json 2>/run/devices.log
code=$?
if [ $code != 0 ]; then
    tail -n 5 /run/devices.log >&2
    exit $code
fi
echo "recorded with $how, $(grep -o '"devices": *[0-9]*' /run/devices.json | head -n 1 | tr -dc 0-9) devices"
