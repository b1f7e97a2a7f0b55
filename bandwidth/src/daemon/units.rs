//! Users that are more than a cgroup: pods of Kubernetes, services and scopes of systemd.
//!
//! ```text
//!  kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7f….slice/cri-containerd-….scope
//!                                          └────────── the pod ──────────┘
//!  kubepods/burstable/pod7f…/4e…           the same, where the kubelet does not use systemd
//!  system.slice/postgresql.service/…       a service with cgroups of its own
//!  user.slice/user-1000.slice/session-2.scope
//! ```
//!
//! The cgroup of a pod or unit contains those of its containers. The kernel adds up their CPU
//! time, and a limit of it holds for all of them together.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::config::{Config, KubernetesConfig};
use crate::enforce::cgroup::Hierarchy;

/// The annotation with a pod's weight; 1 is ordinary.
const WEIGHT: &str = "bandwidth.dormouse/weight";
/// The annotation with a pod's latency class.
const CLASS: &str = "bandwidth.dormouse/class";

/// The unit that a cgroup belongs to: the first pod, service or scope on the path from `root`, or
/// the cgroup itself.
pub fn unit_of(root: &Path, path: &Path) -> PathBuf {
    let Ok(below) = path.strip_prefix(root) else {
        return path.to_owned();
    };
    let mut unit = root.to_owned();
    for part in below {
        unit.push(part);
        if is_unit(part) {
            return unit;
        }
    }
    path.to_owned()
}

fn is_unit(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    // `user@1000.service` is the manager of a user's units, not one of them.
    let is_manager = name.starts_with("user@");
    pod_uid(name).is_some() || name.ends_with(".scope") || name.ends_with(".service") && !is_manager
}

/// The UID of the pod whose cgroup has this name.
pub fn pod_uid(name: &str) -> Option<String> {
    let uid = match name.strip_suffix(".slice") {
        // kubepods-burstable-podUID.slice; systemd escapes the dashes of the UID.
        Some(name) => name
            .strip_prefix("kubepods-")?
            .rsplit_once("pod")?
            .1
            .replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    // A UUID; of a static pod it is a hash without dashes.
    let is_uid = |uid: &str| uid.chars().all(|at| at.is_ascii_hexdigit() || at == '-');
    (uid.len() >= 32 && is_uid(&uid)).then_some(uid)
}

/// A name for people: the pod's UID, the unit, or the path below the hierarchy.
pub fn name_of(hierarchy: &Hierarchy, path: &Path) -> String {
    let last = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if let Some(uid) = pod_uid(last) {
        return format!("pod {uid}");
    }
    if is_unit(OsStr::new(last)) {
        return last.to_owned();
    }
    let below = path.strip_prefix(&hierarchy.root).unwrap_or(path);
    format!("/{}", below.display())
}

/// What a pod's annotations say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Annotations {
    /// The weight, relative to an ordinary one; `None`: `cpu.weight` of its cgroup counts.
    pub weight: Option<f64>,
    /// The name of its latency class.
    pub class: Option<String>,
}

/// Reads the annotations of the pod with this cgroup; the default for everything else.
///
/// # Errors
/// An annotation has no usable value; the message names it.
pub fn annotations(config: Option<&KubernetesConfig>, path: &Path) -> Result<Annotations, String> {
    let uid = path.file_name().and_then(OsStr::to_str).and_then(pod_uid);
    let Some((config, uid)) = config.zip(uid) else {
        return Ok(Annotations::default());
    };
    let file = config.annotations.to_string_lossy().replace("{uid}", &uid);
    let Ok(text) = fs::read_to_string(&file) else {
        // A pod without such a volume.
        return Ok(Annotations::default());
    };
    parse(&text).map_err(|why| format!("{file}: {why}"))
}

/// Lines `key="value"` of the downward API, in which values are quoted.
fn parse(text: &str) -> Result<Annotations, String> {
    let mut found = Annotations::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let quoted = value
            .trim()
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'));
        let value = quoted.ok_or_else(|| format!("{key}: the value {value} is not quoted"))?;
        match key.trim() {
            WEIGHT => {
                let weight = value.parse::<f64>().ok();
                let usable = weight.filter(|weight| (0.01..=100.0).contains(weight));
                let why = || format!("{WEIGHT}: {value:?} is no weight of 0.01 to 100");
                found.weight = Some(usable.ok_or_else(why)?);
            }
            CLASS => found.class = Some(value.to_owned()),
            _ => (),
        }
    }
    Ok(found)
}

