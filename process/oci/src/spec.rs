//! Changes a container's configuration so that its program is persisted: pure functions of the
//! configuration.
//!
//! ```text
//!  args          redis-server …     ►  /.dormouse/dormouse process run NAME … -- redis-server …
//!  mounts        …                  ►  …, /.dormouse/dormouse (read-only), /.dormouse/store
//!  user          999:999            ►  0:0; the program is started as 999:999
//!  capabilities  as they are        ►  and those of NEEDED; the program is started without these
//!  seccomp       as it is           ►  and the calls of CALLS
//! ```
//!
//! The typed form of `oci-spec` says what is wrong in a configuration; the changes are made to the
//! JSON itself, so that what this version does not know stays as it is.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Spec};
use serde_json::{Map, Value, json};

use crate::annotations::{AnnotationError, Wanted, wanted};

/// Where the command is in the container.
pub const COMMAND: &str = "/.dormouse/dormouse";
/// Where a directory of the node with the store is in the container.
pub const STORE: &str = "/.dormouse/store";

/// Capabilities of the tracker, with the reason for each.
pub const NEEDED: [(&str, &str); 16] = [
    ("CAP_SYS_PTRACE", "stop the program and read its state"),
    (
        "CAP_CHECKPOINT_RESTORE",
        "give processes their numbers back",
    ),
    ("CAP_SYS_ADMIN", "give the program clocks of its own"),
    ("CAP_SYS_TIME", "let these go on where they stood"),
    ("CAP_NET_ADMIN", "recreate connections"),
    (
        "CAP_SETPCAP",
        "start the program without these capabilities",
    ),
    ("CAP_SETUID", "start it as its user"),
    ("CAP_SETGID", "start it as its groups"),
    ("CAP_KILL", "signal it as another user"),
    ("CAP_DAC_OVERRIDE", "open its files as another user"),
    ("CAP_DAC_READ_SEARCH", "recreate its inotify watches"),
    ("CAP_IPC_OWNER", "read its System V memory as another user"),
    ("CAP_CHOWN", "give its shared memory back to its user"),
    ("CAP_FOWNER", "set the mode of its shared memory"),
    ("CAP_SYS_NICE", "set its scheduling as another user"),
    ("CAP_NET_RAW", "queue its unread datagrams again"),
];

/// System calls that the tracker makes, in its own name or in the program's, and that engines'
/// default profiles refuse in some versions.
pub const CALLS: [&str; 18] = [
    "clone3",
    "fsconfig",
    "fsmount",
    "fsopen",
    "kcmp",
    "mount",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "prctl",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "rseq",
    "sched_setattr",
    "unshare",
    "userfaultfd",
];

/// Why a container cannot be persisted.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// It is no configuration of the OCI's.
    #[error("it is no configuration of an OCI runtime: {0}")]
    Invalid(#[from] serde_json::Error),
    /// An annotation.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// There is nothing to run.
    #[error("it has no process.args: there is no program to persist")]
    NoProgram,
    /// The annotation names a directory of the node that is not free for stores.
    #[error(
        "annotation org.dormouse.store={0}: this is no path of a volume in the container, and no \
         directory below a `store_roots` of /etc/dormouse/oci.toml on this node ({1})"
    )]
    StorePlace(PathBuf, String),
}

/// What the node gives.
#[derive(Debug, Clone)]
pub struct Node {
    /// The static dormouse command.
    pub command: PathBuf,
    /// Where stores are that have no annotation.
    pub store: PathBuf,
    /// Directories of the node below which an annotation may place a store.
    pub store_roots: Vec<PathBuf>,
}

/// A changed configuration.
#[derive(Debug)]
pub struct Changed {
    /// The configuration to create the container by.
    pub config: Value,
    /// The directory of the node with the store, to be made; none: the store is on a volume.
    pub host_store: Option<HostStore>,
}

/// A directory of the node for a store.
#[derive(Debug, PartialEq, Eq)]
pub struct HostStore {
    /// Where.
    pub path: PathBuf,
    /// The node's number of the container's root user.
    pub owner: u32,
}

