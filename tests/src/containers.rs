//! Podman with a state of its own, and the loss of its node.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use crate::{Said, dormouse_path, workspace};

/// Longer than anything here takes on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Waits until something is so.
///
/// # Panics
/// It does not become so.
pub fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = seen() {
            return value;
        }
        assert!(
            started.elapsed() < WAIT_MAX,
            "{what}: not within {WAIT_MAX:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn said(mut command: Command) -> Said {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Said {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A root file system from the archive's packages, made once.
pub fn image_file(name: &str, packages: &[&str]) -> PathBuf {
    let cache = std::env::var("HOME").expect("HOME is set");
    let file = Path::new(&cache).join(format!(".cache/dormouse/containers/{name}.tar"));
    let mut command = Command::new(workspace().join("scripts/container-image.sh"));
    command.arg(&file).args(packages);
    let made = said(command);
    assert_eq!(made.code, 0, "{}", made.all());
    file
}

/// The built runtime, beside the command.
pub fn runtime_path() -> PathBuf {
    let path = dormouse_path().with_file_name("dormouse-oci");
    assert!(path.is_file(), "there is no {}: make build", path.display());
    path
}

/// An engine with images, containers and settings below one directory.
pub struct Podman {
    directory: PathBuf,
    wrapped: String,
}

impl Podman {
    /// With an image from a root file system; containers run by dormouse-oci over `wrapped`.
    pub fn new(directory: &Path, wrapped: &str, image: &Path, tag: &str) -> Self {
        let podman = Self {
            directory: directory.to_owned(),
            wrapped: wrapped.to_owned(),
        };
        podman.boot();
        podman.good(&["import", "--quiet", &image.display().to_string(), tag]);
        podman
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What is in memory and lost with the power: the state of engine and runtime.
    fn run(&self) -> PathBuf {
        self.at("run")
    }

    /// Where stores are.
    pub fn stores(&self) -> PathBuf {
        self.at("stores")
    }

    fn boot(&self) {
        fs::create_dir_all(self.run().join("libpod")).expect("made");
        fs::create_dir_all(self.stores()).expect("made");
        let own = |resource| getrlimit(resource).maximum.unwrap_or(1 << 20);
        // A test may itself run where higher limits than its own cannot be given.
        let limits = format!(
            "\"nofile=1024:{}\", \"nproc={processes}:{processes}\"",
            own(Resource::Nofile).min(1 << 20),
            processes = own(Resource::Nproc).min(1 << 20),
        );
        let settings = format!(
            "[containers]\ndefault_ulimits = [{limits}]\n[engine]\ncgroup_manager = \"cgroupfs\"\n\
             events_logger = \"none\"\nlock_type = \"file\"\ntmp_dir = \"{}\"\n\
             conmon_env_vars = [\"PATH={}\", \"DORMOUSE_OCI_SETTINGS={}\"]\n",
            self.run().join("libpod").display(),
            std::env::var("PATH").expect("PATH is set"),
            self.at("oci.toml").display(),
        );
        fs::write(self.at("containers.conf"), settings).expect("written");
        let oci = format!(
            "runtime = \"{}\"\ncommand = \"{}\"\nstore = \"{}\"\n",
            self.wrapped,
            dormouse_path().display(),
            self.stores().display(),
        );
        fs::write(self.at("oci.toml"), oci).expect("written");
    }

    /// A command of podman.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.at("containers.conf"))
            .env("DORMOUSE_OCI_SETTINGS", self.at("oci.toml"))
            .arg("--root")
            .arg(self.at("root"))
            .arg("--runroot")
            .arg(self.run().join("containers"))
            .args(["--storage-driver", "vfs", "--runtime"])
            .arg(runtime_path())
            .arg("--runtime-flag")
            .arg(format!("root={}", self.run().join("runtime").display()))
            .args(words);
        command
    }

    /// Runs it.
    pub fn said(&self, words: &[&str]) -> Said {
        said(self.command(words))
    }

    /// Runs it, and expects success; its output.
    pub fn good(&self, words: &[&str]) -> String {
        let got = self.said(words);
        assert_eq!(got.code, 0, "podman {words:?}: {}", got.all());
        got.stdout.trim().to_owned()
    }

    /// What a container has written.
    pub fn log(&self, name: &str) -> String {
        let got = self.said(&["logs", name]);
        got.stdout + &got.stderr
    }

    /// Processes of a container's node: the one that waits for it, and its init.
    fn processes(&self, name: &str) -> Vec<i32> {
        let format = "{{.State.ConmonPid}} {{.State.Pid}}";
        let pids = self.said(&["inspect", "--format", format, name]).stdout;
        let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.filter(|pid| *pid > 1).collect()
    }

    /// The node loses power: all processes end at once, and what was in memory is gone. Then it
    /// boots.
    pub fn lose_power(&self, name: &str) {
        let all = self.processes(name);
        assert_eq!(all.len(), 2, "{name} does not run: {}", self.log(name));
        let groups = control_groups(&all);
        for pid in &all {
            let pid = Pid::from_raw(*pid).expect("a PID");
            kill_process(pid, Signal::KILL).expect("it can be killed");
        }
        for pid in all {
            until("the end of the node", || (!alive(pid)).then_some(()));
        }
        remove_groups(&groups);
        unmount_below(&self.directory);
        fs::remove_dir_all(self.run()).expect("removed");
        self.boot();
    }

    /// Mounts and processes that are left below this directory, and control groups of containers.
    pub fn left(&self) -> Vec<String> {
        let here = self.directory.display().to_string();
        let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
        let mounts = mounts.lines().filter(|line| line.contains(&here));
        let mut left: Vec<String> = mounts.map(str::to_owned).collect();
        // Those of podman's with the manager cgroupfs.
        let hierarchies = fs::read_dir("/sys/fs/cgroup").expect("readable").flatten();
        let roots = hierarchies.map(|entry| entry.path());
        for root in roots.chain(["/sys/fs/cgroup".into()]) {
            let below = fs::read_dir(root.join("libpod_parent"))
                .into_iter()
                .flatten();
            let below = below.flatten().map(|entry| entry.path());
            left.extend(
                below
                    .filter(|path| path.is_dir())
                    .map(|path| path.display().to_string()),
            );
        }
        for entry in fs::read_dir("/proc").expect("readable").flatten() {
            let command = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name();
            if command.contains(&here) && pid.to_str() != Some(&std::process::id().to_string()) {
                left.push(format!("{}: {}", pid.display(), command.replace('\0', " ")));
            }
        }
        left
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.said(&["rm", "--all", "--force", "--time", "0"]);
        unmount_below(&self.directory);
    }
}

/// The control groups of processes, in all hierarchies; not those that are a hierarchy's root or this
/// process' own.
pub fn control_groups(pids: &[i32]) -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
    let hierarchies: Vec<(&str, &str)> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.get(2).is_some_and(|kind| kind.starts_with("cgroup")))
        .map(|words| (words[1], if words[2] == "cgroup2" { "" } else { words[3] }))
        .collect();
    let own = fs::read_to_string("/proc/self/cgroup").expect("readable");
    let mut groups = BTreeSet::new();
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        for line in text.lines() {
            // hierarchy:controllers:path
            let parts: Vec<&str> = line.splitn(3, ':').collect();
            let [_, controllers, path] = parts[..] else {
                continue;
            };
            let place = hierarchies.iter().find(|(_, options)| match controllers {
                "" => options.is_empty(),
                controllers => controllers
                    .split(',')
                    .all(|one| options.split(',').any(|o| o == one)),
            });
            if let Some((place, _)) = place
                && path != "/"
                && !own.lines().any(|own| own == line)
            {
                groups.insert(Path::new(place).join(path.trim_start_matches('/')));
            }
        }
    }
    groups
}

