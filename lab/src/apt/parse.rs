//! Reads what apt prints: index targets, package records, file lists and download progress.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One `Field: value` record, as apt and dpkg print them.
pub type Stanza = BTreeMap<String, String>;

/// A file of the archive, with what proves that it is the right one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// As apt names it on disk; a colon of the version is `%3a` in it.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Hexadecimal SHA-256 from the signed index.
    pub sha256: String,
}

impl ArchiveFile {
    /// Package name, version and architecture, when this is a binary package.
    pub fn package(&self) -> Option<(String, String, String)> {
        let mut parts = self.name.strip_suffix(".deb")?.split('_');
        let name = parts.next()?.to_string();
        let version = parts.next()?.replace("%3a", ":");
        let architecture = parts.next()?.to_string();
        parts
            .next()
            .is_none()
            .then_some((name, version, architecture))
    }
}

/// Splits records separated by blank lines; continuation lines keep their line break.
pub fn stanzas(text: &str) -> Vec<Stanza> {
    let mut all = Vec::new();
    let mut current = Stanza::new();
    let mut last_field = String::new();
    for line in text.lines() {
        if line.trim().is_empty() {
            if !current.is_empty() {
                all.push(std::mem::take(&mut current));
            }
        } else if line.starts_with([' ', '\t']) {
            if let Some(value) = current.get_mut(&last_field) {
                value.push('\n');
                value.push_str(line.trim());
            }
        } else if let Some((field, value)) = line.split_once(':') {
            last_field = field.to_string();
            current.insert(last_field.clone(), value.trim().to_string());
        }
    }
    if !current.is_empty() {
        all.push(current);
    }
    all
}

/// The names in a `Depends:` field: one list for each dependency, alternatives in order.
pub fn depends(field: &str) -> Vec<Vec<String>> {
    field
        .split(',')
        .map(|dependency| {
            dependency
                .split('|')
                .filter_map(|alternative| {
                    let name = alternative.trim().split([' ', '(', ':', '[']).next()?;
                    (!name.is_empty()).then(|| name.to_string())
                })
                .collect::<Vec<_>>()
        })
        .filter(|alternatives| !alternatives.is_empty())
        .collect()
}

/// The files that `--print-uris` lists: `'uri' name bytes SHA256:digest`, one a line.
///
/// Lines of another form (notices) are skipped; a file without a SHA-256 is not, because it
/// could not be verified: it makes the whole answer an error that names the line.
pub fn uris(text: &str) -> Result<Vec<ArchiveFile>, String> {
    let mut files = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('\'')) {
        let mut words = line.split_whitespace().skip(1);
        let parsed = (|| {
            let name = words.next()?;
            let bytes = words.next()?.parse().ok()?;
            let sha256 = words.find_map(|word| word.strip_prefix("SHA256:"))?;
            let safe = !name.contains('/') && !name.starts_with('.');
            let digest = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
            (safe && digest).then(|| ArchiveFile {
                name: name.to_string(),
                bytes,
                sha256: sha256.to_ascii_lowercase(),
            })
        })();
        files.push(parsed.ok_or_else(|| line.to_string())?);
    }
    Ok(files)
}

/// The percentage in one line of apt's status file descriptor, if it is about a download.
pub fn download_percent(line: &str) -> Option<f64> {
    line.strip_prefix("dlstatus:")?
        .split(':')
        .nth(1)?
        .parse()
        .ok()
}

/// The address of Debian's own main archive, whatever mirror of it is configured.
pub fn debian_archive(targets: &[Stanza]) -> Option<String> {
    archive(targets, "Debian")
}

/// The address of Debian's security updates, whatever mirror of them is configured.
pub fn security_archive(targets: &[Stanza]) -> Option<String> {
    archive(targets, "Debian-Security")
}

fn archive(targets: &[Stanza], label: &str) -> Option<String> {
    let field = |target: &Stanza, name: &str| target.get(name).cloned().unwrap_or_default();
    targets
        .iter()
        .find(|target| {
            field(target, "Origin") == "Debian"
                && field(target, "Label") == label
                && field(target, "Component") == "main"
                && field(target, "Identifier") == "Packages"
        })
        .and_then(|target| target.get("Repo-URI").or_else(|| target.get("Site")))
        .cloned()
}

