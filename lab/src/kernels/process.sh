# shellcheck shell=sh
# Redis under `dormouse process run`, with an epoch twice a second; ends the check at once, with what
# was said, where it cannot be started or restored.
start_redis() {
    (setsid sh -c 'dormouse process run cache --store /root/store --on-power-loss none \
        --epoch-interval 500ms -- redis-server --save "" --port 7001
        echo "dormouse process run ended with $?"' >>/root/log 2>&1 &)
    for _ in $(seq 480); do
        redis-cli -p 7001 ping 2>/dev/null | grep -q PONG && return
        grep -q "process run ended with" /root/log && break
        sleep .5
    done
    tail -n 3 /root/log >&2
    exit 1
}

epochs() {
    dormouse process status cache --store /root/store --json | grep -o '"epochs": *[0-9]*' |
        tr -dc 0-9
}

# Where the kernel describes its types, flags of mappings are read without their pages.
check_advice() {
    [ -e /sys/kernel/btf/vmlinux ] || return
    dormouse doctor process | grep -Eq '^ *ok +advice ' && return
    dormouse doctor process | grep -A 1 ' advice ' >&2
    exit 1
}

# Returns when an epoch that began after the last key is complete.
persist_redis() {
    check_advice
    # The next boot counts from 1 again, and does not come so far: the PIDs are free for the restore.
    echo 20000 >/proc/sys/kernel/ns_last_pid
    start_redis
    for key in $(seq 500); do echo "set key$key $((key * key))"; done | redis-cli -p 7001 >/dev/null
    pgrep -x redis-server >/root/pid
    sync
    before=$(epochs)
    for _ in $(seq 600); do
        [ "$(epochs)" -ge $((before + 2)) ] && return
        sleep .2
    done
    echo "no epoch was completed; $(tail -n 5 /root/log)" >&2
    exit 1
}

restore_redis() {
    start_redis
    keys=$(redis-cli -p 7001 dbsize)
    value=$(redis-cli -p 7001 get key500)
    was=$(cat /root/pid)
    is=$(pgrep -x redis-server)
    if [ "$keys" != 500 ] || [ "$value" != 250000 ] || [ "$was" != "$is" ]; then
        echo "redis has $keys keys, key500 is $value, PID $was became $is" >&2
        exit 1
    fi
    dormouse process persist cache --store /root/store --then kill >/dev/null || exit 1
    while pgrep -x "redis-server|dormouse" >/dev/null; do sleep .2; done
    dormouse process verify cache --store /root/store >/dev/null || exit 1
    echo "500 keys, PID $is"
}

