//! Podman with a state of its own, and the loss of its node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process};

use crate::processes;
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

/// Whether a test cannot run here, for want of root or of a program; the reason is on standard
/// error.
pub fn lacks(programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |name: &&&str| std::env::split_paths(&path).any(|at| at.join(name).is_file());
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root");
    } else if let Some(name) = programs.iter().find(|name| !installed(name)) {
        eprintln!("skipped: {name} is not installed: scripts/setup.sh --for containers");
    } else {
        return false;
    }
    true
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

fn pid_max() -> u64 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").expect("readable");
    text.trim().parse().expect("a number")
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(path, mode).expect("set");
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
            // Podman lowers its own to the highest PID.
            processes = own(Resource::Nproc).min(pid_max()),
        );
        let settings = format!(
            "[containers]\ndefault_ulimits = [{limits}]\n[engine]\ncgroup_manager = \"cgroupfs\"\n\
             events_logger = \"none\"\nlock_type = \"file\"\ntmp_dir = \"{}\"\n\
             conmon_env_vars = [\"PATH={}\"]\n",
            self.run().join("libpod").display(),
            std::env::var("PATH").expect("PATH is set"),
        );
        fs::write(self.at("containers.conf"), settings).expect("written");
        let oci = format!(
            "runtime = \"{}\"\ncommand = \"{}\"\nstore = \"{}\"\n",
            self.wrapped_path().display(),
            dormouse_path().display(),
            self.stores().display(),
        );
        fs::write(self.at("oci.toml"), oci).expect("written");
        // Podman starts a runtime without its own environment, and cleans up without runtime flags.
        let script = format!(
            "#!/bin/sh\nDORMOUSE_OCI_SETTINGS={} exec {} --root {} \"$@\"\n",
            self.at("oci.toml").display(),
            runtime_path().display(),
            self.run().join("runtime").display(),
        );
        write_script(&self.at("runtime"), &script);
    }

    /// The wrapped runtime. crun refuses a hierarchy of control groups of both versions; where it
    /// does not see the second one's part, it works with the first.
    fn wrapped_path(&self) -> PathBuf {
        const SECOND: &str = "/sys/fs/cgroup/unified";
        let hybrid = fs::read_to_string(Path::new(SECOND).join("cgroup.controllers"));
        if self.wrapped != "crun"
            || hybrid.is_ok_and(|names| names.trim().is_empty())
            || !Path::new(SECOND).exists()
        {
            return self.wrapped.clone().into();
        }
        let script = format!(
            "#!/bin/sh\nexec unshare --mount --propagation private sh -c \
             'umount {SECOND} && exec crun \"$@\"' crun \"$@\"\n"
        );
        let path = self.at("crun");
        write_script(&path, &script);
        path
    }

    /// A command of podman.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command
            .env("CONTAINERS_CONF", self.at("containers.conf"))
            .arg("--root")
            .arg(self.at("root"))
            .arg("--runroot")
            .arg(self.run().join("containers"))
            .args(["--storage-driver", "vfs", "--runtime"])
            .arg(self.at("runtime"))
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

    /// Everything of the node: engine, what waits for its containers, and their processes.
    fn processes(&self) -> Vec<i32> {
        processes::naming(&self.directory, |_| true)
    }

    /// The node loses power: all processes end at once, and what was in memory is gone. Then it
    /// boots.
    pub fn lose_power(&self, name: &str) {
        let mut all = self.processes();
        assert!(all.len() > 1, "{name} does not run: {}", self.log(name));
        let mut groups = BTreeSet::new();
        while !all.is_empty() {
            groups.extend(control_groups(&all));
            for pid in &all {
                // What has ended meanwhile needs none.
                let _ = kill_process(Pid::from_raw(*pid).expect("a PID"), Signal::KILL);
            }
            for pid in all {
                until("the end of the node", || (!alive(pid)).then_some(()));
            }
            all = self
                .processes()
                .into_iter()
                .filter(|pid| alive(*pid))
                .collect();
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
                    .filter(|path| path.is_dir() && !is_of_all(path))
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

/// Podman has one control group for what waits for containers, of all engines on this machine; it stays.
fn is_of_all(group: &Path) -> bool {
    group.ends_with("libpod_parent/conmon")
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
    for group in groups.iter().filter(|group| !is_of_all(group)) {
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