/// Removes control groups without processes, and those below them: they would not outlive a boot.
pub fn remove_groups(groups: &BTreeSet<PathBuf>) {
    for group in groups {
        let below = fs::read_dir(group).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.path().is_dir());
        remove_groups(&below.map(|entry| entry.path()).collect());
        if group.exists() {
            until("an empty control group", || fs::remove_dir(group).ok());
        }
    }
}

/// Unmounts everything below a directory.
pub fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
    let mut below: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|place| Path::new(place).starts_with(directory))
        .collect();
    below.reverse();
    for place in below {
        rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }
}

/// Whether a process exists and is no zombie.
fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    !matches!(after.trim_start().chars().next(), None | Some('Z' | 'X'))
}

/// A client that writes `k1`, `k2`, … one after the other, each with its number as value, and counts
/// what was acknowledged.
pub struct Writer {
    client: Child,
    input: ChildStdin,
    next: u64,
    acknowledged: Arc<AtomicU64>,
}

impl Writer {
    /// Through `redis-cli`, started by this command; the first key that it writes is `first`.
    pub fn start(mut command: Command, first: u64) -> Self {
        let mut client = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client");
        let output = client.stdout.take().expect("its output");
        let acknowledged = Arc::new(AtomicU64::new(first - 1));
        let counted = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                match line {
                    Ok(line) if line.trim() == "OK" => counted.fetch_add(1, Ordering::AcqRel),
                    _ => break,
                };
            }
        });
        let input = client.stdin.take().expect("its input");
        Self {
            client,
            input,
            next: first,
            acknowledged,
        }
    }

    /// Writes some more; stops early when nothing answers any more.
    pub fn write(&mut self, count: u64) {
        for _ in 0..count {
            let key = self.next;
            if writeln!(self.input, "SET k{key} {key}").is_err() {
                return;
            }
            self.next += 1;
        }
        let _ = self.input.flush();
    }

    /// The last key that was acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Acquire)
    }

    /// The last key that may have been written.
    pub fn sent(&self) -> u64 {
        self.next - 1
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}
