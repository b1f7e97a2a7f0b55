//! The virtual executor with other guests: objects and kernels as ELF files, devices, page tables,
//! and everything that stops a guest.

use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse_tests::{Said, dormouse, workspace};
use serde_json::Value;
use tempfile::TempDir;

fn tool(program: &str, words: &[&str]) {
    let said = Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        said.status.success(),
        "{program} {words:?}: {}",
        String::from_utf8_lossy(&said.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths here are text")
}

/// A file of `tests/guest` as an object.
fn compile(source: &str, state: &str, object: &Path) {
    tool(
        "arm-none-eabi-gcc",
        &[
            "-O2",
            "-ffreestanding",
            "-fno-optimize-sibling-calls",
            "-march=armv7ve",
            "-mfloat-abi=soft",
            "-Wall",
            "-Werror",
            "-Wno-infinite-recursion",
            &format!("-m{state}"),
            "-c",
            text(&workspace().join("tests/guest").join(source)),
            "-o",
            text(object),
        ],
    );
}

/// `tests/guest/offload.c` as objects: A32, T32.
pub struct Objects {
    folder: TempDir,
}

impl Objects {
    pub fn new() -> Objects {
        let objects = Objects {
            folder: TempDir::new().expect("a folder"),
        };
        for state in ["arm", "thumb"] {
            compile("offload.c", state, &objects.object(state));
        }
        objects
    }

    pub fn object(&self, state: &str) -> PathBuf {
        self.folder.path().join(format!("{state}.o"))
    }

    /// The same as a kernel, with functions of its own. What else offload.c calls is served to objects
    /// alone, and stays unresolved.
    fn kernel(&self, state: &str) -> PathBuf {
        let place = |name: &str| self.folder.path().join(format!("{name}-{state}"));
        let (own, kernel) = (place("kernel.o"), place("vmlinux"));
        compile("kernel.c", state, &own);
        tool(
            "arm-none-eabi-ld",
            &[
                "--unresolved-symbols=ignore-all",
                "-T",
                text(&workspace().join("tests/guest/vmlinux.ld")),
                text(&self.object(state)),
                text(&own),
                "-o",
                text(&kernel),
            ],
        );
        kernel
    }

    /// Runs a function of both; `check` gets what each gave.
    pub fn run(&self, words: &[&str], check: impl Fn(&Said, &Value)) {
        for state in ["arm", "thumb"] {
            run_elf(&self.object(state), words, &check);
        }
    }
}

fn run_elf(elf: &Path, words: &[&str], mut check: impl FnMut(&Said, &Value)) {
    let said = dormouse(&[&["offload", "run", "--json", text(elf)], words].concat());
    let run = serde_json::from_str(said.stdout.lines().next().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{} {words:?}: {}", elf.display(), said.all()));
    check(&said, &run);
}

pub fn returns(expected: u32) -> impl Fn(&Said, &Value) {
    move |said, run| {
        assert_eq!(said.code, 0, "{}", said.all());
        assert_eq!(run["registers"][0], expected, "{}", said.all());
    }
}

#[test]
fn whatever_stops_a_guest_is_named_with_its_instruction() {
    let objects = Objects::new();
    let nothing = Some(0xd000_0000_u32);
    for (function, stop, accessed, instruction) in [
        ("reads_nothing", "unmapped-read", nothing, Some("ldr")),
        ("writes_nothing", "unmapped-write", nothing, Some("str")),
        ("goes_nowhere", "unmapped-code", nothing, None),
        ("goes_into_data", "unmapped-code", None, None),
        ("writes_code", "code-written", None, Some("str")),
        ("loads_an_unaligned_list", "unaligned", None, Some("ldm")),
        ("is_undefined", "undefined", None, Some("udf")),
        ("calls_a_supervisor", "refused", None, Some("svc")),
        ("is_unpredictable", "unpredictable", None, Some("ldm")),
    ] {
        objects.run(&[function, "--prune"], |said, run| {
            assert_eq!(said.code, 1, "{function}: {}", said.all());
            assert_eq!(run["stop"], stop, "{function}: {}", said.all());
            let of = |name: &str| run[name].as_u64();
            if let Some(accessed) = accessed {
                assert_eq!(of("accessed"), Some(accessed.into()), "{}", said.all());
            }
            let said_instruction = run["instruction"].as_str();
            match instruction {
                Some(name) => assert!(
                    said_instruction.is_some_and(|text| text.starts_with(name)),
                    "{function}: {}",
                    said.all()
                ),
                None => assert_eq!(said_instruction, None, "{function}: {}", said.all()),
            }
        });
    }
}

#[test]
fn a_store_into_the_executors_memory_is_a_stop() {
    let objects = Objects::new();
    // Guest addresses whose place in the small core's address space is 0x61000000 below them: the
    // vectors, the executor's state but the value of the scratch register, the target table, the
    // code cache, the executor itself, the interrupt controller.
    for (address, stop) in [
        ("0x9f000000", "unmapped-write"),
        ("0x9f0078fc", "unmapped-write"),
        ("0x9f007900", "wild-store"),
        ("0x9f00790c", "wild-store"),
        ("0x9f007910", "wild-store"),
        ("0x9f00791c", "wild-store"),
        ("0x9f007920", "unmapped-write"),
        ("0x9f007a00", "unmapped-write"),
        ("0x9f100000", "unmapped-write"),
        ("0xbf200000", "unmapped-write"),
        ("0xbf300000", "unmapped-write"),
        ("0xbf380000", "unmapped-write"),
        ("0x7f00e100", "unmapped-write"),
    ] {
        objects.run(
            &["writes_anywhere", address, "0x12345678", "--prune"],
            |said, run| {
                assert_eq!(said.code, 1, "{address}: {}", said.all());
                assert_eq!(run["stop"], stop, "{address}: {}", said.all());
                let expected = u64::from_str_radix(&address[2..], 16).expect("an address");
                let accessed = run["accessed"].as_u64().expect("an address");
                // A store that nothing stopped is found by the guard words around it, so the
                // address is known to the 32 bytes that they guard.
                let known = if stop == "wild-store" { !31 } else { !0 };
                assert_eq!(
                    accessed & known,
                    expected & known,
                    "{address}: {}",
                    said.all()
                );
            },
        );
    }
}

#[test]
fn ordinary_forms_with_the_scratch_register_are_not_interpreted() {
    let folder = TempDir::new().expect("a folder");
    for state in ["arm", "thumb"] {
        let object = folder.path().join(format!("{state}.o"));
        compile("scratch.S", state, &object);
        let mut results = Vec::new();
        for optimisations in [&[][..], &["--without", "all"]] {
            // The file is about r9.
            run_elf(
                &object,
                &[&["scratch_forms", "--scratch", "9"][..], optimisations].concat(),
                |said, run| {
                    assert_eq!(said.code, 0, "{}", said.all());
                    let interpreted = run["counters"]["interpreted"].as_u64().expect("a number");
                    // Of 200 turns.
                    assert!(
                        !optimisations.is_empty() || interpreted < 10,
                        "{}",
                        said.all()
                    );
                    results.push(run["registers"][0].clone());
                },
            );
        }
        assert_eq!(results[0], results[1], "{state}");
    }
}

#[test]
fn words_need_not_be_aligned() {
    Objects::new().run(
        &["loads_an_unaligned_word", "--prune"],
        returns(0x5544_3322),
    );
}

#[test]
fn a_budget_ends_an_endless_loop_at_one_of_its_instructions() {
    Objects::new().run(
        &["runs_for_ever", "--prune", "--budget", "2"],
        |said, run| {
            assert_eq!(run["stop"], "budget", "{}", said.all());
            let instruction = run["instruction"].as_str().unwrap_or_default();
            let of_the_loop = ["ldr", "str", "add", "b "];
            assert!(
                of_the_loop.iter().any(|name| instruction.starts_with(name)),
                "{}",
                said.all()
            );
            assert_eq!(run["accessed"], Value::Null, "{}", said.all());
        },
    );
}

#[test]
fn an_interrupt_calls_its_handler_and_changes_nothing_else() {
    let objects = Objects::new();
    let handled = |words: &[&str], expected| {
        let with = [
            "--prune",
            "--irq-handler",
            "on_interrupt",
            "--irq-period",
            "5000",
        ];
        objects.run(&[words, &with].concat(), returns(expected));
    };
    // SysTick's exception number.
    handled(&["is_interrupted", "50"], 15);
    handled(&["is_not_interrupted_while_masked", "20000"], 1);
}

#[test]
fn a_stack_that_is_full_is_a_stop() {
    let objects = Objects::new();
    for without in ["none", "stack", "all"] {
        let mut words = vec!["recurses", "0", "--prune"];
        if without != "none" {
            words.extend(["--without", without]);
        }
        objects.run(&words, |said, run| {
            assert_eq!(run["stop"], "stack-overflow", "{without}: {}", said.all());
        });
    }
}

#[test]
fn what_only_the_big_core_can_run_is_handed_back_with_all_that_was_done() {
    let objects = Objects::new();
    let dump = objects.folder.path().join("word");
    let words = [
        "sleeps",
        "4711",
        "--prune",
        "--dump",
        "word",
        "4",
        text(&dump),
    ];
    objects.run(&words, |said, run| {
        assert_eq!(said.code, 1, "{}", said.all());
        assert_eq!(run["stop"], "fallback", "{}", said.all());
        let bytes = std::fs::read(&dump).expect("the dump");
        assert_eq!(bytes, 4711_u32.to_le_bytes(), "{}", said.all());
        // The call has been made: its return address is in the function that called.
        let register = |n: usize| run["registers"][n].as_u64().unwrap_or_default();
        assert!(
            register(14) > 0xc001_0000 && register(14) < 0xc001_8000,
            "{}",
            said.all()
        );
        assert_ne!(register(15), register(14) & !1, "{}", said.all());
    });
}

#[test]
fn a_module_runs_with_functions_of_the_kernel_served() {
    let objects = Objects::new();
    let expected = 5 * 3 + 1000 + u32::from(b's');
    for mode in [[].as_slice(), &["--without", "all"], &["--cache", "1024"]] {
        let words = [&["probes", "5", "--prune"], mode].concat();
        objects.run(&words, |said, run| {
            returns(expected)(said, run);
            assert_eq!(run["counters"]["delay_us"], 20_000, "{}", said.all());
            assert_eq!(run["counters"]["natives"], 4, "{}", said.all());
        });
    }
    // Without the pruner the linker says what is missing, and we what would help.
    let said = dormouse(&[
        "offload",
        "run",
        text(&objects.object("arm")),
        "probes",
        "5",
    ]);
    assert_eq!(said.code, 1, "{}", said.all());
    for word in ["mutex_lock", "--prune serves"] {
        assert!(said.stderr.contains(word), "{word}: {}", said.all());
    }
}

#[test]
fn devices_are_reached_through_page_tables() {
    let objects = Objects::new();
    // The prescaler of the small core's board: 32 bits that can be read back.
    let window = [
        "--prune",
        "--map",
        "0xf0000000:0x48000000:0x1000",
        "--device",
        "0x48000000:0x100:0x40028000",
    ];
    for mode in [[].as_slice(), &["--without", "all"]] {
        let words = [
            &["uses_device", "0xf000001c", "0x12345678"],
            &window[..],
            mode,
        ]
        .concat();
        objects.run(&words, returns(0x1234_5679));
    }
    // Mapped, but no device is there.
    let words = [&["uses_device", "0xf0000100", "1"], &window[..]].concat();
    objects.run(&words, |said, run| {
        assert_eq!(run["stop"], "unmapped-write", "{}", said.all());
        assert_eq!(run["accessed"], 0xf000_0100_u32, "{}", said.all());
    });
    let said = dormouse(&[
        "offload",
        "run",
        text(&objects.object("arm")),
        "uses_device",
        "--prune",
        "--device",
        "0x48000000:0x100:0x20000000",
    ]);
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(said.stderr.contains("peripherals"), "{}", said.all());
}

#[test]
fn memory_has_other_addresses_through_page_tables() {
    let objects = Objects::new();
    // All of memory once more, from 0xf0000000 on.
    let map = ["--prune", "--map", "0xf0000000:0x80000000:0x100000"];
    let own = ["--prune", "--page-table", "page_table"];
    for mode in [
        [].as_slice(),
        &["--without", "all"],
        &["--without", "linear"],
    ] {
        let words = [&["writes_alias", "0x30000000", "99"], &map[..], mode].concat();
        objects.run(&words, returns(99));
        let words = [
            &["makes_a_page_table", "0xf1000000", "0x80000000", "77", "0"],
            &own[..],
            mode,
        ]
        .concat();
        objects.run(&words, returns(77));
    }
    let said = dormouse(&[
        "offload",
        "run",
        text(&objects.object("arm")),
        "probes",
        "--prune",
        "--map",
        "0xc0000000:0x80000000:0x1000",
    ]);
    assert_eq!(said.code, 2, "{}", said.all());
    assert!(said.stderr.contains("linear-mapped"), "{}", said.all());
}

#[test]
fn a_kernel_runs_from_its_own_elf() {
    let objects = Objects::new();
    for state in ["arm", "thumb"] {
        // Its code is in the second and the third megabyte.
        let kernel = objects.kernel(state);
        let words = ["probes", "5", "--prune"];
        run_elf(&kernel, &words, returns(5 * 3 + 1000 + u32::from(b's')));
        let words = [
            "makes_a_page_table",
            "0xf1000000",
            "0x80200000",
            "77",
            "0xc0004000",
            "--page-table",
            "swapper_pg_dir",
        ];
        run_elf(&kernel, &words, returns(77));
        run_elf(&kernel, &["sleeps", "1", "--prune"], |said, run| {
            assert_eq!(run["stop"], "fallback", "{}", said.all());
            assert_eq!(run["registers"][15], 0xc010_0000_u32, "{}", said.all());
        });
    }
}

#[test]
fn a_damaged_elf_is_refused_with_its_reason() {
    let objects = Objects::new();
    let kernel = objects.kernel("arm");
    let good = std::fs::read(&kernel).expect("the kernel");
    let bad = objects.folder.path().join("bad");
    // The first program header: its offset is at 28 of the file's.
    let header = u32::from_le_bytes(good[28..32].try_into().expect("four bytes")) as usize;
    for (what, at, value, reason) in [
        ("machine", 18, 62, "ARM"),
        ("type", 16, 3, "position-independent"),
        ("type", 16, 4, "type 4"),
        ("offset", header + 4, 0x7fff_0000, "outside the file"),
        ("address", header + 8, 0x1000_8000, "16 MiB"),
        ("overlap", header + 8, 0xc010_0000, "meets another"),
        ("size", header + 20, 0xffff_ffff, "16 MiB"),
        ("small", header + 20, 4, "larger than its memory"),
    ] {
        let mut bytes = good.clone();
        let width = if at < 20 { 2 } else { 4 };
        bytes[at..at + width].copy_from_slice(&u32::to_le_bytes(value)[..width]);
        std::fs::write(&bad, &bytes).expect("written");
        let said = dormouse(&["offload", "run", text(&bad), "probes"]);
        assert_eq!(said.code, 1, "{what}: {}", said.all());
        assert!(said.stderr.contains(reason), "{what}: {}", said.all());
    }
    for length in [0, 3, 51, 60, header + 40, good.len() / 2] {
        std::fs::write(&bad, &good[..length]).expect("written");
        let said = dormouse(&["offload", "run", text(&bad), "probes"]);
        assert_eq!(said.code, 1, "{length} bytes: {}", said.all());
        assert!(
            said.stderr.contains("ELF") || said.stderr.contains("file"),
            "{}",
            said.all()
        );
    }
}
