//! Faults injected into the machine, to test that a run finds and classifies them.

use super::class::Class;
use crate::error::{LabError, named};

/// A fault, and the class that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    pub name: &'static str,
    pub class: Class,
    /// Run in the machine after it woke, before anything is compared.
    pub shell: &'static str,
}

/// One byte in the middle of the largest mapping of the process that fills memory.
const POKE: &str = r#"python3 - <<'END'
import glob, os
pid = next(p.split('/')[2] for p in glob.glob('/proc/[0-9]*/cmdline')
           if open(p, 'rb').read().split(b'\0')[1:2] == [b'workload'])
rows = [line.split()[0].split('-') for line in open(f'/proc/{pid}/maps') if ' rw-p ' in line]
low, high = max(([int(x, 16) for x in row] for row in rows), key=lambda row: row[1] - row[0])
with open(f'/proc/{pid}/mem', 'r+b', 0) as memory:
    memory.seek((low + high) // 2)
    byte = memory.read(1)[0]
    memory.seek((low + high) // 2)
    memory.write(bytes([byte ^ 1]))
END"#;

/// All of them; the cycle's load has what the fault needs.
pub const INJECTIONS: [Injection; 7] = [
    injection("memory", Class::DataDiffers, POKE),
    injection(
        "redis",
        Class::RedisLostKeys,
        "redis-cli -s /run/redis-stress.sock SHUTDOWN NOSAVE",
    ),
    injection(
        "file",
        Class::FilesDiffer,
        // The writer must not replace what is damaged here.
        "cd /mnt/scratch/stress/files && printf x | dd of=slot-000 bs=1 seek=20 conv=notrunc && \
         chattr +i slot-000",
    ),
    injection(
        "load",
        Class::LoadDied,
        "pkill -KILL -f 'stress-files /var'",
    ),
    injection("panic", Class::KernelPanic, "echo c > /proc/sysrq-trigger"),
    injection(
        "hang",
        Class::HangAwake,
        "echo 1 > /sys/fs/cgroup/workload/cgroup.freeze",
    ),
    injection(
        "ext4",
        Class::FileSystem,
        "echo 1 > /sys/fs/ext4/$(basename $(grep ' /mnt/scratch ' /proc/mounts | cut -d' ' -f1))\
         /trigger_fs_error",
    ),
];

const fn injection(name: &'static str, class: Class, shell: &'static str) -> Injection {
    Injection { name, class, shell }
}

impl Injection {
    /// Those of a list of names with commas between; each cycle takes the next one.
    ///
    /// # Errors
    /// There is none of such a name.
    pub fn list(names: &str) -> Result<Vec<Injection>, LabError> {
        names.split(',').map(Injection::by_name).collect()
    }

    fn by_name(name: &str) -> Result<Injection, LabError> {
        let what = "fault that can be injected";
        named(
            &INJECTIONS,
            |injection| injection.name,
            name,
            what,
            "--inject",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_fault_is_a_usage_error() {
        let both = Injection::list("memory,panic").unwrap();
        assert_eq!(both[1].class, Class::KernelPanic);
        assert_eq!(Injection::list("memory,x").unwrap_err().exit_code(), 2);
    }
}
