//! Tests of waking that need no kernel: the reasons, sealed images, the mark of a boot.

use super::*;

/// A boot whose first run had nothing to decide.
fn boot(root: &Root) -> Ended {
    let _ = fs::remove_file(root.path(WAKE_RAN));
    run(root, Place::AfterUdev)
}

#[test]
fn the_run_before_udev_leaves_no_trace_where_there_is_no_head_yet() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    assert!(matches!(run(&root, Place::BeforeUdev), Ended::Later(_)));
    assert!(!root.exists(WAKE_RAN));
    assert!(matches!(run(&root, Place::AfterUdev), Ended::Nothing(_)));
    assert_eq!(
        Mark::read(&root.read(WAKE_RAN).unwrap()).place,
        "after-udev"
    );
    for place in [Place::BeforeUdev, Place::AfterUdev] {
        assert!(matches!(run(&root, place), Ended::NotThisRun(_)));
    }
}

#[test]
fn a_cold_boot_has_the_reason_s_name_and_sentence_on_one_line() {
    let ended = Ended::ColdBoot {
        refusal: Refusal {
            reason: Reason::MEMORY_MAP,
            detail: 16,
        },
        what: String::new(),
    };
    let line = ended.line();
    assert!(
        line.starts_with("cold boot: memory-map: the firmware's"),
        "{line}"
    );
    assert!(line.ends_with("(detail 0x10)"), "{line}");
}

#[test]
fn a_machine_without_persistent_memory_boots_and_is_marked_as_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    assert!(matches!(boot(&root), Ended::Nothing(_)));
    assert!(root.exists(WAKE_RAN));
}

#[test]
fn a_boot_leaves_which_persistent_memory_it_saw() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let mark = || Mark::read(&root.read(WAKE_RAN).unwrap());
    boot(&root);
    assert_eq!(mark().memory, []);
    let region = root.path("sys/bus/nd/devices/region1");
    fs::create_dir_all(&region).unwrap();
    fs::write(region.join("resource"), "0x140000000\n").unwrap();
    fs::write(region.join("size"), "268435456\n").unwrap();
    boot(&root);
    assert_eq!(mark().memory, [(0x1_4000_0000, 256 << 20)]);
    assert!(mark().has_seen(0x1_4020_0000, 254 << 20));
}

/// A head in a file with a sealed image of three pages, and the key file's machine.
struct Sealed {
    directory: tempfile::TempDir,
    head: Head,
    header: Box<Header>,
}

const HEAD_BYTES: u64 = 4 << 20;
const NODE_BYTES: u64 = 64 << 20;

fn sealed_facts() -> Facts {
    use dormouse_image::check::Geometry;
    use dormouse_image::snapshot::Machine;
    let geometry = Geometry::new(8 << 30, HEAD_BYTES, HEAD_BYTES, &[(1 << 20, 1 << 30)]).unwrap();
    let machine = Machine {
        node_base: 16 << 30,
        node_bytes: NODE_BYTES,
        present_pages: 100,
        ..Machine::default()
    };
    Facts::new(&geometry, machine)
}

impl Sealed {
    fn new() -> Sealed {
        use dormouse_image::digest::{Xxh64, xxh64};
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let settings = Settings::new(Source::KeyFile);
        settings.write(&root).unwrap();
        write_key(&settings, &root, 7);
        let path = directory.path().join("head");
        let file = fs::File::create(&path).unwrap();
        file.set_len(HEAD_BYTES).unwrap();
        let mut head = Head::open(&path, HEAD_BYTES, true).unwrap();
        let mut header = sealed_facts().new_header(None).unwrap();

        let words = vec![5u8; header.cxl_bitmap_bytes as usize];
        for offset in [header.cxl_bitmap_offset, header.user_table_offset] {
            head.store(offset, &words, &mut Xxh64::new());
        }
        header.cxl_bitmap_digest = xxh64(&words);
        header.user_table_digest = xxh64(&words);
        let key = seal::Key::for_sleep(&root, &settings, None).unwrap();
        let mut text = Vec::new();
        let plain = plain();
        let unsigned = key
            .sealer()
            .unwrap()
            .seal_stream(&plain[..], &mut text, 2)
            .unwrap();
        let mut hash = Xxh64::new();
        head.store(header.data_offset, &text, &mut hash);
        header.saved_digest = hash.finish();
        header.saved_pages = 3;
        header.request_pages = 3;
        let tags = unsigned.sealed().table.clone();
        head.store(
            header.data_offset + text.len() as u64,
            &tags,
            &mut Xxh64::new(),
        );
        seal::finish(&mut header, unsigned, &words, &words);
        header.state = State::SUSPENDED.0;
        Sealed {
            directory,
            head,
            header,
        }
    }

