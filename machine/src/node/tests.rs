//! CXL nodes of machines that are made up of files.

use super::*;
use proptest::prelude::*;

fn device(name: &str, node: u32, base: u64, bytes: u64) -> DaxDevice {
    DaxDevice {
        name: name.to_owned(),
        node,
        base,
        bytes,
    }
}

#[test]
fn the_device_in_the_firmware_s_window_is_taken() {
    let devices = [device("dax0.0", 1, 100, 50), device("dax1.0", 2, 300, 50)];
    let chosen = choose(&devices, NodeChoice::Auto, Some((290, 60)))
        .unwrap()
        .unwrap();
    assert_eq!(chosen.name, "dax1.0");
    assert!(choose(&devices, NodeChoice::Auto, Some((290, 59))).is_err());
    let several = choose(&devices, NodeChoice::Auto, None).unwrap_err();
    assert!(several.contains("--node"), "{several}");
    let chosen = choose(&devices, NodeChoice::Node(1), None)
        .unwrap()
        .unwrap();
    assert_eq!(chosen.name, "dax0.0");
}

#[test]
fn no_device_at_all_names_the_module_to_load() {
    assert!(
        choose(&[], NodeChoice::Auto, None)
            .unwrap_err()
            .contains("dax_hmem")
    );
}

#[test]
fn a_node_is_full_below_one_percent() {
    let directory = tempfile::tempdir().unwrap();
    let root = Root::at(directory.path());
    assert!(is_full(&root, 1));
    for (free, full) in [(900, false), (11, false), (10, true), (0, true)] {
        let text = format!("Node 1 MemTotal: 1000 kB\nNode 1 MemFree: {free} kB\n");
        root.create("sys/devices/system/node/node1/meminfo", &text)
            .unwrap();
        assert_eq!(is_full(&root, 1), full, "{free}");
    }
}

#[test]
fn only_whole_blocks_count() {
    assert_eq!(blocks_inside(128, 256, 128), 1..3);
    assert_eq!(blocks_inside(129, 256, 128), 2..3);
    assert_eq!(blocks_inside(129, 100, 128), 2..2);
}

proptest! {
    #[test]
    fn blocks_never_reach_out_of_their_range(base in 0u64..1 << 50, bytes in 0u64..1 << 44, shift in 27u32..32) {
        let size = 1u64 << shift;
        let blocks = blocks_inside(base, bytes, size);
        if !blocks.is_empty() {
            prop_assert!(blocks.start * size >= base);
            prop_assert!(blocks.end * size <= base + bytes);
        }
        prop_assert!(bytes < 2 * size || !blocks.is_empty());
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "([ -~]|\n){0,100}") {
        let _ = hexadecimal(&text);
    }
}
