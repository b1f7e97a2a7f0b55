//! Which packages of which versions a machine is made from; asked of the archives once a day.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::context::{Context, Running};
use super::packages::{KernelPackages, apt};
use super::{BuildError, Flavour, Step, rootfs};
use crate::apt::{Apt, AptError, ArchiveFile, parse};
use crate::cache::{Cache, Key};

/// How long an answer of the archives is used before they are asked again.
const VALID_S: u64 = 24 * 3600;
/// Suites to take coreboot from, the newest first; the first is used unless our hooks do not
/// apply to what it has.
const COREBOOT_SUITES: [&str; 3] = ["unstable", "testing", "stable"];
const ARCHITECTURE: &str = "amd64";

/// The packages of all parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Hash of the questions: other questions make the answers void.
    questions: String,
    resolved_at_s: u64,
    pub kernels: Vec<KernelPackages>,
    /// From the first suites of `COREBOOT_SUITES`, as far as they were asked.
    pub coreboot: Vec<SourcePackage>,
    pub rootfs: Vec<ArchiveFile>,
}

/// A source package.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SourcePackage {
    pub suite: String,
    pub version: String,
    /// Address of the archive, from the machine's configuration.
    pub archive: String,
    pub files: Vec<ArchiveFile>,
}

impl Plan {
    pub fn kernel(&self, flavour: Flavour) -> Result<&KernelPackages, BuildError> {
        self.kernels
            .iter()
            .find(|kernel| kernel.flavour == flavour)
            .ok_or_else(|| AptError::NoPackage(kernel_packages(flavour, "image").into()).into())
    }
}

impl Plan {
    /// Removes downloads that no artefact will be made from any more.
    pub fn forget_other_files(&self, cache: &Cache) -> Result<(), BuildError> {
        let kernels = self.kernels.iter().flat_map(|kernel| &kernel.files);
        let wanted: BTreeSet<&str> = kernels
            .chain(self.coreboot.iter().flat_map(|coreboot| &coreboot.files))
            .chain(&self.rootfs)
            .map(|file| file.name.as_str())
            .collect();
        let folder = cache.folder("downloads")?;
        for entry in fs::read_dir(&folder)
            .map_err(BuildError::io("read", &folder))?
            .flatten()
        {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            if is_file
                && !entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| wanted.contains(name))
            {
                fs::remove_file(entry.path()).map_err(BuildError::io("remove", entry.path()))?;
            }
        }
        Ok(())
    }
}

/// The names under which releases of Debian have the kernel, best first.
fn kernel_packages(flavour: Flavour, part: &str) -> [String; 2] {
    let suffix = match flavour {
        Flavour::Cloud => format!("cloud-{ARCHITECTURE}"),
        Flavour::Generic => ARCHITECTURE.to_string(),
    };
    [
        format!("linux-{part}-6.12-{suffix}"),
        format!("linux-{part}-{suffix}"),
    ]
}

/// The plan and whether it was made just now.
pub(crate) fn plan(context: &Context<'_>, refresh: bool) -> Result<(Plan, bool), BuildError> {
    let running = context.begin(Step::Resolve);
    let path = path(context)?;
    let questions = questions()?;
    let known = read(&path).filter(|plan| plan.questions == questions);
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_secs());
    if let Some(plan) = &known {
        let fresh = now_s.saturating_sub(plan.resolved_at_s) < VALID_S;
        if (fresh && !refresh) || context.options.offline {
            running.finish(true, &describe(plan));
            return Ok((plan.clone(), false));
        }
    }
    if context.options.offline {
        return Err(AptError::Offline("the list of package versions".into()).into());
    }
    running.started()?;
    match (resolve(context, &running, questions, now_s), known) {
        (Ok(plan), _) => {
            write(&plan, &path)?;
            running.finish(false, &describe(&plan));
            Ok((plan, true))
        }
        // Yesterday's versions are better than none; their files are mostly cached.
        (Err(error), Some(plan)) => {
            context.warn(format!(
                "the package versions known so far are used: {error}"
            ));
            running.finish(true, &describe(&plan));
            Ok((plan, true))
        }
        (Err(error), None) => Err(error),
    }
}

