//! CPU times of many cgroups in one system call, by a BPF program (`bpf/usage.bpf.c`).
//!
//! A reading of a file takes microseconds once other programs have used the processor's caches; the
//! program takes a few hundred nanoseconds for a cgroup. It reads where the kernel keeps the values.
//! Whatever it cannot read is read from files, so it needs no error of its own.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;

use dormouse_bpf::libbpf_rs::{self, MapCore, Object, ObjectBuilder};
use dormouse_bpf::{iterator, libbpf_sys};

use super::cgroup::{Hierarchy, Usage};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/usage.o"));
/// `MAX_REQUESTS` of `bpf/usage.bpf.c`.
const MAX_REQUESTS: usize = 1024;
/// `MAX_CPUS` there.
const MAX_CPUS: u32 = 8192;
/// The types of file systems that hold cgroups (`linux/magic.h`).
const CGROUPS: [i64; 2] = [0x0027_e0eb, 0x6367_7270];
/// Processors that this machine may have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// `struct place`: an address in the kernel, and the state that it lives with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    state: u64,
    serial: u64,
    at: u64,
}

impl Place {
    fn is_known(&self) -> bool {
        self.state != 0 && self.at != 0
    }
}

/// `struct places`: where the kernel keeps the values of a cgroup.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Places {
    total: Place,
    accounted: Place,
    throttled: Place,
}

/// Where the values of a user are.
#[derive(Clone, Copy, Debug)]
pub struct Location {
    time: Place,
    throttled: Place,
    is_per_cpu: bool,
}

impl Location {
    /// Of a cgroup of version 2; `None`: it lacks one of the values.
    pub fn of_total(cgroup: Places) -> Option<Self> {
        Self::new(cgroup.total, cgroup.throttled, false)
    }

    /// Of version 1, where the cpuacct controller may be in another hierarchy.
    pub fn of_accounted(accounted: Places, cgroup: Places) -> Option<Self> {
        Self::new(accounted.accounted, cgroup.throttled, true)
    }

    fn new(time: Place, throttled: Place, is_per_cpu: bool) -> Option<Self> {
        let known = time.is_known() && throttled.is_known();
        known.then_some(Self {
            time,
            throttled,
            is_per_cpu,
        })
    }
}

/// `struct request`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Request {
    time: Place,
    throttled: Place,
    is_per_cpu: u64,
    cpu_ns: u64,
    nr_throttled: u64,
    is_valid: u64,
}

/// `struct call`.
#[repr(C)]
struct Call {
    requests: u32,
    cpus: u32,
}

/// The list of requests, shared with the BPF program.
struct Shared(NonNull<Request>);

// SAFETY: nothing else has the mapping, and only `&mut` writes to it.
unsafe impl Send for Shared {}
// SAFETY: `&` offers nothing.
unsafe impl Sync for Shared {}

const SHARED_BYTES: usize = MAX_REQUESTS * size_of::<Request>();

impl Shared {
    fn map(fd: impl AsFd) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                SHARED_BYTES,
                protection,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        NonNull::new(at.cast())
            .map(Self)
            .ok_or_else(|| io::Error::other("mmap returned no address"))
    }

    fn put(&mut self, at: usize, request: Request) {
        assert!(at < MAX_REQUESTS, "{at} is no request of the list");
        // SAFETY: within the mapping; the program runs only inside of our system call.
        unsafe { self.0.add(at).write_volatile(request) }
    }

    fn get(&mut self, at: usize) -> Request {
        assert!(at < MAX_REQUESTS, "{at} is no request of the list");
        // SAFETY: as above, and any bits are a request.
        unsafe { self.0.add(at).read_volatile() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), SHARED_BYTES) };
    }
}

/// The loaded programs.
pub struct Bulk {
    locate: OwnedFd,
    read_usage: OwnedFd,
    shared: Shared,
    cpus: u32,
}

fn load() -> Result<Object, libbpf_rs::Error> {
    libbpf_rs::set_print(None);
    ObjectBuilder::default().open_memory(OBJECT)?.load()
}