/// Changes the configuration of a container that asks to be persisted; nothing for any other.
/// `home` looks up a user's home directory in the container's root file system.
///
/// # Errors
/// The container asks for what cannot be.
pub fn change(
    text: &str,
    node: &Node,
    home: impl FnOnce(u32) -> Option<String>,
) -> Result<Option<Changed>, SpecError> {
    let mut config: Value = serde_json::from_str(text)?;
    let spec: Spec = serde_json::from_str(text)?;
    let annotations = spec.annotations().clone().unwrap_or_default();
    let Some(wanted) = wanted(&annotations)? else {
        return Ok(None);
    };
    let program: Vec<String> = spec
        .process()
        .as_ref()
        .and_then(|process| process.args().clone())
        .filter(|arguments| !arguments.is_empty())
        .ok_or(SpecError::NoProgram)?;
    let (store, host_store) = place(&spec, &wanted, node)?;
    let process = object(&mut config, "process");
    let mut more = identity(process, home);
    // The containers of a pod may share one: the PIDs of a restored program must be free.
    if !has_own_pids(&spec) {
        more.push("--isolate".to_owned());
    }
    process.insert(
        "args".to_owned(),
        arguments(&wanted, &store, &more, &program),
    );
    mounts(&mut config, node, host_store.as_ref());
    calls(&mut config);
    Ok(Some(Changed { config, host_store }))
}

/// The store's path in the container, and the node's directory that is mounted there.
fn place(
    spec: &Spec,
    wanted: &Wanted,
    node: &Node,
) -> Result<(PathBuf, Option<HostStore>), SpecError> {
    let root_on_node = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.uid_mappings().clone())
        .unwrap_or_default()
        .iter()
        .find(|mapping| mapping.container_id() == 0)
        .map_or(0, |mapping| mapping.host_id());
    let on_node = |path| {
        let host = HostStore {
            path,
            owner: root_on_node,
        };
        Ok((PathBuf::from(STORE), Some(host)))
    };
    let Some(path) = &wanted.store else {
        // A directory of its own: a container must not see the stores of others.
        return on_node(node.store.join(&wanted.name));
    };
    let volumes = spec.mounts().clone().unwrap_or_default();
    if volumes
        .iter()
        .any(|mount| path.starts_with(mount.destination()))
    {
        return Ok((path.clone(), None));
    }
    if node.store_roots.iter().any(|root| path.starts_with(root)) {
        return on_node(path.join(&wanted.name));
    }
    let roots: Vec<String> = node
        .store_roots
        .iter()
        .map(|root| root.display().to_string())
        .collect();
    Err(SpecError::StorePlace(path.clone(), roots.join(", ")))
}

/// Whether the container's first process is that of a PID namespace.
fn has_own_pids(spec: &Spec) -> bool {
    let namespaces = spec
        .linux()
        .as_ref()
        .and_then(|linux| linux.namespaces().clone())
        .unwrap_or_default();
    namespaces
        .iter()
        .any(|one| one.typ() == LinuxNamespaceType::Pid && one.path().is_none())
}

/// What the program is started with, in words of `dormouse process run`. The tracker is root with
/// the capabilities that it needs.
fn identity(
    process: &mut Map<String, Value>,
    home: impl FnOnce(u32) -> Option<String>,
) -> Vec<String> {
    let mut options = Vec::new();
    let user = process
        .entry("user")
        .or_insert_with(|| json!({ "uid": 0, "gid": 0 }));
    let number = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
    let (uid, gid) = (number(user.get("uid")), number(user.get("gid")));
    if (uid, gid) != (0, 0) {
        let more = user.get("additionalGids").and_then(Value::as_array);
        let more = more.into_iter().flatten().filter_map(Value::as_u64);
        let groups: Vec<String> = [gid]
            .into_iter()
            .chain(more)
            .map(|g| g.to_string())
            .collect();
        options.extend(["--user".to_owned(), format!("{uid}:{}", groups.join(","))]);
        if let Some(user) = user.as_object_mut() {
            user.insert("uid".to_owned(), json!(0));
            user.insert("gid".to_owned(), json!(0));
            user.remove("additionalGids");
        }
        // The runtime sets it by the user's number, which is another one now.
        let variables = process.entry("env").or_insert_with(|| json!([]));
        if let Some(variables) = variables.as_array_mut() {
            let is_home = |value: &Value| value.as_str().is_some_and(|v| v.starts_with("HOME="));
            if !variables.iter().any(is_home) {
                let home = home(uid as u32).unwrap_or_else(|| "/".to_owned());
                variables.push(json!(format!("HOME={home}")));
            }
        }
    }
    let added = capabilities(process);
    if !added.is_empty() {
        options.extend(["--drop-capabilities".to_owned(), added.join(",")]);
    }
    options
}

