//! What is measured: ways to sleep, each with some fills of memory.

/// DRAM of the machine that sleeps in CXL memory, in MiB; what the others are to behave as.
const DRAM_MIB: u64 = 1536;
/// Hibernation needs a copy of what is in use in free DRAM: it gets twice as much, as in the
/// thesis, and an image size computed from the DRAM above.
const HIBERNATION_DRAM_MIB: u64 = 2 * DRAM_MIB;
const CXL_MIB: u64 = 2048;

/// The way that all others are compared with.
pub const OURS: &str = "cxl";
/// The same with migration as the thesis has it.
pub const ONE_THREAD: &str = "cxl-one-thread";
/// The same without digests of user pages, and with one of each: the default compares a sample.
pub const VERIFY_NONE: &str = "cxl-verify-none";
pub const VERIFY_ALL: &str = "cxl-verify-all";

/// A way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub name: &'static str,
    /// For tables and figures.
    pub title: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) compressor: Option<&'static str>,
    /// Of DRAM as Suspend-to-CXL has it, in percent.
    pub(crate) image_percent: Option<u64>,
    pub(crate) more: &'static [&'static str],
    /// Measured at the largest fill only, and not in figures.
    pub(crate) variant: bool,
}

/// In the order of tables.
pub const MODES: [Mode; 8] = [
    ours(OURS, "Suspend-to-CXL", &[]),
    hibernation("hibernate-lzo", "hibernate, lzo", Some("lzo"), false),
    hibernation(
        "hibernate-swap-lzo",
        "hibernate-swap, lzo",
        Some("lzo"),
        true,
    ),
    hibernation("hibernate-none", "hibernate, none", Some("none"), false),
    hibernation("hibernate-lz4", "hibernate, lz4", Some("lz4"), false),
    ours(
        ONE_THREAD,
        "Suspend-to-CXL, one thread",
        &["--sleep-argument=--jobs=1"],
    ),
    ours(
        VERIFY_NONE,
        "Suspend-to-CXL, no user page verified",
        &["--sleep-argument=--verify-user-pages=none"],
    ),
    ours(
        VERIFY_ALL,
        "Suspend-to-CXL, every user page verified",
        &["--sleep-argument=--verify-user-pages=all"],
    ),
];

const fn ours(name: &'static str, title: &'static str, more: &'static [&'static str]) -> Mode {
    Mode {
        name,
        title,
        mode: "cxl",
        compressor: None,
        image_percent: None,
        more,
        variant: !more.is_empty(),
    }
}

const fn hibernation(
    name: &'static str,
    title: &'static str,
    compressor: Option<&'static str>,
    swap_out: bool,
) -> Mode {
    Mode {
        name,
        title,
        mode: if swap_out {
            "hibernate-swap"
        } else {
            "hibernate"
        },
        compressor,
        // The kernel's default is two fifths.
        image_percent: Some(if swap_out { 40 } else { 100 }),
        more: &[],
        variant: false,
    }
}

impl Mode {
    pub fn is_hibernation(&self) -> bool {
        self.image_percent.is_some()
    }

    /// Hibernation as the thesis has it: the kernel cannot do without a compressor but by a word on
    /// its command line.
    pub fn compresses(&self) -> bool {
        self.compressor.is_some_and(|name| name != "none")
    }

    /// Ours with another setting: measured at the largest fill only, and not in figures.
    pub fn is_variant(&self) -> bool {
        self.variant
    }
}

/// One way with one fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    pub mode: Mode,
    /// As `--fill` takes it.
    pub fill: String,
    pub sizes: Sizes,
}

/// What the machine of a case has, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub dram: u64,
    pub cxl: u64,
    /// DRAM of the machine that hibernation is to behave as: `image_size` is a share of it.
    pub image_of: u64,
}

impl Sizes {
    fn of(mode: &Mode) -> Sizes {
        Sizes {
            dram: match mode.is_hibernation() {
                true => HIBERNATION_DRAM_MIB,
                false => DRAM_MIB,
            },
            cxl: CXL_MIB,
            image_of: DRAM_MIB,
        }
    }
}

impl Case {
    /// Identifies it in the journal.
    pub fn name(&self) -> String {
        format!("{} fill={}", self.mode.name, self.fill)
    }

    /// The words after `dormouse lab cycle --json --machine DIR`.
    pub fn words(&self, cycles: usize) -> Vec<String> {
        let mut words = vec![
            format!("--mode={}", self.mode.mode),
            format!("--dram={}M", self.sizes.dram),
            format!("--cxl={}M", self.sizes.cxl),
            format!("--fill={}", self.fill),
            format!("--cycles={cycles}"),
        ];
        words.extend(
            self.mode
                .compressor
                .map(|name| format!("--compressor={name}")),
        );
        words.extend(
            self.mode
                .image_percent
                .map(|percent| format!("--image-size={}M", self.sizes.image_of * percent / 100)),
        );
        words.extend(self.mode.more.iter().map(|&word| word.to_owned()));
        words
    }
}

/// Each mode with each fill, so that neighbours in time are those that are compared.
pub fn cases(modes: &[Mode], fills: &[String]) -> Vec<Case> {
    let last = fills.last();
    fills
        .iter()
        .flat_map(|fill| {
            modes
                .iter()
                .filter(move |mode| !mode.is_variant() || Some(fill) == last)
                .map(|&mode| Case {
                    mode,
                    fill: fill.clone(),
                    sizes: Sizes::of(&mode),
                })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hibernation_gets_twice_the_dram_and_the_image_size_of_the_smaller_machine() {
        let fills = ["448M".to_owned()];
        let case = |name: &str| {
            let mode = MODES.into_iter().find(|mode| mode.name == name).unwrap();
            cases(&[mode], &fills).remove(0)
        };
        let words = case("hibernate-lz4").words(2).join(" ");
        assert_eq!(
            words,
            "--mode=hibernate --dram=3072M --cxl=2048M --fill=448M --cycles=2 --compressor=lz4 \
             --image-size=1536M"
        );
        let words = case("hibernate-swap-lzo").words(1).join(" ");
        assert!(
            words.ends_with("--compressor=lzo --image-size=614M"),
            "{words}"
        );
        assert!(case("cxl").words(1).contains(&"--dram=1536M".to_owned()));
    }

    #[test]
    fn variants_are_measured_at_the_largest_fill_only() {
        let fills = ["128M", "768M"].map(String::from);
        let cases = cases(&MODES, &fills);
        assert_eq!(cases.len(), 2 * MODES.len() - 3);
        assert_eq!(cases.last().unwrap().name(), "cxl-verify-all fill=768M");
    }
}