/// Whether the only errors that apt reports are lists past their time of validity.
pub fn is_stale(message: &str) -> bool {
    let mut errors = message
        .lines()
        .filter(|line| line.starts_with("E:"))
        .peekable();
    errors.peek().is_some() && errors.all(|line| line.contains("is expired (invalid since"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "\
MetaKey: main/binary-amd64/Packages
Identifier: Packages
Component: main
Label: Other
Origin: Other
Repo-URI: https://other.example/

MetaKey: main/binary-amd64/Packages
Identifier: Packages
Component: main
Label: Debian-Security
Origin: Debian
Repo-URI: http://mirror.example/debian-security/

MetaKey: main/binary-amd64/Packages
Identifier: Packages
Component: main
Label: Debian
Origin: Debian
Site: http://mirror.example/debian
Repo-URI: http://mirror.example/debian/
";

    #[test]
    fn the_archive_is_the_configured_debian_one_and_no_other() {
        let targets = stanzas(TARGETS);
        assert_eq!(targets.len(), 3);
        assert_eq!(
            debian_archive(&targets).as_deref(),
            Some("http://mirror.example/debian/")
        );
        assert_eq!(debian_archive(&targets[..2]), None);
    }

    #[test]
    fn a_file_without_a_sha256_is_never_accepted() {
        let good = format!(
            "'http://a/p_1_all.deb' p_1_all.deb 12 SHA256:{}",
            "ab".repeat(32)
        );
        let files = uris(&format!("Reading package lists...\n{good}\n")).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].bytes, 12);
        for bad in [
            "'http://a/p_1_all.deb' p_1_all.deb 12 MD5Sum:00",
            "'http://a/p_1_all.deb' p_1_all.deb 12",
            "'http://a/p_1_all.deb' p_1_all.deb twelve SHA256:00",
            "'http://a/p_1_all.deb' ../p 12 SHA256:00",
        ] {
            assert_eq!(uris(bad), Err(bad.to_string()));
        }
        assert!(uris(&good.replace(" p_1", " ../p_1")).is_err());
    }

    #[test]
    fn a_package_file_name_gives_back_its_version_with_the_epoch() {
        let file = ArchiveFile {
            name: "libgmp10_2%3a6.2.1+dfsg1-1.1_amd64.deb".into(),
            bytes: 1,
            sha256: String::new(),
        };
        assert_eq!(
            file.package(),
            Some((
                "libgmp10".into(),
                "2:6.2.1+dfsg1-1.1".into(),
                "amd64".into()
            ))
        );
        let source = ArchiveFile {
            name: "coreboot_25.09.dsc".into(),
            ..file
        };
        assert_eq!(source.package(), None);
    }

    #[test]
    fn dependencies_keep_their_alternatives_and_lose_their_versions() {
        assert_eq!(
            depends("linux-base (>= 4.12~), a (= 1) | b:any, c [amd64]"),
            vec![
                vec!["linux-base".to_string()],
                vec!["a".to_string(), "b".to_string()],
                vec!["c".to_string()]
            ]
        );
        assert!(depends("").is_empty());
    }

    #[test]
    fn only_age_makes_a_list_stale_and_a_bad_signature_never_does() {
        let expired = "E: Release file for http://a/InRelease is expired (invalid since 15d 13h \
                       11min 9s). Updates for this repository will not be applied.";
        assert!(is_stale(expired));
        assert!(is_stale(&format!(
            "W: something else\n{expired}\n{expired}"
        )));
        assert!(!is_stale(&format!(
            "{expired}\nE: The repository is not signed."
        )));
        assert!(!is_stale("E: The repository is not signed."));
        assert!(!is_stale(""));
    }

    #[test]
    fn continuation_lines_belong_to_the_field_above() {
        let parsed = stanzas("A: 1\nB: x\n y\n\n\nA: 2\n");
        assert_eq!(parsed.len(), 2);
        assert_eq!(parsed[0]["B"], "x\ny");
        assert_eq!(parsed[1]["A"], "2");
    }

    #[test]
    fn only_download_lines_carry_a_percentage() {
        assert_eq!(
            download_percent("dlstatus:2:10.0858:Retrieving file 2 of 2"),
            Some(10.0858)
        );
        assert_eq!(download_percent("pmstatus:x:10.0:Installing"), None);
        assert_eq!(download_percent("dlstatus:2"), None);
    }
}