impl Bulk {
    /// Loads the programs.
    ///
    /// # Errors
    /// These are no real cgroups, the kernel lacks what the programs need (Linux 6.1 and BTF), or we
    /// may not load BPF programs.
    pub fn load(hierarchy: &Hierarchy) -> Result<Self, String> {
        let kind = rustix::fs::statfs(&hierarchy.root).map(|found| found.f_type);
        if !kind.is_ok_and(|kind| CGROUPS.contains(&kind)) {
            return Err(format!("{} has no cgroups", hierarchy.root.display()));
        }
        let cpus = std::fs::read_to_string(POSSIBLE).unwrap_or_default();
        let cpus = possible(&cpus).ok_or_else(|| format!("{POSSIBLE}: {:?}", cpus.trim()))?;
        let object = load().map_err(|error| format!("BPF: {error}"))?;
        let program = |name: &str| {
            let found = object.progs().find(|program| program.name() == name);
            let found = found.ok_or_else(|| io::Error::other(format!("no program {name}")))?;
            found.as_fd().try_clone_to_owned()
        };
        let find_cpus = || Ok((call(&program("find_cpus")?, 0, cpus)?, cpus));
        match find_cpus().map_err(|error: io::Error| format!("BPF: {error}"))? {
            (found, cpus) if found == cpus => (),
            (found, cpus) => return Err(format!("BPF finds {found} of {cpus} processors")),
        }
        let open = || {
            let requests = object.maps().find(|map| map.name() == "requests");
            let requests = requests.ok_or_else(|| io::Error::other("no list of requests"))?;
            Ok(Self {
                locate: program("locate")?,
                read_usage: program("read_usage")?,
                shared: Shared::map(requests.as_fd())?,
                cpus,
            })
        };
        open().map_err(|error: io::Error| format!("BPF: {error}"))
    }

    /// Where the kernel keeps the values of the cgroup in this directory.
    ///
    /// # Errors
    /// It is gone, or no cgroup.
    pub fn locate(&self, path: &Path) -> io::Result<Places> {
        let cgroup = File::open(path)?;
        let mut info = libbpf_sys::bpf_iter_link_info::default();
        info.cgroup.order = libbpf_sys::BPF_CGROUP_ITER_SELF_ONLY;
        info.cgroup.cgroup_fd = cgroup.as_raw_fd() as u32;
        let mut words = [0; size_of::<Places>()];
        iterator::run(self.locate.as_fd(), info)?.read_exact(&mut words)?;
        let word =
            |at: usize| u64::from_ne_bytes(*words[8 * at..].first_chunk().expect("nine words"));
        let place = |first: usize| Place {
            state: word(first),
            serial: word(first + 1),
            at: word(first + 2),
        };
        Ok(Places {
            total: place(0),
            accounted: place(3),
            throttled: place(6),
        })
    }

    /// Reads many at once, and reports each one that could be read, by its number: its time in
    /// nanoseconds, and its throttled periods, which are read only if that is wanted.
    pub fn read(
        &mut self,
        wanted: &[(usize, Location, bool)],
        mut found: impl FnMut(usize, Usage),
    ) {
        for wanted in wanted.chunks(MAX_REQUESTS) {
            for (at, (_, location, throttled)) in wanted.iter().enumerate() {
                let request = Request {
                    time: location.time,
                    throttled: match throttled {
                        true => location.throttled,
                        false => Place::default(),
                    },
                    is_per_cpu: u64::from(location.is_per_cpu),
                    ..Request::default()
                };
                self.shared.put(at, request);
            }
            if call(&self.read_usage, wanted.len(), self.cpus).is_err() {
                return;
            }
            for (at, (number, ..)) in wanted.iter().enumerate() {
                let request = self.shared.get(at);
                if request.is_valid == 1 {
                    let usage = Usage {
                        cpu_ns: request.cpu_ns,
                        nr_throttled: request.nr_throttled,
                    };
                    found(*number, usage);
                }
            }
        }
    }
}

/// Calls a program, and returns what it returns.
fn call(program: &OwnedFd, requests: usize, cpus: u32) -> io::Result<u32> {
    let call = Call {
        requests: requests as u32,
        cpus,
    };
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: (&raw const call).cast(),
        ctx_size_in: size_of_val(&call) as u32,
        ..Default::default()
    };
    // SAFETY: the options and the context live during the call.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) } {
        0 => Ok(options.retval),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// The number of processors, if they are numbered without a hole.
fn possible(text: &str) -> Option<u32> {
    let last = match text.trim().split_once('-') {
        Some(("0", last)) => last,
        None if text.trim() == "0" => "0",
        _ => return None,
    };
    let cpus = last.parse::<u32>().ok()?.checked_add(1)?;
    (cpus <= MAX_CPUS).then_some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_with_holes_between_them_are_not_counted() {
        assert_eq!((possible("0-3\n"), possible("0\n")), (Some(4), Some(1)));
        for text in ["", "0-3,8-11", "1-2", "0-", "0-8192", "0-4294967295"] {
            assert_eq!(possible(text), None, "{text}");
        }
    }

    #[test]
    fn directories_that_are_no_cgroups_load_no_program() {
        let folder = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            root: folder.path().to_owned(),
            version: crate::enforce::cgroup::Version::V1,
        };
        let why = Bulk::load(&hierarchy).err();
        assert!(why.is_some_and(|why| why.contains("no cgroups")));
    }
}