/// Adds what the tracker needs; returns what the program had not.
fn capabilities(process: &mut Map<String, Value>) -> Vec<String> {
    let sets = process.entry("capabilities").or_insert_with(|| json!({}));
    if !sets.is_object() {
        *sets = json!({});
    }
    let mut added = Vec::new();
    for set in ["bounding", "effective", "permitted"] {
        let list = &mut sets[set];
        if !list.is_array() {
            *list = json!([]);
        }
        for (name, _) in NEEDED {
            let list = list.as_array_mut().expect("made just above");
            if !list.iter().any(|has| has == name) {
                list.push(json!(name));
                if set == "bounding" {
                    added.push(name.to_owned());
                }
            }
        }
    }
    added
}

fn arguments(wanted: &Wanted, store: &Path, more: &[String], program: &[String]) -> Value {
    let store = store.to_string_lossy().into_owned();
    let fixed = [COMMAND, "process", "run", &wanted.name, "--store", &store];
    let all = fixed
        .into_iter()
        .chain(wanted.options.iter().map(String::as_str))
        .chain(more.iter().map(String::as_str))
        .chain(["--"])
        .chain(program.iter().map(String::as_str));
    json!(all.collect::<Vec<_>>())
}

fn mounts(config: &mut Value, node: &Node, host_store: Option<&HostStore>) {
    let bind = |destination: &str, source: &Path, more: &[&str]| {
        let options = [&["bind", "nosuid", "nodev"], more].concat();
        json!({
            "destination": destination, "type": "bind",
            "source": source.to_string_lossy(), "options": options,
        })
    };
    let mounts = &mut config["mounts"];
    if !mounts.is_array() {
        *mounts = json!([]);
    }
    let list = mounts.as_array_mut().expect("made just above");
    list.push(bind(COMMAND, &node.command, &["ro"]));
    if let Some(host) = host_store {
        list.push(bind(STORE, &host.path, &["rw", "noexec"]));
    }
}

/// Allows the calls of the tracker. A rule that refuses one of them would contradict: it loses
/// the name.
fn calls(config: &mut Value) {
    let Some(seccomp) = config
        .pointer_mut("/linux/seccomp")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let rules = seccomp.entry("syscalls").or_insert_with(|| json!([]));
    let Some(rules) = rules.as_array_mut() else {
        return;
    };
    for rule in rules.iter_mut() {
        if let Some(names) = rule.get_mut("names").and_then(Value::as_array_mut) {
            names.retain(|name| !CALLS.iter().any(|call| name == call));
        }
    }
    let has_names = |rule: &Value| rule["names"].as_array().is_none_or(|n| !n.is_empty());
    rules.retain(has_names);
    if seccomp.get("defaultAction") != Some(&json!("SCMP_ACT_ALLOW")) {
        let rules = seccomp["syscalls"].as_array_mut().expect("as above");
        rules.push(json!({ "names": CALLS, "action": "SCMP_ACT_ALLOW" }));
    }
}

/// The object of that name, made where it is missing.
fn object<'value>(value: &'value mut Value, name: &str) -> &'value mut Map<String, Value> {
    let inner = &mut value[name];
    if !inner.is_object() {
        *inner = json!({});
    }
    inner.as_object_mut().expect("made just above")
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
