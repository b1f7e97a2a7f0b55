//! containerd with a state of its own, driven through its CRI socket as the kubelet does, and the
//! loss of its node.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::containers::{control_groups, remove_groups, runtime_path, unmount_below, until};
use crate::processes;
use crate::{dormouse_path, workspace};

/// The engine on one node, with the client that drives it.
pub struct Containerd {
    directory: PathBuf,
    client: PathBuf,
    daemon: Option<Child>,
    boots: u32,
}

impl Containerd {
    /// Starts it with these images, each an archive that podman has saved.
    pub fn new(directory: &Path, stores: &Path, images: &[PathBuf], pause: &str) -> Self {
        fs::create_dir_all(directory).expect("made");
        let at = |name: &str| directory.join(name).display().to_string();
        let client = directory.join("cri");
        let built = Command::new("go")
            .args(["build", "-o"])
            .arg(&client)
            .arg(".")
            .current_dir(workspace().join("tests/containers/cri"))
            .status();
        assert!(built.expect("go can be started").success(), "no CRI client");
        let oci = format!(
            "runtime = \"runc\"\ncommand = \"{}\"\nstore = \"{}\"\n",
            dormouse_path().display(),
            stores.display()
        );
        fs::write(directory.join("oci.toml"), oci).expect("written");
        // What the page of the runtime handler says, for this directory.
        let handler = fs::read_to_string(workspace().join("packaging/containers/containerd.toml"))
            .expect("the handler")
            .replace(
                "/usr/bin/dormouse-oci",
                &runtime_path().display().to_string(),
            )
            .replace(
                "BinaryName",
                &format!("Root = \"{}\"\n    BinaryName", at("run/runc")),
            );
        let (version, handler) = handler.split_once("version = 2\n").expect("a version");
        let settings = format!(
            "{version}version = 2\nroot = \"{}\"\nstate = \"{}\"\n[grpc]\n  address = \"{}\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\n  path = \"{}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"{pause}\"\n  \
             restrict_oom_score_adj = true\n  disable_apparmor = true\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"native\"\n{handler}",
            at("root"),
            at("run/state"),
            at("run/containerd.sock"),
            at("opt"),
        );
        fs::write(directory.join("containerd.toml"), settings).expect("written");
        let mut engine = Self {
            directory: directory.to_owned(),
            client,
            daemon: None,
            boots: 0,
        };
        engine.boot();
        for image in images {
            let imported = Command::new("ctr")
                .args(["--address", &at("run/containerd.sock"), "-n", "k8s.io"])
                .args(["images", "import", "--snapshotter", "native"])
                .arg(image)
                .output()
                .expect("ctr can be started");
            let said = String::from_utf8_lossy(&imported.stderr);
            assert!(imported.status.success(), "{}: {said}", image.display());
        }
        engine
    }

    fn log(&self) -> PathBuf {
        self.directory.join("containerd.log")
    }

    fn boot(&mut self) {
        self.boots += 1;
        fs::create_dir_all(self.directory.join("run")).expect("made");
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.expect("a log");
        let daemon = Command::new("containerd")
            .arg("--config")
            .arg(self.directory.join("containerd.toml"))
            .env("DORMOUSE_OCI_SETTINGS", self.directory.join("oci.toml"))
            .env("TMPDIR", self.directory.join("run"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicated"))
            .stderr(log)
            .spawn()
            .expect("containerd can be started");
        self.daemon = Some(daemon);
        until("an answer of containerd", || {
            self.call("Version", &json!({})).ok()
        });
    }

    /// A call of the container runtime interface.
    ///
    /// # Errors
    /// What the engine says.
    pub fn call(&self, method: &str, request: &Value) -> Result<Value, String> {
        let mut client = Command::new(&self.client)
            .arg(self.directory.join("run/containerd.sock"))
            .arg(method)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the client can be started");
        let mut input = client.stdin.take().expect("its input");
        input
            .write_all(request.to_string().as_bytes())
            .expect("written");
        drop(input);
        let output = client.wait_with_output().expect("its end");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// The same, expected to succeed.
    pub fn good(&self, method: &str, request: &Value) -> Value {
        self.call(method, request).unwrap_or_else(|error| {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            panic!("{method}: {error}\n{}", end.join("\n"))
        })
    }

    /// Starts a pod with one container, as the kubelet does; both numbers.
    pub fn pod(&self, pod: &Value, container: &Value) -> Result<(String, String), String> {
        let request = json!({ "config": pod, "runtime_handler": "dormouse" });
        let answer = self.good("RunPodSandbox", &request);
        let sandbox = answer["pod_sandbox_id"]
            .as_str()
            .expect("a sandbox")
            .to_owned();
        let request = json!({
            "pod_sandbox_id": sandbox, "config": container, "sandbox_config": pod,
        });
        let answer = self.good("CreateContainer", &request);
        let id = answer["container_id"]
            .as_str()
            .expect("a container")
            .to_owned();
        self.call("StartContainer", &json!({ "container_id": id }))?;
        Ok((sandbox, id))
    }

    /// Runs a command in a container; what it wrote, none when it failed.
    pub fn exec(&self, container: &str, command: &[&str]) -> Option<String> {
        use base64::Engine;
        let request = json!({ "container_id": container, "cmd": command, "timeout": 60 });
        let answer = self.call("ExecSync", &request).ok()?;
        if answer["exit_code"].as_i64().unwrap_or(0) != 0 {
            return None;
        }
        let bytes = answer["stdout"].as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(bytes)
            .ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Sends a signal to a container's first process.
    pub fn signal(&self, container: &str, signal: Signal) {
        let request = json!({ "container_id": container, "verbose": true });
        let answer = self.good("ContainerStatus", &request);
        let info = answer["info"]["info"].as_str().expect("more");
        let info: Value = serde_json::from_str(info).expect("JSON");
        let pid = info["pid"].as_i64().expect("a PID");
        let pid = Pid::from_raw(i32::try_from(pid).expect("a PID")).expect("a PID");
        kill_process(pid, signal).expect("it can be sent");
    }

    /// Ends a pod and removes it.
    pub fn remove(&self, sandbox: &str) {
        self.good("StopPodSandbox", &json!({ "pod_sandbox_id": sandbox }));
        self.good("RemovePodSandbox", &json!({ "pod_sandbox_id": sandbox }));
    }

    /// The engine, its shims, and the first processes of all of its containers: those whose command
    /// line, root or cgroup is below its directory.
    fn processes(&self) -> Vec<i32> {
        processes::naming(&self.directory, |command| {
            ["containerd", "runc"]
                .iter()
                .any(|name| command.contains(name))
        })
    }

    fn kill_all(&mut self) {
        let mut groups = BTreeSet::new();
        loop {
            let all = self.processes();
            groups.extend(control_groups(&all));
            if all.is_empty() {
                break;
            }
            for pid in all {
                let _ = kill_process(Pid::from_raw(pid).expect("a PID"), Signal::KILL);
            }
            if let Some(mut daemon) = self.daemon.take() {
                let _ = daemon.wait();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        remove_groups(&groups);
        unmount_below(&self.directory);
    }

    /// The node loses power: all processes end at once, and what was in memory is gone. Then it
    /// boots.
    pub fn lose_power(&mut self) {
        self.kill_all();
        fs::remove_dir_all(self.directory.join("run")).expect("removed");
        self.boot();
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.kill_all();
    }
}
