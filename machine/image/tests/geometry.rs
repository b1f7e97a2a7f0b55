//! Boundaries of what a checker may believe about its own machine.

use dormouse_image::Reason;
use dormouse_image::check::Geometry;

const BLOCK: u64 = 128 << 20;
const BASE: u64 = 4 << 30;
const LIMIT: u64 = 1 << 52;

fn check(cxl: (u64, u64, u64), ranges: &[(u64, u64)]) -> Reason {
    Geometry::new(cxl.0, cxl.1, cxl.2, ranges).map_or_else(|reason| reason, |g| g.check())
}

#[test]
fn windows_are_accepted_up_to_their_boundaries() {
    let table = [
        ((BASE, BLOCK, BLOCK), Reason::OK),
        ((BASE, BLOCK + 4096, BLOCK), Reason::OK),
        ((BASE, BLOCK * 8, BLOCK * 8), Reason::OK),
        ((LIMIT - BLOCK, BLOCK, BLOCK), Reason::OK),
        ((BASE, 0, 0), Reason::NOT_READY),
        ((BASE, BLOCK, 0), Reason::CXL_SIZE),
        ((BASE, BLOCK, BLOCK * 2), Reason::CXL_SIZE), // reserved part above the window
        ((BASE, BLOCK * 2, BLOCK + 4096), Reason::CXL_SIZE), // ends inside a memory block
        ((BASE, BLOCK + 1, BLOCK), Reason::CXL_SIZE),
        ((BASE + 4096, BLOCK, BLOCK), Reason::CXL_SIZE),
        ((LIMIT - BLOCK, BLOCK + 4096, BLOCK), Reason::CXL_SIZE),
        ((LIMIT, BLOCK, BLOCK), Reason::CXL_SIZE),
        ((0u64.wrapping_sub(BLOCK), BLOCK, BLOCK), Reason::CXL_SIZE), // ends at 2^64
        ((BASE, 0u64.wrapping_sub(4096), BLOCK), Reason::CXL_SIZE),
    ];
    for (window, expected) in table {
        assert_eq!(check(window, &[(0, 0x1000)]), expected, "{window:x?}");
    }
}

#[test]
fn memory_maps_are_accepted_up_to_their_boundaries() {
    let end = BASE + BLOCK;
    let table: &[(&[(u64, u64)], Reason)] = &[
        (&[(0, 0x1000)], Reason::OK),
        (&[(0, BASE)], Reason::OK), // touches the window
        (&[(0, 0x1000), (end, 0x1000)], Reason::OK),
        (&[(0, 0x1000), (0x1000, 0x1000)], Reason::OK), // touching ranges
        (&[(LIMIT - 0x1000, 0x1000)], Reason::OK),
        (&[], Reason::NOT_READY),
        (&[(0, 0)], Reason::MEMORY_MAP),
        (&[(0, 0x800)], Reason::MEMORY_MAP),
        (&[(0x800, 0x1000)], Reason::MEMORY_MAP),
        (&[(0, 0x2000), (0x1000, 0x2000)], Reason::MEMORY_MAP), // overlap
        (&[(0x2000, 0x1000), (0, 0x1000)], Reason::MEMORY_MAP), // descending
        (&[(0, BASE + 0x1000)], Reason::MEMORY_MAP),            // into the window
        (&[(end - 0x1000, 0x1000)], Reason::MEMORY_MAP),
        (&[(0, end * 2)], Reason::MEMORY_MAP), // around the window
        (&[(LIMIT - 0x1000, 0x2000)], Reason::MEMORY_MAP),
        (&[(0xffff_ffff_ffff_f000, 0x1000)], Reason::MEMORY_MAP), // ends at 2^64
        (&[(0x1000, 0xffff_ffff_ffff_f000)], Reason::MEMORY_MAP), // wraps to 0
    ];
    for (ranges, expected) in table {
        assert_eq!(
            check((BASE, BLOCK, BLOCK), ranges),
            *expected,
            "{ranges:x?}"
        );
    }
    let many: Vec<(u64, u64)> = (0..65).map(|i| (i * 0x2000, 0x1000)).collect();
    assert_eq!(check((BASE, BLOCK, BLOCK), &many[..64]), Reason::OK);
    assert_eq!(check((BASE, BLOCK, BLOCK), &many), Reason::MEMORY_MAP);
}

#[test]
fn contains_takes_touching_ranges_for_one_run() {
    let ranges = [(0x1000, 0x1000), (0x2000, 0x2000), (0x6000, 0x1000)];
    let geometry = Geometry::new(BASE, BLOCK, BLOCK, &ranges).unwrap();
    let inside = [
        (0x1000, 0x1000),
        (0x1000, 0x3000), // across the seam
        (0x1fff, 2),
        (0x3fff, 1),
        (0x6000, 0x1000),
    ];
    let outside = [
        (0x1000, 0),
        (0, 0x1000),
        (0xfff, 2),
        (0x3fff, 2),      // into the hole
        (0x1000, 0x6000), // over the hole
        (0x4000, 0x1000),
        (0x5fff, 1),
        (0x6000, 0x1001),
        (0x7000, 1),
        (0x1000, u64::MAX), // wraps
        (u64::MAX, 1),
    ];
    for (ranges, expected) in [(&inside[..], true), (&outside[..], false)] {
        for &(base, bytes) in ranges {
            let found = geometry.contains(base, bytes);
            assert_eq!(found, expected, "{base:#x}+{bytes:#x}");
        }
    }
}

#[test]
fn the_layout_fits_its_geometry_or_there_is_none() {
    let header = |dram_bytes: u64, cxl_bytes: u64, reserved: u64| {
        let geometry = Geometry::new(1 << 44, cxl_bytes, reserved, &[(0, dram_bytes)]).unwrap();
        geometry.new_header(None)
    };
    // One page of DRAM: a word of bitmap. 128 MiB of CXL: 4 KiB of it.
    let small = header(4096, BLOCK, BLOCK);
    assert_eq!(
        (small.dram_bitmap_offset, small.dram_bitmap_bytes),
        (12288, 8)
    );
    assert_eq!(
        (small.cxl_bitmap_offset, small.cxl_bitmap_bytes),
        (16384, 4096)
    );
    assert_eq!(small.data_offset, 24576);
    // 65 pages need two words.
    assert_eq!(header(65 * 4096, BLOCK, BLOCK).dram_bitmap_bytes, 16);
    // 8 TiB of DRAM: 256 MiB of bitmap and three pages before it do not fit into 256 MiB.
    assert_eq!(header(8 << 40, 1 << 30, 2 * BLOCK).data_offset, 0);
    let large = header(8 << 40, 1 << 30, 3 * BLOCK);
    assert_eq!(large.dram_bitmap_bytes, 256 << 20);
    assert!(large.data_offset <= 3 * BLOCK && large.data_offset > 2 * BLOCK);
}