fn path(context: &Context<'_>) -> Result<PathBuf, BuildError> {
    Ok(context.cache.folder("apt")?.join("plan.json"))
}

fn write(plan: &Plan, path: &Path) -> Result<(), BuildError> {
    let text = serde_json::to_string_pretty(plan)
        .map_err(|error| BuildError::Unexpected(format!("package plan: {error}")))?;
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, text).map_err(BuildError::io("write", &unfinished))?;
    fs::rename(&unfinished, path).map_err(BuildError::io("write", path))
}

fn read(path: &Path) -> Option<Plan> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn describe(plan: &Plan) -> String {
    let kernel = plan
        .kernels
        .first()
        .map_or("none", |kernel| &kernel.release);
    format!(
        "kernel {kernel}, coreboot {}, {} packages",
        plan.coreboot
            .first()
            .map_or("none", |coreboot| &coreboot.version),
        plan.rootfs.len()
    )
}

/// The inputs of the plan: our package lists and the machine's configured package sources.
fn questions() -> Result<String, BuildError> {
    let mut key = Key::new();
    key.text("format", "2")
        .text("coreboot", &COREBOOT_SUITES.join(" "));
    for flavour in Flavour::ALL {
        key.text("kernel", &kernel_packages(flavour, "image").join(" "));
    }
    key.text("rootfs", &rootfs::PACKAGES.join(" "));
    let sources = PathBuf::from("/etc/apt");
    let wanted = |path: &Path| {
        path == Path::new("sources.list")
            || path.starts_with("sources.list.d")
                && path
                    .extension()
                    .is_some_and(|kind| kind == "list" || kind == "sources")
    };
    for name in ["sources.list", "sources.list.d"] {
        let path = sources.join(name);
        if path.is_dir() {
            key.tree(name, &path, &|inner| wanted(&Path::new(name).join(inner)))?;
        } else if path.is_file() {
            key.file(name, &path)?;
        }
    }
    Ok(key.digest())
}

fn resolve(
    context: &Context<'_>,
    running: &Running<'_>,
    questions: String,
    resolved_at_s: u64,
) -> Result<Plan, BuildError> {
    let apt = apt(context)?;
    running.activity("fetching the package lists");
    let updated = apt.update();
    let archive = match (apt.debian_archive(), updated) {
        (Ok(archive), Ok(())) => archive,
        // One unreachable source among several must not stop the others.
        (Ok(archive), Err(error)) => {
            context.warn(error.to_string());
            archive
        }
        (Err(_), Err(error)) | (Err(error), Ok(())) => return Err(error.into()),
    };
    let mut kernels = Vec::new();
    for flavour in Flavour::ALL {
        kernels.extend(resolve_kernel(&apt, flavour)?);
    }
    if kernels.is_empty() {
        return Err(AptError::NoPackage(kernel_packages(Flavour::Cloud, "image").into()).into());
    }
    running.activity("resolving the packages of the root file system");
    let rootfs = apt.closure(&rootfs::PACKAGES)?;
    running.activity("fetching the list of source packages");
    let coreboot = vec![first_coreboot(context, &archive)?];
    Ok(Plan {
        questions,
        resolved_at_s,
        kernels,
        coreboot,
        rootfs,
    })
}

/// The coreboot of the first suite that the archive has.
fn first_coreboot(context: &Context<'_>, archive: &str) -> Result<SourcePackage, BuildError> {
    let mut first_error = None;
    for suite in COREBOOT_SUITES {
        match resolve_coreboot(context, archive, suite) {
            Ok(package) => return Ok(package),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| AptError::NoPackage(vec!["coreboot".into()]).into()))
}

