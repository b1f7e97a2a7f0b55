//! The stock kernels of Debian's releases: which ones the archive has, and a machine that runs one.
//!
//! The archive's address is the one of this machine's apt configuration; each release has its own
//! private package lists. The answer is used for a day.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::context::{Context, Running};
use super::packages::{self, KernelPackages, Suites};
use super::plan;
use super::tools;
use super::{Artefacts, BuildError, BuildOptions, BuildProgress, Flavour, Step};
use crate::apt::{Apt, AptError, ArchiveFile};

/// How long the archive's answer is used before it is asked again.
const VALID: Duration = Duration::from_secs(24 * 3600);
/// Changes whenever the answer would be another one.
const FORMAT: u32 = 2;

/// A release, or a part of one, with kernels of its own.
struct Release {
    title: &'static str,
    suite: &'static str,
    /// The suite that this one adds to; its own versions are taken before those.
    base: Option<&'static str>,
    security: Option<&'static str>,
    /// Whether the matrix has it where nothing else is asked for.
    usual: bool,
}

const RELEASES: [Release; 7] = [
    Release::whole("Debian 12", "bookworm", "bookworm-security"),
    Release::whole("Debian 13", "trixie", "trixie-security"),
    Release::added("Debian 13 backports", "trixie-backports", "trixie", true),
    Release::rolling("Debian unstable", "unstable", true),
    Release::added(
        "Debian 12 backports",
        "bookworm-backports",
        "bookworm",
        false,
    ),
    Release::rolling("Debian testing", "testing", false),
    Release::added("Debian experimental", "experimental", "unstable", false),
];

impl Release {
    const fn whole(title: &'static str, suite: &'static str, security: &'static str) -> Self {
        Release {
            title,
            suite,
            base: None,
            security: Some(security),
            usual: true,
        }
    }

    const fn added(
        title: &'static str,
        suite: &'static str,
        base: &'static str,
        usual: bool,
    ) -> Self {
        Release {
            title,
            suite,
            base: Some(base),
            security: None,
            usual,
        }
    }

    const fn rolling(title: &'static str, suite: &'static str, usual: bool) -> Self {
        Release {
            title,
            suite,
            base: None,
            security: None,
            usual,
        }
    }

    fn suites(&self, archive: &str, security_archive: Option<&str>) -> Suites {
        let own = [self.base, Some(self.suite)].into_iter().flatten();
        let own = own.map(|suite| (archive.to_owned(), suite.to_owned()));
        let security = security_archive.zip(self.security);
        let security = security.map(|(archive, suite)| (archive.to_owned(), suite.to_owned()));
        Suites {
            name: self.suite.to_owned(),
            sources: own.chain(security).collect(),
            preferred: self.base.map(|_| self.suite.to_owned()),
        }
    }
}

/// A kernel of a release, with what its module is built with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StockKernel {
    /// The release, for example `Debian 13 backports`.
    pub distribution: String,
    /// Version of the package.
    pub version: String,
    /// Whether the matrix has it where nothing else is asked for.
    pub usual: bool,
    packages: KernelPackages,
    /// The compiler, make and the C library of that release; none where this machine runs the
    /// same release, and its own programs serve.
    tools: Option<Vec<ArchiveFile>>,
}

impl StockKernel {
    /// What `uname -r` prints when it runs.
    pub fn release(&self) -> &str {
        &self.packages.release
    }

    pub(super) fn packages(&self) -> &KernelPackages {
        &self.packages
    }

    pub(super) fn tools(&self) -> Option<&[ArchiveFile]> {
        self.tools.as_deref()
    }

    /// Cloud or generic.
    pub fn flavour(&self) -> Flavour {
        self.packages.flavour
    }
}

#[derive(Serialize, Deserialize)]
struct Answer {
    format: u32,
    kernels: Vec<StockKernel>,
}

