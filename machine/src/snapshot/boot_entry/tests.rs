//! Which boot is to wake a machine, on made-up machines: each reason against the entry by itself.

use super::*;
use crate::node::DaxDevice;
use efi::tests::{entry, put};

const NUMBER: u16 = 7;

struct Case {
    _directory: tempfile::TempDir,
    root: Root,
    setup: Setup,
}

impl Case {
    /// A machine with an entry that has run once and is as it was set up.
    fn new() -> Case {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let setup = Setup::for_tests(
            DaxDevice::for_tests("dax0.0", 4 << 30),
            DaxDevice::for_tests("dax1.0", 8 << 30),
        );
        let case = Case {
            _directory: directory,
            root,
            setup,
        };
        let write = |path: &str, text: &str| case.root.create(path, text).unwrap();
        write("proc/sys/kernel/osrelease", "6.12\n");
        write("sys/firmware/memmap/0/start", "0x0\n");
        write("sys/firmware/memmap/0/end", "0xffff\n");
        write("sys/firmware/memmap/0/type", "System RAM\n");
        write(PROGRAM, "program");
        write("boot/efi/EFI/dormouse/wake.efi", "image");
        put(&case.root, "Boot0007", &entry(IMAGE_FOR_FIRMWARE));
        put(&case.root, "BootOrder", &[3, 0]);
        case.record(|_| ());
        case.left(|_| ());
        case
    }

    fn record(&self, change: impl FnOnce(&mut Record)) {
        let mut record = Record {
            number: NUMBER,
            id: "1d".to_owned(),
            file: "/boot/efi/EFI/dormouse/wake.efi".into(),
            file_digest: hexadecimal(xxh64(b"image")),
            kernel: hexadecimal(facts::kernel_digest(&self.root)),
            settings: settings_digest(&self.root),
        };
        change(&mut record);
        let text = toml::to_string(&record).unwrap();
        self.root.create(FILE, &text).unwrap();
    }

    fn left(&self, change: impl FnOnce(&mut Left)) {
        let mut left = Left {
            mark: Mark::read("memory 0x100000000 0x40000000\n"),
            id: "1d".to_owned(),
            kernel: hexadecimal(facts::kernel_digest(&self.root)),
            map: hexadecimal(facts::firmware_map_digest(&self.root)),
            said: "no sleep image: dax0.0 is empty".to_owned(),
        };
        change(&mut left);
        efi::remove_mark(&self.root).unwrap();
        efi::set_mark(&self.root, &left.text()).unwrap();
    }

    fn waker(&self) -> Waker {
        waker(&self.root, &self.setup)
    }

    /// The usual boot wakes, for a reason with this word.
    fn is_refused_for(&self, word: &str) {
        match self.waker() {
            Waker::NotTheEntry(why) => assert!(why.contains(word), "{why}"),
            other => panic!("{other:?} in place of {word}"),
        }
    }
}

#[test]
fn an_entry_that_has_run_and_is_as_it_was_set_up_wakes_the_machine() {
    let case = Case::new();
    assert_eq!(case.waker(), Waker::Entry(NUMBER));
    assert_eq!(case.waker().describe(), "the boot entry Boot0007");
    std::fs::remove_file(case.root.path(FILE)).unwrap();
    assert_eq!(case.waker(), Waker::UsualBoot);
    case.root.create(FILE, "number = 7\n").unwrap();
    case.is_refused_for("cannot be judged");
}

#[test]
fn an_entry_of_another_kernel_or_other_settings_is_not_used() {
    let case = Case::new();
    case.root
        .create("proc/sys/kernel/osrelease", "6.13\n")
        .unwrap();
    case.is_refused_for("another kernel");
    let case = Case::new();
    case.root
        .create(cxl_regions::FILE, "region = []\n")
        .unwrap();
    case.is_refused_for("CXL regions");
    let case = Case::new();
    case.root
        .create(seal::FILE, "key = \"key-file\"\n")
        .unwrap();
    case.is_refused_for("other settings");
    let case = Case::new();
    case.root.create(PROGRAM, "updated").unwrap();
    case.is_refused_for("dormouse-wake");
}

#[test]
fn an_image_or_entry_that_is_not_the_one_that_was_made_is_not_used() {
    let case = Case::new();
    let file = "boot/efi/EFI/dormouse/wake.efi";
    case.root.create(file, "another").unwrap();
    case.is_refused_for("than was made");
    std::fs::remove_file(case.root.path(file)).unwrap();
    case.is_refused_for("lacks");
    let case = Case::new();
    put(&case.root, "Boot0007", &entry(r"\EFI\debian\grubx64.efi"));
    case.is_refused_for("not among firmware's (Boot0007)");
    let case = Case::new();
    put(&case.root, "BootOrder", &[7, 0, 3, 0]);
    case.is_refused_for("boot order");
}

#[test]
fn the_last_run_of_the_entry_must_have_seen_this_machine() {
    let case = Case::new();
    efi::remove_mark(&case.root).unwrap();
    case.is_refused_for("reboot once");
    for (word, change) in [
        (
            "reboot once",
            (|left| left.id = "1e".to_owned()) as fn(&mut Left),
        ),
        ("another kernel", |left| left.kernel = "0".to_owned()),
        ("memory map", |left| left.map = "0".to_owned()),
        ("dax0.0", |left| left.mark.memory.clear()),
        ("no snapshot", |left| {
            left.mark.snapshot = Some("the kernel takes no snapshot".to_owned());
        }),
        ("saved-digest", |left| {
            left.said = "cold boot: saved-digest: x".to_owned();
        }),
    ] {
        case.left(change);
        case.is_refused_for(word);
    }
    case.left(|_| ());
    assert_eq!(case.waker(), Waker::Entry(NUMBER));
}

#[test]
fn what_the_entry_leaves_fits_into_firmware_s_memory() {
    let left = Left {
        mark: Mark::read("memory 0x100000000 0x40000000\n"),
        id: "1d".to_owned(),
        kernel: "k".to_owned(),
        map: "m".to_owned(),
        said: "a\n".repeat(5000),
    };
    let text = left.text();
    assert!(text.len() < 1024, "{}", text.len());
    assert_eq!(Left::read(&text).id, "1d");
}
