# shellcheck shell=sh
# The kernel names the scheduler in force while `dormouse bandwidth scheduler` runs.
ops=/sys/kernel/sched_ext/root/ops
if [ ! -d /sys/kernel/sched_ext ]; then
    echo "/sys/kernel/sched_ext is not there: the kernel has no sched_ext" >&2
    exit 3
fi
dormouse bandwidth scheduler --seconds 4 >/run/scheduler.log 2>&1 &
child=$!
attached=
while kill -0 $child 2>/dev/null; do
    name=$(cat $ops 2>/dev/null)
    [ "$name" = dormouse ] && attached=yes
    sleep .1
done
wait $child
code=$?
if [ $code != 0 ]; then
    tail -n 5 /run/scheduler.log >&2
    exit $code
fi
if [ -z "$attached" ]; then
    echo "the scheduler ran, but $ops never named it" >&2
    exit 1
fi
echo attached
