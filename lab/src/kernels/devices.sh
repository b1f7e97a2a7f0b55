# shellcheck shell=sh
# Ends the check with the last lines of a log, unless the command before succeeded.
succeeded() {
    [ "$1" = 0 ] && return
    tail -n 5 "$2" >&2
    exit "$1"
}

# Down to the devices and back where the kernel has pm_test; otherwise a whole suspend to idle. The
# emulated real-time clock wakes no machine from that: its alarm reaches ACPI only in S3. So the host
# writes to the agent's serial line, which may wake the machine.
record_devices() {
    how="--test devices"
    if [ ! -e /sys/power/pm_test ]; then
        how="--wake-after never"
        echo enabled >/sys/class/tty/ttyS1/power/wakeup || exit 1
    fi
    # shellcheck disable=SC2086 # an option and its value
    dormouse devices record "/root/$1" $how >/run/devices.log 2>&1
    succeeded $? /run/devices.log
    dormouse devices analyze "/root/$1" --strict --json >/run/devices.json 2>/run/devices.log
    succeeded $? /run/devices.log
    count=$(grep -o '"devices": *[0-9]*' /run/devices.json | head -n 1 | tr -dc 0-9)
    echo "recorded with $how, $count devices"
}

# The module runs a suspend in graph order, and is gone when it is undone.
graph_order() {
    phases=/sys/kernel/debug/pm_graph/phases
    mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
    dormouse devices apply --order graph --module /root/dormouse_dpm.ko >/run/order.log 2>&1
    code=$?
    [ $code = 0 ] || dmesg | grep dormouse-dpm >>/run/order.log
    succeeded $code /run/order.log
    dormouse doctor devices >/run/doctor.log 2>&1
    if ! grep -q "graph (the module is loaded)" /run/doctor.log; then
        echo "doctor does not see that graph order is on: $(cat /run/doctor.log)" >&2
        exit 1
    fi
    record_devices ordered >/dev/null
    done_of=$(awk '$1 == "suspend" { print $3 " of " $2 }' $phases)
    if [ "${done_of% of *}" != "${done_of#* of }" ]; then
        echo "in graph order $done_of devices were suspended" >&2
        exit 1
    fi
    dormouse devices apply --undo >/run/order.log 2>&1
    succeeded $? /run/order.log
    for trace in /sys/power/pm_graph /sys/module/dormouse_dpm /sys/kernel/livepatch/dormouse_dpm; do
        if [ -e $trace ]; then
            echo "$trace is there after --undo" >&2
            exit 1
        fi
    done
    echo "$done_of devices in graph order, undone"
}

