//! The Debian packages in a clean Debian system, in a chroot: what apt does, without a machine.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use dormouse_tests::test_folder;

use super::built::{Packages, built, newer, script, succeeds};

/// What changes by itself when any package comes and goes; the keys are those that DKMS makes with
/// the first module that it builds.
pub const NOT_COMPARED: &str = "/proc /sys /dev /run /tmp /root /mnt /var/tmp /var/log /var/cache \
     /var/lib/apt /var/lib/dpkg /var/lib/dkms/mok.key /var/lib/dkms/mok.pub /var/lib/redis /var/lib/systemd/timers /var/lib/systemd/timesync \
     /etc/ld.so.cache /etc/systemd/network";

/// A line of shell that lists every file but those.
pub fn list_files() -> String {
    let pruned: Vec<String> = NOT_COMPARED
        .split_whitespace()
        .map(|path| format!("-path {path}"))
        .collect();
    format!(
        "find / -xdev \\( {} \\) -prune -o -print | sort; cat /etc/passwd /etc/group",
        pruned.join(" -o ")
    )
}

/// Lines that only one of two lists has.
pub fn difference(before: &str, after: &str) -> Vec<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, after) = (lines(before), lines(after));
    before.symmetric_difference(&after).cloned().collect()
}

const PACKAGES: [&str; 4] = [
    "dormouse",
    "dormouse-dkms",
    "dormouse-dpm-dkms",
    "dormouse-firmware",
];
/// As DKMS names them.
const MODULES: [&str; 2] = ["dormouse", "dormouse-dpm"];

struct Chroot {
    root: PathBuf,
}

impl Chroot {
    /// A clean system of its own.
    fn new(name: &str) -> Self {
        let root = test_folder(name);
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("it can be made");
        let base = script("base.sh", &[]);
        succeeds(
            Command::new("tar")
                .arg("-xf")
                .arg(base)
                .arg("-C")
                .arg(&root),
        );
        Self { root }
    }

    /// Runs a line of shell in it; what it printed. Its mounts go with it.
    fn run(&self, line: &str) -> String {
        let inside = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
                      exec chroot \"$0\" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
                      DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root sh -ec \"$1\"";
        succeeds(
            Command::new("unshare")
                .args(["--mount", "sh", "-ec", inside])
                .arg(&self.root)
                .arg(line),
        )
    }

    fn copy_in(&self, packages: &Packages, to: &str) {
        let folder = self.root.join("root").join(to);
        fs::create_dir_all(&folder).expect("it can be made");
        for name in PACKAGES {
            let deb = packages.deb(name);
            let target = folder.join(deb.file_name().expect("a file"));
            fs::copy(&deb, target).expect("it can be copied");
        }
    }
}

impl Drop for Chroot {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// On stock firmware the boot's initial RAM disk gives the memory back.
fn wakes_from_the_initial_ram_disk(chroot: &Chroot, kernel: &str) {
    chroot.run(&format!("update-initramfs -c -k {kernel} -b /tmp"));
    let listed = chroot.run(&format!("lsinitramfs /tmp/initrd.img-{kernel}"));
    for file in [
        "usr/bin/dormouse-wake".to_owned(),
        "usr/bin/dormouse-wake-hook".to_owned(),
        "scripts/init-premount/dormouse".to_owned(),
        format!("usr/lib/modules/{kernel}/kernel/drivers/dax/hmem/dax_hmem.ko"),
        format!("usr/lib/modules/{kernel}/kernel/drivers/nvdimm/libnvdimm.ko"),
        // What modprobe runs to load that where ndctl is installed, as it is here.
        "usr/bin/ndctl".to_owned(),
    ] {
        let is_there = listed.lines().any(|line| {
            // A module may be compressed.
            line.strip_prefix(file.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        assert!(is_there, "{file} is not in the initial RAM disk\n{listed}");
    }
}

#[test]
#[ignore = "make test-packages: it needs root and the packages"]
fn packages_install_upgrade_and_purge_without_a_trace() {
    let (first, next) = (built(), newer());
    let chroot = Chroot::new("packages-chroot");
    chroot.copy_in(&first, "first");
    chroot.copy_in(&next, "next");
    let before = chroot.run(&list_files());

    chroot.run("cd /root/first && apt-get install -y ./*.deb");
    assert!(chroot.run("dormouse --version").starts_with("dormouse "));
    let kernel = chroot.run("ls /lib/modules").trim().to_owned();
    let installed =
        |module: &str, version: &str| format!("{module}/{version}, {kernel}, x86_64: installed");
    let status = chroot.run("dkms status");
    for module in MODULES {
        assert!(
            status.contains(&installed(module, &first.version())),
            "{status}"
        );
    }
    for module in ["dormouse", "dormouse_dpm"] {
        let magic = chroot.run(&format!("modinfo -k {kernel} -F vermagic {module}"));
        assert!(magic.starts_with(&kernel), "{magic}");
    }
    wakes_from_the_initial_ram_disk(&chroot, &kernel);
    let enabled = "find /etc/systemd/system -name '*dormouse*' -o -lname '*dormouse*'";
    assert_eq!(chroot.run(enabled), "", "no unit is enabled");
    chroot.run("systemctl preset dormouse-suspend.service dormouse-home.service");
    assert_eq!(chroot.run(enabled), "", "the preset enables none");
    assert_eq!(chroot.run("stat -c %a /var/lib/dormouse").trim(), "700");

    chroot.run(
        "systemctl enable dormouse-suspend.service dormouse-home.service
         systemctl enable dormouse-process@cache.service
         echo DORMOUSE_RATE=1G >>/etc/dormouse/dormouse.conf
         echo COMMAND=/bin/true >/etc/dormouse/process/cache.conf",
    );
    let alias = "readlink -f /etc/systemd/system/systemd-suspend.service";
    let suspend = "/usr/lib/systemd/system/dormouse-suspend.service";
    assert_eq!(chroot.run(alias).trim(), suspend);

    chroot.run("cd /root/next && apt-get install -y ./*.deb");
    let status = chroot.run("dkms status");
    for module in MODULES {
        assert!(
            status.contains(&installed(module, &next.version())),
            "{status}"
        );
        assert!(
            !status.contains(&installed(module, &first.version())),
            "{status}"
        );
    }
    assert_eq!(chroot.run(alias).trim(), suspend, "it is still enabled");
    chroot.run("grep -q DORMOUSE_RATE=1G /etc/dormouse/dormouse.conf");

    chroot.run(&format!("apt-get remove -y {}", PACKAGES.join(" ")));
    chroot.run("test ! -L /etc/systemd/system/systemd-suspend.service");
    chroot.run("test -e /etc/dormouse/dormouse.conf && test -d /var/lib/dormouse");
    chroot.run(&format!("dpkg --purge {}", PACKAGES.join(" ")));
    let after = chroot.run(&list_files());
    assert_eq!(difference(&before, &after), Vec::<String>::new());
}
