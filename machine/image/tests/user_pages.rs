//! Digests of user pages: what they find, and what they do not.

use dormouse_image::check::{Header, PAGE_BYTES};
use dormouse_image::edit::{Recipe, newest, read_header};
use dormouse_image::user_pages::{GROUP_BYTES, covered, digest};
use dormouse_image::{Reason, SleepImage, UserCheck};
use proptest::prelude::*;

/// Pages that the recipe occupies behind the image's own parts: 64 to 68 are of group 1.
fn window(user_check: UserCheck) -> (Vec<u8>, Box<Header>) {
    let mut recipe = Recipe::small();
    recipe.user_check = user_check;
    let window = recipe
        .suspended(|frame, page| page.fill(frame as u8))
        .unwrap();
    let header = read_header(&window, newest(&window).unwrap()).unwrap();
    (window, header)
}

fn verdict(window: &[u8]) -> Result<u64, (Reason, u64)> {
    match SleepImage::from_bytes(window).verify() {
        Ok(verified) => Ok(verified.user_bytes),
        Err(error) => {
            let refusal = error.refusal().expect("bytes can be read");
            Err((refusal.reason, refusal.detail))
        }
    }
}

#[test]
fn all_pages_of_whole_groups_are_covered() {
    let (window, header) = window(UserCheck::ALL);
    // 64 to 68 and 190, 191, 192: three groups. Pages 7 and 10 to 63 are beside the bitmaps.
    assert_eq!((header.user_groups, header.user_pages), (3, 8));
    assert_eq!(verdict(&window), Ok(8 * PAGE_BYTES));
}

#[test]
fn a_changed_user_page_is_refused_with_its_group() {
    for (page, group) in [(64, 1), (68, 1), (190, 2), (191, 2), (192, 3)] {
        let (mut window, _) = window(UserCheck::ALL);
        window[(page * PAGE_BYTES + 4095) as usize] ^= 1;
        assert_eq!(
            verdict(&window),
            Err((Reason::USER_DIGEST, group)),
            "page {page}"
        );
    }
}

#[test]
fn a_sample_finds_the_first_page_of_a_group_and_no_other() {
    let (mut changed, header) = window(UserCheck::SAMPLE);
    assert_eq!((header.user_groups, header.user_pages), (3, 3));
    changed[(65 * PAGE_BYTES) as usize] ^= 1;
    assert_eq!(
        verdict(&changed),
        Ok(3 * PAGE_BYTES),
        "not found, as documented"
    );
    changed[(64 * PAGE_BYTES) as usize] ^= 1;
    assert_eq!(verdict(&changed), Err((Reason::USER_DIGEST, 1)));
}

#[test]
fn without_digests_no_change_is_found() {
    let (mut window, header) = window(UserCheck::NONE);
    assert_eq!((header.user_groups, header.user_pages), (0, 0));
    window[(64 * PAGE_BYTES) as usize] ^= 1;
    assert_eq!(verdict(&window), Ok(0), "not found, as documented");
}

#[test]
fn a_changed_digest_is_found_by_the_digest_of_the_table() {
    let (mut window, header) = window(UserCheck::ALL);
    window[header.user_table_offset as usize + 8] ^= 1;
    let expected = Err((Reason::BITMAP_DIGEST, header.user_table_offset));
    assert_eq!(verdict(&window), expected);
}

#[test]
fn no_digest_is_0_because_that_says_there_is_none() {
    assert_ne!(digest(&[], 0), 0);
}

proptest! {
    #[test]
    fn a_digest_depends_on_the_pages_that_it_covers_and_on_no_other(
        word: u64, user_check in 0u32..3, page in 0usize..64, at in 0usize..4096, flip in 1u8..,
    ) {
        let pages = covered(user_check, word);
        prop_assert_eq!(pages & !word, 0);
        let mut group = vec![0x5a; GROUP_BYTES];
        let before = digest(&group, pages);
        group[page * 4096 + at] ^= flip;
        let changed = digest(&group, pages) != before;
        prop_assert_eq!(changed, pages >> page & 1 == 1);
    }

    #[test]
    fn a_sample_is_one_page_wherever_there_is_any(word: u64) {
        let pages = covered(UserCheck::SAMPLE.0, word);
        prop_assert_eq!(pages.count_ones(), u32::from(word != 0));
    }
}
