//! Configuration of what a user is.

use std::path::PathBuf;

use serde::Deserialize;

/// What a user is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserUnit {
    /// Each cgroup with processes.
    #[default]
    Cgroup,
    /// A pod of Kubernetes, or a service or scope of systemd, with all cgroups below it.
    Unit,
}

/// Where the annotations of pods are.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesConfig {
    /// The file with a pod's annotations in the format of the downward API; `{uid}` stands for the
    /// pod's UID.
    #[serde(default = "annotations")]
    pub annotations: PathBuf,
}

fn annotations() -> PathBuf {
    "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~downward-api/dormouse/annotations".into()
}
