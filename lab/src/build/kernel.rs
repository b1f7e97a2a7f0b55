//! Unpacks the distribution's kernel: its image, modules and headers. Nothing is installed.

use std::path::PathBuf;

use super::context::{Context, Made};
use super::packages::{KernelPackages, apt, unpack};
use super::{BuildError, Step};
use crate::cache::Key;

/// An unpacked kernel.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub made: Made,
    pub release: String,
}

impl Kernel {
    /// The folder that the packages are unpacked into, as if it were `/`.
    pub fn root(&self) -> PathBuf {
        self.made.path.join("root")
    }

    pub fn image(&self) -> PathBuf {
        self.file("vmlinuz")
    }

    /// The kernel's configuration, as `.config` has it.
    pub fn config(&self) -> PathBuf {
        self.file("config")
    }

    pub fn modules(&self) -> PathBuf {
        let old = self.root().join("lib/modules").join(&self.release);
        let new = self.root().join("usr/lib/modules").join(&self.release);
        if old.exists() { old } else { new }
    }

    /// `/boot/NAME-RELEASE`, or, in newer packages, beside the modules.
    fn file(&self, name: &str) -> PathBuf {
        let in_boot = format!("boot/{name}-{}", self.release);
        let in_boot = self.root().join(in_boot);
        if in_boot.exists() {
            return in_boot;
        }
        self.modules().join(name)
    }
}

pub(crate) fn kernel(
    context: &Context<'_>,
    packages: &KernelPackages,
) -> Result<Kernel, BuildError> {
    let mut key = Key::new();
    key.text("release", &packages.release);
    for file in &packages.files {
        key.text(&file.name, &file.sha256);
    }
    let made = context.make(Step::Kernel, &key, &packages.release, |running, work| {
        let files = running.files(&packages.files, |missing, folder, percent| {
            let apt = match &packages.origin {
                Some(suites) => suites.apt(&context.cache)?,
                None => apt(context)?,
            };
            apt.download(missing, folder, percent)
        })?;
        let root = work.join("root");
        for (count, file) in files.iter().enumerate() {
            running.activity(format!("unpacking {} of {}", count + 1, files.len()));
            unpack(file, &root, &running.log()?)?;
        }
        Ok(())
    })?;
    let kernel = Kernel {
        made,
        release: packages.release.clone(),
    };
    for path in [kernel.image(), kernel.modules()] {
        if !path.exists() {
            return Err(BuildError::Unexpected(format!(
                "the packages of kernel {} lack {}",
                kernel.release,
                path.display()
            )));
        }
    }
    Ok(kernel)
}
