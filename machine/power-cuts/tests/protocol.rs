//! One sleep and one wake with power cut at every fence, for each way to store; and each flush,
//! store past the caches and fence left out in turn, which the same search must find.

use dormouse_power_cuts::search::{Part, Searched, search};
use dormouse_power_cuts::{Method, Mutation, Shape, Step, Way};

fn explore(shape: &Shape, limit: u64) -> Searched {
    let searched =
        search(shape, limit, 1, None).unwrap_or_else(|violation| panic!("{shape:?}: {violation}"));
    println!(
        "{:?}, {:?}, user pages {}: {} cuts, {} of them with all their states, {} states",
        shape.way,
        shape.method,
        shape.user_check,
        searched.cuts,
        searched.exhaustive,
        searched.states
    );
    searched
}

fn shapes() -> impl Iterator<Item = Shape> {
    let ways = [Way::Firmware, Way::Snapshot];
    let both = ways.map(|way| Method::ALL.map(|method| (way, method)));
    both.into_iter().flatten().flat_map(|(way, method)| {
        (0..3).map(move |user_check| Shape {
            user_check,
            ..Shape::small(method).by(way)
        })
    })
}

#[test]
fn power_lost_at_any_fence_ends_in_an_equal_resume_or_a_cold_boot_with_its_reason() {
    for shape in shapes() {
        let searched = explore(&shape, 500);
        assert!(
            searched.cuts > 15 && searched.exhaustive > 3,
            "{searched:?}"
        );
    }
}

#[test]
#[ignore = "make test-full: up to 2^17 states at each fence, minutes; the quick test tries up to 500"]
fn power_lost_at_any_fence_ends_well_in_up_to_2_to_17_states() {
    for shape in shapes() {
        let searched = explore(&shape, 1 << 17);
        let min = match shape.way {
            Way::Firmware => 15,
            Way::Snapshot => 4,
        };
        assert!(searched.exhaustive > min, "{searched:?}");
    }
}

/// Why nothing is lost when this is left out; None: it must be found.
fn harmless(part: Part, at: usize, step: &Step, mutation: Mutation) -> Option<&'static str> {
    let second_copy = match part {
        Part::First | Part::Sleep => at == 2,
        Part::Wake => at == 6,
    };
    let fence = matches!(mutation, Mutation::NoFence(_));
    match step.parts[..] {
        ["mailbox"] => Some("nothing asks across a power cycle: firmware clears it"),
        ["header"] if second_copy => {
            Some("the second copy of EMPTY and CONSUMED is for a bad bit, not for power loss")
        }
        [] if part == Part::Wake => Some("DRAM keeps nothing without power"),
        [] if fence => Some("the next fence comes before anything that relies on this one"),
        ["dram-bitmap" | "cxl-bitmap" | "user-digests"] if fence => {
            Some("the header's fence comes after it, and before SUSPENDED is written")
        }
        ["saved-pages"] if fence && at < 12 => Some("the fence of the last piece covers all"),
        // SAVING, RESTORING: the next fence comes before the header that relies on them.
        ["header"] if fence && (part, at) == (Part::Sleep, 9) => {
            Some("a saved page's fence follows")
        }
        ["header"] if fence && (part, at) == (Part::Wake, 1) => Some("a restored page's follows"),
        _ => None,
    }
}

/// The same for the other way.
fn harmless_by_snapshot(
    part: Part,
    at: usize,
    step: &Step,
    mutation: Mutation,
) -> Option<&'static str> {
    let second_copy = (part, at) == (Part::First, 1) || (part, at) == (Part::Wake, 2);
    match step.parts[..] {
        ["header"] if second_copy => {
            Some("the second copy of EMPTY and CONSUMED is for a bad bit, not for power loss")
        }
        // What the firmware's way does not have: all caches are written back before the commit.
        ["header"] if (part, at) == (Part::Sleep, 1) => {
            Some("PREPARED and SAVING are both incomplete, and all caches are written back later")
        }
        ["cxl-bitmap" | "user-digests" | "saved-pages"]
            if !matches!(mutation, Mutation::NoWriteBack(_)) =>
        {
            Some("all caches are written back, and fenced, before the commit")
        }
        _ => None,
    }
}

type Harmless = fn(Part, usize, &Step, Mutation) -> Option<&'static str>;

/// Leaves each flush, store past the caches and fence of a life out in turn: found, or excused.
fn leave_each_out(shape: &Shape, harmless: Harmless) -> (u64, u64) {
    let steps = explore(shape, 1).steps;
    let (mut found, mut excused) = (0, 0);
    let mut complaints = Vec::new();
    for ((name, steps), part) in steps.iter().zip([Part::First, Part::Sleep, Part::Wake]) {
        for (at, step) in steps.iter().enumerate() {
            let there = [
                Some(Mutation::NoFence(at)),
                (step.written_back > 0).then_some(Mutation::NoWriteBack(at)),
                (step.past_caches > 0).then_some(Mutation::NoStorePastCaches(at)),
            ];
            for mutation in there.into_iter().flatten() {
                let result = search(shape, 200, 1, Some((part, mutation)));
                match (harmless(part, at, step, mutation), result) {
                    (None, Err(_)) => found += 1,
                    (Some(_), Ok(_)) => excused += 1,
                    (None, Ok(_)) => {
                        complaints.push(format!("not found: {name} {step:?} {mutation:?}"));
                    }
                    (Some(why), Err(violation)) => complaints.push(format!(
                        "{name} {step:?} {mutation:?}: {why}, yet {violation}"
                    )),
                }
            }
        }
    }
    println!("{found} left out and found, {excused} left out without harm");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    (found, excused)
}

#[test]
fn each_flush_and_fence_that_matters_is_found_when_it_is_left_out() {
    let (found, _) = leave_each_out(&Shape::small(Method::Movdir64b), harmless);
    assert!(found >= 15, "{found}");
}

#[test]
fn each_flush_of_a_sleep_by_the_snapshot_that_matters_is_found_when_it_is_left_out() {
    let shape = Shape::small(Method::Movdir64b).by(Way::Snapshot);
    let (found, _) = leave_each_out(&shape, harmless_by_snapshot);
    assert!(found >= 8, "{found}");
}

#[test]
fn user_pages_that_linux_has_not_written_back_are_found() {
    let ways = [Way::Firmware, Way::Snapshot];
    for (user_check, way) in (0..3).flat_map(|check| ways.map(|way| (check, way))) {
        let shape = Shape {
            user_check,
            ..Shape::small(Method::Movnti).by(way)
        };
        let result = search(
            &shape,
            200,
            1,
            Some((Part::Sleep, Mutation::NoWriteBackAll)),
        );
        let violation = result.expect_err("user pages are lost").to_string();
        let expected = match user_check {
            0 => "resumed, and user page",
            _ => "user-digest",
        };
        assert!(violation.contains(expected), "{violation}");
    }
}
