//! Damaged stores: a torn one only ever restores a complete epoch. The program compares each of its
//! pages with the expected contents.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dormouse_tests::alone::alone;
use dormouse_tests::program::{Chance, Program, compile};
use tempfile::TempDir;

const FRAME: usize = 4096;
/// Trials of each kind; DORMOUSE_TEARS says otherwise.
const TRIALS: u64 = 3;

fn trials() -> u64 {
    std::env::var("DORMOUSE_TEARS").map_or(TRIALS, |count| count.parse().expect("a number"))
}

/// Two epochs of a program in one store: the medium after the first, and after the second.
struct Epochs {
    program: Program,
    directory: TempDir,
    /// What the medium held.
    first: Vec<u8>,
    second: Vec<u8>,
    /// Numbers of the epochs.
    numbers: [u64; 2],
    /// What the program had said when the first was asked for, and when the second was there.
    rounds: [u64; 2],
    /// Results of the trials: first epoch, second epoch, nothing.
    seen: [u64; 3],
}

fn last_round(said: &str) -> u64 {
    let last = said
        .lines()
        .rfind(|line| line.starts_with("ok "))
        .expect("it works");
    last.split(' ')
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number")
}

impl Epochs {
    fn new(seed: u64) -> Self {
        let alone = alone();
        let directory = tempfile::tempdir().expect("a directory");
        let model = compile(directory.path(), "memory_model.c");
        // No epochs but those that are asked for.
        let options = ["--on-power-loss", "none", "--epoch-interval", "60min"];
        let command = [&model.display().to_string(), &seed.to_string()];
        let mut program = Program::new(
            alone,
            directory.path(),
            "model",
            &options,
            &command.map(|w| &**w),
        );
        program.run();
        assert!(program.wait_for("ok", 3), "{}", program.said());
        let mut rounds = [last_round(&program.said()), 0];
        let persist = |program: &Program, then: &str| -> u64 {
            let said = program.verb("persist", &["--json", "--then", then]);
            assert_eq!(said.code, 0, "{}", said.all());
            let report = said.report();
            report["epoch"].as_u64().expect("a number")
        };
        let store = directory.path().join("model.store");
        let one = persist(&program, "continue");
        let first = fs::read(&store).expect("the store");
        assert!(program.wait_for("ok", 3), "{}", program.said());
        let two = persist(&program, "kill");
        assert_eq!(program.wait(), 0);
        rounds[1] = last_round(&program.said());
        let second = fs::read(&store).expect("the store");
        Self {
            program,
            directory,
            first,
            second,
            numbers: [one, two],
            rounds,
            seen: [0; 3],
        }
    }

    fn store(&self) -> PathBuf {
        self.directory.path().join("model.store")
    }

    /// Puts this in the place of the store, and restores from it: the program goes on from one
    /// of the two epochs, or it is said why not. `what` is for the message.
    fn restore_from(&mut self, what: &str, medium: &[u8]) {
        write_sparse(&self.store(), medium);
        let verified = self.program.verb("verify", &["--json"]);
        assert!(
            [0, 1, 2, 4].contains(&verified.code),
            "{what}: {}",
            verified.all()
        );
        let before = self.program.said().len();
        self.program.run();
        let runs = self.program.wait_for("ok", 2);
        let said = self.program.said().split_off(before);
        assert!(
            !said.contains("DIFFERS"),
            "{what}: {said}\n{}",
            verified.all()
        );
        if !runs {
            let code = self.program.wait();
            assert!([1, 4].contains(&code), "{what}: exit code {code}: {said}");
            assert!(
                said.contains("model.store"),
                "{what}: it is not said where: {said}"
            );
            assert_ne!(
                verified.code, 0,
                "{what}: it verifies, and does not run: {said}"
            );
            self.seen[2] += 1;
            self.program.cut(false);
            return;
        }
        let first = said
            .lines()
            .find(|line| line.starts_with("ok "))
            .expect("it runs");
        let first = last_round(first);
        let [least, most] = self.rounds;
        if verified.code == 0 && verified.stdout.contains("\"epoch\":null") {
            // Nothing is there, and nothing shows that something was: the store is new.
            assert_eq!(first, 1, "{what}: {said}");
            self.seen[2] += 1;
        } else {
            assert!(
                least < first && first <= most + 1,
                "{what}: {first} of {least}..{most}"
            );
            let newer = first == most + 1;
            self.seen[usize::from(newer)] += 1;
            // What verifies is what runs.
            if verified.code == 0 {
                let number = self.numbers[usize::from(newer)];
                assert!(
                    verified.stdout.contains(&format!("\"epoch\":{number},")),
                    "{what}"
                );
            }
        }
        self.program.cut(false);
    }
}

/// Most of a store is empty.
fn write_sparse(path: &Path, medium: &[u8]) {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    let file: File = file.expect("the store can be replaced");
    file.set_len(medium.len() as u64).expect("its length");
    for (at, chunk) in medium.chunks(FRAME).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, (at * FRAME) as u64)
                .expect("written");
        }
    }
}

