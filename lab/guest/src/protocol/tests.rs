//! Messages between the lab and the machine.

use super::*;

#[test]
fn hexadecimal_reads_back() {
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("zz"), None);
}

#[test]
fn one_bad_page_is_a_complaint() {
    let mut verdict = Verdict {
        memory: MemoryVerdict {
            pages: 9,
            bad_pages: 0,
            first_bad_page: None,
        },
        counters: CounterVerdict {
            counts: vec![1],
            lost: 0,
            running: true,
        },
        redis: None,
    };
    assert!(verdict.complaints().is_empty());
    verdict.memory.bad_pages = 1;
    assert_eq!(verdict.complaints().len(), 1);
    verdict.counters.running = false;
    assert_eq!(verdict.complaints().len(), 2);
}
