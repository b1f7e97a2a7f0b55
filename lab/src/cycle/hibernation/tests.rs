//! What the kernel logs of a hibernation, and the times in it.

use super::*;

#[test]
fn the_parts_of_the_way_down_are_read_from_the_kernel_s_log() {
    let mut down = Down {
        requested_ns: 1_000_000_000,
        off_ns: Some(9_000_000_000),
        ..Down::default()
    };
    // Host seconds, line: lines logged while the console sleeps arrive when it is awake again.
    for (at_s, line) in [
        (
            2,
            "[   10.000000] PM: hibernation: Preallocating image memory",
        ),
        (
            3,
            "[   11.000000] PM: hibernation: Allocated 409600 kbytes in 1.00 seconds (409.60 MB/s)",
        ),
        (
            4,
            "[   12.000000] printk: Suspending console(s) (use no_console_suspend to debug)",
        ),
        (6, "[   12.500000] PM: hibernation: Creating image:"),
        (
            6,
            "[   12.500100] PM: hibernation: Need to copy 50000 pages",
        ),
        (
            6,
            "[   12.750000] PM: hibernation: Image created (49000 pages copied, 1000 zero pages)",
        ),
        (
            6,
            "[   12.600000] PM: Compressing and saving image data (49100 pages)...",
        ),
        (
            8,
            "[   14.500000] PM: Image size after compression: 164214 kbytes",
        ),
        (8, "[   14.600000] PM: Image saving done"),
    ] {
        down.receive(line, at_s * 1_000_000_000);
    }
    let times = down.times();
    assert_eq!(times.total, Some(8.0));
    assert_eq!(times.shrink, Some(1.0));
    assert_eq!(times.copy, Some(0.25));
    assert_eq!(times.devices, Some(1.75));
    assert_eq!(times.write, Some(2.0));
    assert_eq!(times.off, Some(1.0));
    assert_eq!(down.pages, Some(49000));
    assert_eq!(down.image_bytes, Some(164214 << 10));
}

#[test]
fn both_kinds_of_image_are_seen_to_be_read() {
    for line in [
        "[    4.1] PM: Loading and decompressing image data (777 pages)...",
        "[    4.1] PM: Loading image data pages (777 pages)...",
    ] {
        let mut up = Up::default();
        up.receive(&Signal {
            at_ns: 5,
            what: What::Console(line.to_owned()),
        });
        assert_eq!((up.load.begin_ns, up.pages), (Some(5), Some(777)), "{line}");
    }
}

#[test]
fn a_cold_boot_has_init_s_reason_and_the_kernel_s() {
    let console = "[ 4.1] PM: hibernation: resume from hibernation\n\
                       [ 4.2] PM: hibernation: Image mismatch: memory size\n\
                       [ 4.3] PM: hibernation: Failed to load image, recovering.\n\
                       [ 4.4] dormouse-guest: no hibernation image: the kernel did not take it\r\n";
    let reason = cold_boot_reason(console).unwrap();
    assert!(
        reason.starts_with("the kernel did not take it: "),
        "{reason}"
    );
    assert!(reason.contains("Image mismatch: memory size"), "{reason}");
    let plain = "dormouse-guest: no hibernation image: the swap area's signature is \"x\"\n";
    assert_eq!(
        cold_boot_reason(plain).as_deref(),
        Some("the swap area's signature is \"x\"")
    );
    assert_eq!(cold_boot_reason("agent started"), None);
}

#[test]
fn without_the_kernel_s_word_nothing_counts_as_resumed() {
    let options = Hibernation {
        swap_on: crate::cycle::hibernation_options::SwapOn::Disk,
        swap_out: false,
        compressor: Compressor::None,
        image_size: None,
    };
    let sleep = HibernationSleep::new(&options, 1 << 30);
    assert!(sleep.proof("PM: Image loading done\n").is_err());
    assert!(sleep.proof("PM: hibernation: hibernation exit\n").is_err());
    let both = "PM: Image loading done\n[ 1.0] PM: hibernation: hibernation exit\n";
    assert!(sleep.proof(both).is_ok());
}

#[test]
fn a_time_stamp_is_seconds_and_microseconds() {
    assert_eq!(stamp_ns("[   12.345678] x"), Some(12_345_678_000));
    for line in ["x", "[x.345678] x", "[1.5] x", "[1", ""] {
        assert_eq!(stamp_ns(line), None, "{line}");
    }
}
