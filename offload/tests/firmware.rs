//! Firmware of chips with both cores: what remoteproc would refuse is refused, one field at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_offload::firmware::{Chip, Firmware, examine, write};

/// The firmware that the command writes, and what is in it.
fn written(chip: Chip, folder: &Path) -> (Vec<u8>, Firmware) {
    let path = folder.join("firmware.elf");
    let firmware = write(chip, &path).expect("a firmware for this chip");
    (fs::read(&path).expect("the firmware"), firmware)
}

fn put(data: &mut [u8], at: usize, word: u32) {
    data[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

fn word(data: &[u8], at: usize) -> usize {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes")) as usize
}

/// Each break of a good firmware, and what its refusal says.
fn breaks(data: &[u8], table: usize) -> Vec<(usize, u32, &'static str)> {
    let (segments, trace, handover) = (
        word(data, 28),
        table + word(data, table + 16),
        table + word(data, table + 20),
    );
    // e_ident, e_machine; a segment's p_offset, p_paddr, p_filesz, p_memsz; vectors; table and entries.
    let vectors = word(data, segments + 4);
    vec![
        (0, 0, "no ELF of 32 bits"),
        (4, 0x0101_0201, "not little-endian"),
        (16, 0x003e_0002, "not for Arm"),
        (segments + 4, 0x7fff_ffff, "not all in the file"),
        (segments + 12, 0x0070_0000, "the driver cannot load"),
        (segments + 16, 0x0001_0000, "smaller than its content"),
        (segments + 64 + 12, 0, "two segments are at"),
        (vectors, 0x2fff_0000, "the first stack"),
        (vectors + 4, 0x0000_0400, "the first instruction"),
        (table, 2, "of version 2"),
        (table + 8, 1, "reserved words"),
        (table + 4, 64, "incomplete"),
        (table + 16, 0x1000, "entry 0 is outside"),
        (trace, 7, "entry 0 is of no kind"),
        (trace + 4, 0x4000_0000, "cannot reach 0x40000000"),
        (handover + 4, 0, "entry 1 is of no kind"),
        (handover + 8, 0, "is loaded, too"),
    ]
}

#[test]
fn a_firmware_is_what_remoteproc_loads_and_each_fault_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    for chip in [Chip::Stm32mp1, Chip::Imx7d] {
        let (good, firmware) = written(chip, folder.path());
        for (at, value, reason) in breaks(&good, firmware.table_at) {
            let mut bad = good.clone();
            put(&mut bad, at, value);
            let refusal = examine(&bad, chip).expect_err(reason);
            assert!(refusal.contains(reason), "{chip:?} at {at:#x}: {refusal}");
        }
        // Wherever it breaks off: sections are at the end of the file.
        for end in [0, 51, 52, good.len() / 2, good.len() - 1] {
            assert!(examine(&good[..end], chip).is_err(), "{chip:?}: {end}");
        }
    }
}

#[test]
fn a_firmware_of_another_chip_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (stm32, _) = written(Chip::Stm32mp1, folder.path());
    let refusal = examine(&stm32, Chip::Imx7d).expect_err("another chip's");
    assert!(refusal.contains("the driver cannot load"), "{refusal}");
}

#[test]
#[ignore = "make test-full: configures a kernel of the two chips for each instruction set"]
fn the_module_that_hands_over_builds_against_the_distributions_source() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("linux/build.sh");
    // The unpacked source is there.
    let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache"),
        PathBuf::from,
    );
    let work = base.join("dormouse/offload-kernel");
    for set in ["a32", "t32"] {
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new(&script)
            .args([work.as_os_str(), folder.path().as_os_str(), set.as_ref()])
            .output()
            .expect("the script");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{set}: {said}");
        assert!(folder.path().join("dormouse_handover.ko").is_file());
    }
}