/// Frames in which the two differ: what was written for the second epoch.
fn written(first: &[u8], second: &[u8]) -> Vec<usize> {
    let frame = |medium: &[u8], at: usize| -> Vec<u8> {
        let end = medium.len().min((at + 1) * FRAME);
        let mut bytes = medium.get(at * FRAME..end).unwrap_or(&[]).to_vec();
        bytes.resize(FRAME, 0);
        bytes
    };
    let frames = second.len().div_ceil(FRAME);
    (0..frames)
        .filter(|at| frame(first, *at) != frame(second, *at))
        .collect()
}

fn begin(seed: u64) -> (Epochs, Chance) {
    println!("seed {seed}");
    (Epochs::new(seed), Chance::new(seed))
}

/// The medium has some of the second epoch's writes, in any order, whatever barriers said.
#[test]
fn with_writes_lost_or_out_of_order_only_a_complete_epoch_restores() {
    let seed = 11;
    let (mut epochs, mut chance) = begin(seed);
    let mut first = epochs.first.clone();
    first.resize(epochs.second.len(), 0);
    let second = epochs.second.clone();
    let written = written(&first, &second);
    assert!(written.len() > 100, "{} frames were written", written.len());
    let mix = |takes: &mut dyn FnMut(usize, usize) -> bool| {
        let mut medium = first.clone();
        for (index, at) in written.iter().enumerate() {
            if takes(index, *at) {
                let range = at * FRAME..(at + 1) * FRAME;
                medium[range.clone()].copy_from_slice(&second[range]);
            }
        }
        medium
    };
    // All of it, and none of it.
    epochs.restore_from("all", &mix(&mut |_, _| true));
    assert_eq!(epochs.seen, [0, 1, 0], "the second epoch");
    epochs.restore_from("none", &mix(&mut |_, _| false));
    assert_eq!(epochs.seen, [1, 1, 0], "the first epoch");
    // As the barrier promises: everything but the root, which is in frame 1 or 2.
    epochs.restore_from("no root", &mix(&mut |_, at| at > 2));
    assert_eq!(epochs.seen, [2, 1, 0], "the first epoch");
    for trial in 0..trials() {
        let count = written.len() as u64;
        let lost = chance.below(count) as usize;
        epochs.restore_from(
            &format!(
                "seed {seed}, trial {trial}: frame {} of {count} lost",
                written[lost]
            ),
            &mix(&mut |index, _| index != lost),
        );
        let tail = chance.below(count) as usize;
        epochs.restore_from(
            &format!("seed {seed}, trial {trial}: {tail} frames, then no more"),
            &mix(&mut |index, _| index < tail),
        );
        epochs.restore_from(
            &format!("seed {seed}, trial {trial}: a half of the frames, with the root"),
            &mix(&mut |_, at| at <= 2 || chance.below(2) == 0),
        );
        // A frame is not written at once, either.
        let torn = if trial % 2 == 0 {
            written[0]
        } else {
            written[chance.below(count) as usize]
        };
        let bytes = chance.below(FRAME as u64) as usize;
        let mut medium = mix(&mut |_, at| at != torn);
        medium[torn * FRAME..][..bytes].copy_from_slice(&second[torn * FRAME..][..bytes]);
        epochs.restore_from(
            &format!("seed {seed}, trial {trial}: {bytes} bytes of frame {torn}"),
            &medium,
        );
    }
    println!("first, second, none: {:?}", epochs.seen);
}

#[test]
fn with_bits_flipped_blocks_swapped_or_the_end_cut_off_only_a_complete_epoch_restores() {
    let seed = 12;
    let (mut epochs, mut chance) = begin(seed);
    let whole = epochs.second.clone();
    let used: Vec<usize> = whole
        .chunks(FRAME)
        .enumerate()
        .filter(|(_, frame)| frame.iter().any(|byte| *byte != 0))
        .map(|(at, _)| at)
        .collect();
    let mut any = |among: usize| used[chance.below(used.len().min(among) as u64) as usize];
    for trial in 0..trials() {
        let what = |how: &str| format!("seed {seed}, trial {trial}: {how}");
        // The head is where most depends on each bit.
        for among in [3, usize::MAX] {
            let frame = any(among);
            let mut medium = whole.clone();
            let at = frame * FRAME + any(usize::MAX) % FRAME;
            medium[at] ^= 1 << (trial % 8);
            epochs.restore_from(&what(&format!("a bit of byte {at} flipped")), &medium);
        }
        let (one, other) = (any(usize::MAX), any(usize::MAX));
        let mut medium = whole.clone();
        medium[one * FRAME..][..FRAME].copy_from_slice(&whole[other * FRAME..][..FRAME]);
        medium[other * FRAME..][..FRAME].copy_from_slice(&whole[one * FRAME..][..FRAME]);
        epochs.restore_from(&what(&format!("frames {one} and {other} swapped")), &medium);
        let end = any(usize::MAX) * FRAME + any(usize::MAX) % FRAME;
        epochs.restore_from(&what(&format!("cut off at {end}")), &whole[..end]);
        let mut medium = whole.clone();
        medium[end..].fill(0);
        epochs.restore_from(&what(&format!("zeros from {end}")), &medium);
    }
    // Undamaged it still restores.
    epochs.seen = [0; 3];
    epochs.restore_from("as it was", &whole);
    assert_eq!(epochs.seen, [0, 1, 0]);
}
