//! Plans of a build: what is kept and what is asked for anew.

use super::*;

#[test]
fn a_kernel_older_than_6_12_is_refused_by_name() {
    for good in ["6.12.117+deb12-cloud-amd64", "6.12-amd64", "7.0.1-amd64"] {
        check_release(good).unwrap();
    }
    for bad in ["6.1.0-40-amd64", "5.99.1", "amd64", "6"] {
        assert!(check_release(bad).unwrap_err().to_string().contains(bad));
    }
}

#[test]
fn downloads_of_the_plan_stay_and_others_go() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path()).unwrap();
    let file = |name: &str| ArchiveFile {
        name: name.into(),
        bytes: 0,
        sha256: "".into(),
    };
    let plan = Plan {
        questions: String::new(),
        resolved_at_s: 0,
        kernels: vec![KernelPackages {
            flavour: Flavour::Generic,
            release: "6.12".into(),
            files: vec![file("image.deb")],
            origin: None,
        }],
        coreboot: vec![SourcePackage {
            suite: "unstable".into(),
            version: "25.09".into(),
            archive: String::new(),
            files: vec![file("coreboot.tar")],
        }],
        rootfs: vec![file("bash.deb")],
    };
    let downloads = cache.folder("downloads").unwrap();
    for name in ["image.deb", "coreboot.tar", "bash.deb", "old-image.deb"] {
        fs::write(downloads.join(name), "").unwrap();
    }
    plan.forget_other_files(&cache).unwrap();
    let mut left: Vec<_> = fs::read_dir(&downloads)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["bash.deb", "coreboot.tar", "image.deb"]);
}

#[test]
fn each_flavour_asks_for_its_own_packages_and_6_12_first() {
    assert_eq!(
        kernel_packages(Flavour::Cloud, "image"),
        ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"]
    );
    assert_eq!(
        kernel_packages(Flavour::Generic, "image"),
        ["linux-image-6.12-amd64", "linux-image-amd64"]
    );
}