/// The maximum latency of a user's class: that of its pod's annotation, or of the first class
/// whose cgroups it is in.
///
/// # Errors
/// The annotation names an unknown class.
pub fn class_latency(
    config: &Config,
    hierarchy: &Hierarchy,
    path: &Path,
    class: Option<&str>,
) -> Result<Option<f64>, String> {
    let classes = &config.classes;
    if let Some(name) = class {
        let found = classes.iter().find(|class| class.name == name);
        let why = || format!("{CLASS}: there is no class {name:?} in the configuration");
        return found
            .map(|class| Some(class.max_latency_ns))
            .ok_or_else(why);
    }
    let below = path.strip_prefix(&hierarchy.root).unwrap_or(path);
    let is_in = |cgroups: &[PathBuf]| cgroups.iter().any(|one| below.starts_with(one));
    let found = classes.iter().find(|class| is_in(&class.cgroups));
    Ok(found.map(|class| class.max_latency_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "7f1a2b3c-0000-4d5e-8f90-123456789abc";

    fn unit(path: &str) -> String {
        unit_of(Path::new("/c"), Path::new(path))
            .display()
            .to_string()
    }

    #[test]
    fn a_container_belongs_to_its_pod_whichever_driver_the_kubelet_uses() {
        let escaped = UID.replace('-', "_");
        for pod in [
            format!(
                "/c/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{escaped}.slice"
            ),
            format!("/c/kubepods.slice/kubepods-pod{escaped}.slice"),
            format!("/c/kubepods/besteffort/pod{UID}"),
            // A static pod.
            "/c/kubepods/burstable/pod0123456789abcdef0123456789abcdef".to_owned(),
        ] {
            for below in ["", "/cri-containerd-4e.scope", "/4e/child"] {
                assert_eq!(unit(&format!("{pod}{below}")), pod);
            }
        }
    }

    #[test]
    fn a_cgroup_belongs_to_its_service_or_scope_and_slices_are_no_units() {
        for (path, expected) in [
            (
                "/c/system.slice/db.service/worker/1",
                "/c/system.slice/db.service",
            ),
            (
                "/c/user.slice/user-7.slice/session-2.scope",
                "/c/user.slice/user-7.slice/session-2.scope",
            ),
            (
                "/c/user.slice/user-7.slice/user@7.service/app.slice/a.service/x",
                "/c/user.slice/user-7.slice/user@7.service/app.slice/a.service",
            ),
            ("/c/batch/7", "/c/batch/7"),
            ("/c/kubepods.slice/podium", "/c/kubepods.slice/podium"),
            ("/elsewhere/a.service/b", "/elsewhere/a.service/b"),
        ] {
            assert_eq!(unit(path), expected);
        }
    }

    #[test]
    fn a_pod_and_a_service_have_names_for_people() {
        let hierarchy = Hierarchy {
            root: "/c".into(),
            version: crate::enforce::cgroup::Version::V2,
        };
        let name = |path: &str| name_of(&hierarchy, Path::new(path));
        let escaped = UID.replace('-', "_");
        assert_eq!(
            name(&format!("/c/k/kubepods-pod{escaped}.slice")),
            format!("pod {UID}")
        );
        assert_eq!(name("/c/system.slice/db.service"), "db.service");
        assert_eq!(name("/c/batch/7"), "/batch/7");
    }

    #[test]
    fn annotations_are_read_as_the_downward_api_writes_them() {
        let text = format!(
            "a=\"x\"\n{WEIGHT}=\"2.5\"\n{CLASS}=\"gold\"\nkubernetes.io/config=\"{{\\\"a\\\"}}\"\n"
        );
        let expected = Annotations {
            weight: Some(2.5),
            class: Some("gold".to_owned()),
        };
        assert_eq!(parse(&text), Ok(expected));
        for bad in ["\"-1\"", "\"NaN\"", "\"heavy\"", "2", "\"1e9\""] {
            let said = parse(&format!("{WEIGHT}={bad}\n")).unwrap_err();
            assert!(said.contains(WEIGHT), "{said}");
        }
    }

    #[test]
    fn the_annotations_of_a_pod_are_found_by_its_uid() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubernetesConfig {
            annotations: folder.path().join("{uid}/annotations"),
        };
        let pod = PathBuf::from(format!("/c/kubepods/pod{UID}"));
        let read = |path: &Path| annotations(Some(&config), path);
        assert_eq!(
            read(&pod),
            Ok(Annotations::default()),
            "it has no such volume"
        );
        fs::create_dir(folder.path().join(UID)).unwrap();
        let file = folder.path().join(UID).join("annotations");
        fs::write(&file, format!("{WEIGHT}=\"3\"\n")).unwrap();
        assert_eq!(read(&pod).unwrap().weight, Some(3.0));
        assert_eq!(read(Path::new("/c/a.service")), Ok(Annotations::default()));
        fs::write(&file, format!("{WEIGHT}=\"much\"\n")).unwrap();
        let said = read(&pod).unwrap_err();
        assert!(said.contains(UID) && said.contains("much"), "{said}");
    }
}