/// The stock kernels that the archive has, of the usual releases first.
///
/// # Errors
/// The archive cannot be asked, and no earlier answer is known.
pub fn stock_kernels(
    options: &BuildOptions,
    progress: &dyn BuildProgress,
) -> Result<Vec<StockKernel>, BuildError> {
    let context = Context::open(options, progress, None)?;
    let path = context.cache.folder("apt")?.join("stock-kernels.json");
    let fresh = fs::metadata(&path)
        .and_then(|facts| facts.modified())
        .is_ok_and(|at| at.elapsed().is_ok_and(|age| age < VALID));
    let known = fs::read(&path)
        .ok()
        .and_then(|text| serde_json::from_slice::<Answer>(&text).ok())
        .filter(|answer| answer.format == FORMAT);
    if let Some(answer) = known.filter(|_| fresh || options.offline) {
        return Ok(answer.kernels);
    }
    if options.offline {
        return Err(AptError::Offline("the list of stock kernels".into()).into());
    }
    let running = context.begin(Step::Resolve);
    running.started()?;
    let kernels = resolve(&context, &running)?;
    let answer = Answer {
        format: FORMAT,
        kernels,
    };
    let text = serde_json::to_vec_pretty(&answer)
        .map_err(|error| BuildError::Unexpected(format!("list of stock kernels: {error}")))?;
    fs::write(&path, text).map_err(BuildError::io("write", &path))?;
    running.finish(false, &format!("{} stock kernels", answer.kernels.len()));
    Ok(answer.kernels)
}

fn resolve(context: &Context<'_>, running: &Running<'_>) -> Result<Vec<StockKernel>, BuildError> {
    let machine = packages::apt(context)?;
    machine.update_even_if_stale()?;
    let archive = machine.debian_archive()?;
    let security = machine.security_archive();
    let own = own_suite();
    let mut kernels: Vec<StockKernel> = Vec::new();
    for release in RELEASES {
        running.activity(format!("asking for the kernels of {}", release.title));
        let suites = release.suites(&archive, security.as_deref());
        let apt = suites.apt(&context.cache)?;
        // One suite that cannot be reached must not hide the others.
        if let Err(error) = apt.update_even_if_stale() {
            context.warn(format!("{}: {error}", release.title));
            continue;
        }
        for flavour in Flavour::ALL {
            let found = of_release(&apt, &release, &suites, flavour, own.as_deref())?;
            let is_new = |kernel: &StockKernel| {
                kernels
                    .iter()
                    .all(|known| known.release() != kernel.release())
            };
            kernels.extend(found.filter(is_new));
        }
    }
    if kernels.is_empty() {
        return Err(AptError::NoPackage(vec!["linux-image-amd64".into()]).into());
    }
    Ok(kernels)
}

/// None where the suite has no such kernel, or an older one than the module can be built for.
fn of_release(
    apt: &Apt,
    release: &Release,
    suites: &Suites,
    flavour: Flavour,
    own: Option<&str>,
) -> Result<Option<StockKernel>, BuildError> {
    let Some(packages) = plan::newest_kernel(apt, flavour)? else {
        return Ok(None);
    };
    let image = format!("linux-image-{}", packages.release);
    let version = apt
        .show(&image)
        .and_then(|record| record.get("Version").cloned());
    let tools = match own == Some(release.suite) {
        true => None,
        false => Some(tools::files(apt, &packages)?),
    };
    Ok(Some(StockKernel {
        distribution: release.title.to_owned(),
        version: version.unwrap_or_default(),
        usual: release.usual,
        packages: KernelPackages {
            origin: Some(suites.clone()),
            ..packages
        },
        tools,
    }))
}

/// The suite of the release that this machine runs.
fn own_suite() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let mut lines = text.lines();
    lines.find_map(|line| {
        Some(
            line.strip_prefix("VERSION_CODENAME=")?
                .trim_matches('"')
                .into(),
        )
    })
}

/// Builds a machine that runs this kernel; what does not depend on the kernel is shared with the
/// usual machine.
///
/// # Errors
/// See [`BuildError`]; nothing half-built is ever taken for complete.
pub fn build_stock(
    options: &BuildOptions,
    stock: &StockKernel,
    progress: &dyn BuildProgress,
) -> Result<Artefacts, BuildError> {
    let context = Context::open(options, progress, None)?;
    let (plan, _) = plan::plan(&context, false)?;
    let mut artefacts = super::make(&context, &plan, &stock.packages, stock.tools.as_deref())?;
    artefacts.steps = context.end()?;
    Ok(artefacts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_that_adds_to_another_is_preferred_to_it_and_a_whole_one_takes_the_newest() {
        let archive = "http://mirror.example/debian/";
        let added = RELEASES[2].suites(archive, None);
        assert_eq!(added.preferred.as_deref(), Some("trixie-backports"));
        let names: Vec<&str> = added
            .sources
            .iter()
            .map(|(_, suite)| suite.as_str())
            .collect();
        assert_eq!(names, ["trixie", "trixie-backports"]);

        // Security updates must not be held back by a preference for the release itself.
        let whole = RELEASES[0].suites(archive, Some("http://mirror.example/security/"));
        assert_eq!(whole.preferred, None);
        assert_eq!(whole.sources[1].1, "bookworm-security");
    }
}