    fn root(&self) -> Root {
        Root::at(self.directory.path())
    }

    /// What a wake makes of it: the snapshot, or the reason.
    fn open(&self) -> Result<Vec<u8>, Reason> {
        let root = self.root();
        let window = self.head.device().read_words(self.header.data_offset);
        let settings = Settings::read(&root);
        let device = self.head.device();
        let opened = open_seal(&root, device, &self.header, &window, &settings)
            .map_err(|refused| refused.0.reason)?;
        let (opener, _) = opened.expect("it is sealed");
        let mut back = Vec::new();
        let from = FromHead::new(device, &self.header);
        opener
            .open_stream(from, &mut back, 2)
            .map_err(|error| seal_refused(error).0.reason)?;
        Ok(back)
    }

    fn flip(&mut self, offset: u64) {
        use dormouse_image::digest::Xxh64;
        let mut byte = [0];
        self.head.device().read(offset, &mut byte);
        self.head.store(offset, &[byte[0] ^ 1], &mut Xxh64::new());
    }
}

fn plain() -> Vec<u8> {
    (0..3 * 4096u32).map(|at| (at / 7) as u8).collect()
}

fn write_key(settings: &Settings, root: &Root, byte: u8) {
    use std::os::unix::fs::PermissionsExt;
    let path = settings.key_path(root);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_sealed_image_opens_with_its_key_and_holds_no_plain_text() {
    let sealed = Sealed::new();
    assert_eq!(sealed.open().unwrap(), plain());
    let mut stored = vec![0; plain().len()];
    let device = sealed.head.device();
    device.read(sealed.header.data_offset, &mut stored);
    assert!(
        stored
            .chunks(64)
            .zip(plain().chunks(64))
            .all(|(a, b)| a != b)
    );
}

#[test]
fn each_part_of_a_sealed_image_is_refused_when_a_bit_of_it_changes() {
    let header = Sealed::new().header;
    for offset in [
        header.cxl_bitmap_offset,
        header.user_table_offset + 9,
        header.data_offset + 5000,
        header.encryption.tag_table_offset,
    ] {
        let mut sealed = Sealed::new();
        sealed.flip(offset);
        assert_eq!(sealed.open().unwrap_err(), Reason::SEAL, "{offset}");
    }
    type Change = fn(&mut Header);
    let changes: [(&str, Change); 5] = [
        ("kernel", |h| h.snapshot.kernel_digest ^= 1),
        ("present pages", |h| h.snapshot.present_pages ^= 1),
        ("user check", |h| h.user_check ^= 1),
        ("salt", |h| h.encryption.nonce[0] ^= 1),
        ("counter", |h| h.encryption.counter ^= 1),
    ];
    for (name, change) in changes {
        let mut sealed = Sealed::new();
        change(&mut sealed.header);
        assert_eq!(sealed.open().unwrap_err(), Reason::SEAL, "{name}");
    }
}

#[test]
fn a_key_that_is_another_one_or_missing_is_named() {
    let sealed = Sealed::new();
    let settings = Settings::new(Source::KeyFile);
    write_key(&settings, &sealed.root(), 8);
    assert_eq!(sealed.open().unwrap_err(), Reason::WRONG_KEY);
    fs::remove_file(settings.key_path(&sealed.root())).unwrap();
    assert_eq!(sealed.open().unwrap_err(), Reason::KEY);
    fs::remove_file(sealed.root().path(seal::FILE)).unwrap();
    assert_eq!(sealed.open().unwrap_err(), Reason::KEY);
    fs::write(sealed.root().path(seal::FILE), "key = 7").unwrap();
    assert_eq!(sealed.open().unwrap_err(), Reason::KEY);
}

#[test]
fn an_image_in_plain_text_is_refused_where_images_are_sealed() {
    let mut sealed = Sealed::new();
    sealed.header.flags = 0;
    sealed.header.encryption = Default::default();
    assert_eq!(sealed.open().unwrap_err(), Reason::NOT_SEALED);
}

#[test]
fn a_boot_leaves_what_it_would_open_images_with() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    let mark = || Mark::read(&root.read(WAKE_RAN).unwrap());
    boot(&root);
    assert_eq!(mark().seal, seal::NO_SEAL);
    let settings = Settings::new(Source::KeyFile);
    settings.write(&root).unwrap();
    boot(&root);
    assert!(mark().trouble.is_some(), "the key is missing");
    write_key(&settings, &root, 1);
    boot(&root);
    let first = mark();
    assert!(first.trouble.is_none() && first.seal != seal::NO_SEAL);
    write_key(&settings, &root, 2);
    boot(&root);
    assert_ne!(mark().seal, first.seal);
}
