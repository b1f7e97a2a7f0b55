//! XXH64 against an independent implementation, and the fused copy against both.

use dormouse_image::digest::{CopyMethod, Xxh64, copy_digest, xxh64};
use proptest::prelude::*;
use xxhash_rust::xxh64::xxh64 as oracle;

#[test]
fn xxh64_has_the_published_values() {
    assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
    assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
}

#[test]
fn every_length_up_to_several_stripes_agrees_with_the_oracle() {
    let data: Vec<u8> = (0..300u32).map(|i| ((i * i) >> 3) as u8).collect();
    for length in 0..data.len() {
        assert_eq!(
            xxh64(&data[..length]),
            oracle(&data[..length], 0),
            "{length} bytes"
        );
    }
}

proptest! {
    #[test]
    fn any_split_into_updates_gives_the_digest_of_the_whole(
        data in prop::collection::vec(any::<u8>(), 0..2000),
        cuts in prop::collection::vec(0usize..2000, 0..12),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(data.len())).collect();
        cuts.sort_unstable();
        cuts.push(data.len());
        let (mut hash, mut from) = (Xxh64::new(), 0);
        for cut in cuts {
            hash.update(&data[from..cut]);
            from = cut;
        }
        prop_assert_eq!(hash.finish(), oracle(&data, 0));
    }
}

/// Zeroed memory that starts `skew` bytes after a 64-byte line.
fn skewed(memory: &mut Vec<u8>, skew: usize, bytes: usize) -> &mut [u8] {
    *memory = vec![0; bytes + 64 + skew];
    let start = memory.as_ptr().align_offset(64) + skew;
    &mut memory[start..start + bytes]
}

#[test]
fn each_copy_method_copies_like_memcpy_and_digests_like_the_oracle() {
    for method in CopyMethod::ALL {
        if !method.is_supported() {
            eprintln!("skipped: this CPU has no {}", method.name());
            continue;
        }
        // Lengths around lines and pages; skewed and odd ones take the slow path.
        for bytes in [0, 1, 8, 63, 64, 65, 128, 4032, 4096, 4160, 8192, 1 << 20] {
            for (dst_skew, src_skew) in [(0, 0), (0, 1), (0, 8), (8, 0), (1, 3)] {
                let (mut from, mut to) = (Vec::new(), Vec::new());
                let src = skewed(&mut from, src_skew, bytes);
                src.iter_mut()
                    .zip(0u32..)
                    .for_each(|(byte, i)| *byte = (i.wrapping_mul(0x9e37) >> 7) as u8);
                let dst = skewed(&mut to, dst_skew, bytes);
                let mut hash = Xxh64::new();
                copy_digest(method, dst, src, &mut hash);
                assert_eq!(dst, src, "{} {bytes}", method.name());
                assert_eq!(hash.finish(), oracle(src, 0), "{} {bytes}", method.name());
            }
        }
    }
}

#[test]
fn copies_in_pieces_add_up_to_the_digest_of_the_whole() {
    let data: Vec<u8> = (0..5 * 4096u32).map(|i| ((i * 31) >> 4) as u8).collect();
    for method in CopyMethod::ALL
        .into_iter()
        .filter(|method| method.is_supported())
    {
        let mut hash = Xxh64::new();
        let mut memory = Vec::new();
        for piece in [0..4096, 4096..4 * 4096, 4 * 4096..5 * 4096] {
            let dst = skewed(&mut memory, 0, piece.len());
            copy_digest(method, dst, &data[piece.clone()], &mut hash);
            assert_eq!(dst, &data[piece]);
        }
        assert_eq!(hash.finish(), oracle(&data, 0), "{}", method.name());
    }
}

#[test]
fn a_copy_writes_nothing_outside_its_destination() {
    for method in CopyMethod::ALL
        .into_iter()
        .filter(|method| method.is_supported())
    {
        let mut memory = Vec::new();
        let all = skewed(&mut memory, 0, 3 * 4096);
        all.fill(0xee);
        let src = vec![0x11; 4096];
        copy_digest(method, &mut all[4096..8192], &src, &mut Xxh64::new());
        assert!(
            all[..4096]
                .iter()
                .chain(&all[8192..])
                .all(|&byte| byte == 0xee)
        );
    }
}