fn resolve_coreboot(
    context: &Context<'_>,
    archive: &str,
    suite: &str,
) -> Result<SourcePackage, BuildError> {
    let sources = source_archive(&context.cache, archive, suite)?;
    if let Some(complaint) = sources.update_even_if_stale()? {
        context.warn(format!(
            "the archive's list of {suite} is signed but out of date; it is used: {complaint}"
        ));
    }
    let files = sources.source_files("coreboot")?;
    let version = files
        .iter()
        .find_map(|file| file.name.strip_suffix(".dsc")?.strip_prefix("coreboot_"))
        .ok_or_else(|| AptError::NoPackage(vec!["coreboot (source)".into()]))?
        .to_string();
    let (archive, suite) = (archive.to_string(), suite.to_string());
    Ok(SourcePackage {
        suite,
        version,
        archive,
        files,
    })
}

/// Adds the coreboot of the next suite that was not asked yet, if there is one.
///
/// Remembered, so that the next build does not ask again.
pub(crate) fn next_coreboot(context: &Context<'_>, plan: &mut Plan) -> Result<(), BuildError> {
    let Some(last) = plan.coreboot.last() else {
        return Ok(());
    };
    let asked = COREBOOT_SUITES
        .iter()
        .position(|suite| *suite == last.suite);
    let next = COREBOOT_SUITES.get(asked.map_or(0, |index| index + 1));
    if let Some(suite) = next.filter(|_| !context.options.offline) {
        let package = resolve_coreboot(context, &last.archive, suite)?;
        plan.coreboot.push(package);
        write(plan, &path(context)?)?;
    }
    Ok(())
}

/// Debian's source packages of one suite.
pub(crate) fn source_archive(cache: &Cache, archive: &str, suite: &str) -> Result<Apt, AptError> {
    Apt::debian_sources(&cache.state_folder(&format!("apt/{suite}")), archive, suite)
}

/// The packages that a kernel's image depends on and that have a part of it.
const PARTS: [&str; 4] = [
    "linux-base-",
    "linux-binary-",
    "linux-image-",
    "linux-modules-",
];

/// Follows the meta package to the kernel of the day; `None` if the archives lack the flavour.
fn resolve_kernel(apt: &Apt, flavour: Flavour) -> Result<Option<KernelPackages>, BuildError> {
    let Some(kernel) = newest_kernel(apt, flavour)? else {
        return Ok(None);
    };
    check_release(&kernel.release)?;
    Ok(Some(kernel))
}

/// The same, whatever its version.
pub(crate) fn newest_kernel(
    apt: &Apt,
    flavour: Flavour,
) -> Result<Option<KernelPackages>, BuildError> {
    let depends_of = |package: &str| -> Vec<Vec<String>> {
        apt.show(package)
            .and_then(|record| record.get("Depends").map(|field| parse::depends(field)))
            .unwrap_or_default()
    };
    let Some(image) = kernel_packages(flavour, "image").iter().find_map(|name| {
        depends_of(name)
            .into_iter()
            .flatten()
            .find(|name| name.starts_with("linux-image-"))
    }) else {
        return Ok(None);
    };
    let Some(release) = image.strip_prefix("linux-image-").map(str::to_string) else {
        return Ok(None);
    };
    let headers = format!("linux-headers-{release}");
    // The headers proper, those common to all flavours, and the build tools; not the compiler.
    let of_headers = depends_of(&headers).into_iter().filter_map(|alternatives| {
        alternatives
            .into_iter()
            .find(|name| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-"))
    });
    // Newer packages divide the kernel: binary, modules and configuration by themselves.
    let of_image = depends_of(&image).into_iter().flatten();
    let of_image = of_image
        .filter(|name| PARTS.iter().any(|part| name.starts_with(part)) && name.contains(&release));
    let mut packages: Vec<String> = of_headers.chain(of_image).collect();
    packages.extend([image, headers]);
    packages.sort();
    packages.dedup();
    let files = apt.files_of(&packages)?;
    Ok(Some(KernelPackages {
        flavour,
        release,
        files,
        origin: None,
    }))
}

/// Our module needs what 6.12 has.
fn check_release(release: &str) -> Result<(), BuildError> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (6, 12) => Ok(()),
        _ => Err(BuildError::Unexpected(format!(
            "the configured archives' kernel is {release}, and 6.12 or newer is needed"
        ))),
    }
}

#[cfg(test)]
mod tests;
