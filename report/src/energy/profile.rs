//! The power profile of a machine: watts of each phase, each with its source, in a TOML file.
//!
//! ```toml
//! name = "my-board"
//! description = "what it is, what was measured where"
//!
//! [[power]]
//! of = "suspend.migrate"   # see `Power::of`
//! watts = 167.0
//! origin = "measured"      # or "derived" or "assumed"
//! source = "wall meter, median of 20 runs"
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Profiles that the command carries: name and text.
pub const BUILT_IN: [(&str, &str); 1] = [(
    "xeon-cxl-fpga",
    include_str!("../../profiles/xeon-cxl-fpga.toml"),
)];

/// More watts than any machine of one board draws.
const MAX_WATTS: f64 = 1e6;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured on the machine.
    Measured,
    /// Calculated from other measurements.
    Derived,
    /// It was not measured here.
    Assumed,
}

impl Origin {
    /// Its name in files and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Derived => "derived",
            Origin::Assumed => "assumed",
        }
    }
}

/// The power drawn in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// `idle` (running, nothing to do), `off` (asleep without power, S5) or `s3` (asleep with
    /// DRAM powered); or a phase: `[MODE.]suspend[.PART]`, `[MODE.]resume[.PART]`, `[MODE.]home`,
    /// with modes and parts as in `cycles.jsonl`. A phase without a power of its own has that of
    /// the whole way, a mode without one that of all modes.
    pub of: String,
    /// Power, W.
    pub watts: f64,
    /// The kind of source.
    pub origin: Origin,
    /// Where the figure is from.
    pub source: String,
}

/// The powers of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name of the profile.
    pub name: String,
    /// The machine, and where its power was measured.
    #[serde(default)]
    pub description: String,
    /// All powers of the profile.
    #[serde(rename = "power")]
    pub powers: Vec<Power>,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither a built-in name nor a file that can be read.
    #[error(
        "{}: no such power profile: {source}; name a file, or one of the built-in ones: {}",
        path.display(),
        BUILT_IN.map(|(name, _)| name).join(", ")
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Where the figure is from.
        source: io::Error,
    },
    /// Not TOML, or not of the right form.
    #[error(
        "{at}: not a power profile:\n{reason}docs/reference/power-profiles.md describes the format"
    )]
    Form {
        /// The value.
        at: String,
        /// The reason.
        reason: String,
    },
    /// A number or a name that cannot be.
    #[error(
        "{at}: power of {of:?}: {reason}; docs/reference/power-profiles.md describes the format"
    )]
    Value {
        /// The place in the file.
        at: String,
        /// The power that is wrong.
        of: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Profile {
    /// A built-in profile by its name, else a file.
    ///
    /// # Errors
    /// There is none of that name, or it is no profile.
    pub fn find(name: &Path) -> Result<Profile, ProfileError> {
        let built_in = BUILT_IN.iter().find(|(known, _)| name == Path::new(known));
        if let Some((known, text)) = built_in {
            return Profile::parse(text, known);
        }
        let text = fs::read_to_string(name).map_err(|source| ProfileError::Read {
            path: name.to_owned(),
            source,
        })?;
        Profile::parse(&text, &name.display().to_string())
    }

    /// Reads a profile's text; `at` says in errors where it is from.
    ///
    /// # Errors
    /// It is no TOML, has unknown fields, phases that cannot be, a power twice, or a number that
    /// is no power.
    pub fn parse(text: &str, at: &str) -> Result<Profile, ProfileError> {
        let profile: Profile = toml::from_str(text).map_err(|error| ProfileError::Form {
            at: at.to_owned(),
            reason: error.to_string(),
        })?;
        for (index, power) in profile.powers.iter().enumerate() {
            let wrong = |reason: &str| ProfileError::Value {
                at: at.to_owned(),
                of: power.of.clone(),
                reason: reason.to_owned(),
            };
            check_power(&power.of, power.watts).map_err(|reason| wrong(&reason))?;
            if profile.powers[..index].iter().any(|p| p.of == power.of) {
                return Err(wrong("given twice"));
            }
        }
        Ok(profile)
    }

    /// The same with another power for one phase (`idle`, `off`, `suspend.migrate`, …), assumed.
    ///
    /// # Errors
    /// Why the phase or the number cannot be.
    pub fn set(&mut self, of: &str, watts: f64) -> Result<(), String> {
        check_power(of, watts)?;
        self.powers.retain(|power| power.of != of);
        self.powers.push(Power {
            of: of.to_owned(),
            watts,
            origin: Origin::Assumed,
            source: "given on the command line".to_owned(),
        });
        Ok(())
    }

    /// The power of exactly this name.
    pub fn exactly(&self, of: &str) -> Option<&Power> {
        self.powers.iter().find(|power| power.of == of)
    }

    /// The power of a phase of a mode: the closest that the profile has. `hibernate-swap` without
    /// powers of its own has those of `hibernate`.
    pub fn of_phase(&self, mode: &str, way: &str, part: &str) -> Option<&Power> {
        let family = mode.split_once('-').map_or(mode, |(family, _)| family);
        [mode, family, ""].into_iter().find_map(|mode| {
            let prefix = if mode.is_empty() {
                String::new()
            } else {
                format!("{mode}.")
            };
            let own = self.exactly(&format!("{prefix}{way}.{part}"));
            own.or_else(|| self.exactly(&format!("{prefix}{way}")))
        })
    }
}

/// Whether a phase can be named so and a power can be so large.
///
/// # Errors
/// Why not.
pub fn check_power(of: &str, watts: f64) -> Result<(), String> {
    if !(watts.is_finite() && (0.0..=MAX_WATTS).contains(&watts)) {
        return Err(format!("{watts} is not between 0 and {MAX_WATTS} watts"));
    }
    let words: Vec<&str> = of.split('.').collect();
    let is_word = |word: &&str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !word.is_empty() && word.chars().all(allowed)
    };
    let is_way = |word: &str| matches!(word, "suspend" | "resume");
    let is_known = words.iter().all(is_word)
        && match words[..] {
            [only] => is_way(only) || matches!(only, "idle" | "off" | "s3" | "home"),
            [_, "home"] => true,
            [first, second] => is_way(first) || is_way(second),
            [_, way, _] => is_way(way),
            _ => false,
        };
    if is_known {
        Ok(())
    } else {
        Err(
            "no such phase: it is idle, off, s3, [MODE.]suspend[.PART], [MODE.]resume[.PART] \
             or [MODE.]home"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn profile(powers: &[(&str, f64)]) -> Profile {
        let mut profile = Profile {
            name: "test".to_owned(),
            description: String::new(),
            powers: Vec::new(),
        };
        for (of, watts) in powers {
            profile.set(of, *watts).unwrap();
        }
        profile
    }

    #[test]
    fn every_built_in_profile_is_one_and_says_where_its_numbers_come_from() {
        for (name, text) in BUILT_IN {
            let profile = Profile::parse(text, name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.powers.iter().all(|power| !power.source.is_empty()));
            for needed in ["idle", "off"] {
                assert!(profile.exactly(needed).is_some(), "{name} has no {needed}");
            }
        }
    }

    #[test]
    fn the_closest_power_counts() {
        let profile = profile(&[
            ("suspend", 1.0),
            ("suspend.migrate", 2.0),
            ("hibernate.suspend", 3.0),
            ("hibernate-swap.suspend.write", 4.0),
        ]);
        let watts = |mode, way, part| profile.of_phase(mode, way, part).map(|power| power.watts);
        assert_eq!(watts("cxl", "suspend", "migrate"), Some(2.0));
        assert_eq!(watts("cxl", "suspend", "rest"), Some(1.0));
        assert_eq!(watts("hibernate", "suspend", "write"), Some(3.0));
        assert_eq!(watts("hibernate-swap", "suspend", "write"), Some(4.0));
        assert_eq!(watts("hibernate-swap", "suspend", "copy"), Some(3.0));
        assert_eq!(watts("cxl", "resume", "kernel"), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let text = |of: &str, watts: &str| {
            format!(
                "name=\"x\"\n[[power]]\nof=\"{of}\"\nwatts={watts}\norigin=\"measured\"\nsource=\"s\"\n"
            )
        };
        let error = |text: &str| Profile::parse(text, "p.toml").unwrap_err().to_string();
        assert!(error("name = 3").contains("p.toml"));
        assert!(error(&text("idle", "-1.0")).contains("-1 is not between"));
        assert!(error(&text("idle", "nan")).contains("NaN"));
        assert!(error(&text("idel", "1.0")).contains("no such phase"));
        assert!(error(&text("a.b.c.d", "1.0")).contains("no such phase"));
        let twice = text("idle", "1.0") + &text("idle", "2.0").replacen("name=\"x\"\n", "", 1);
        assert!(error(&twice).contains("given twice"));
        assert!(error(&(text("idle", "1.0") + "volts = 3\n")).contains("volts"));
        let missing = Profile::find(Path::new("no-such")).unwrap_err().to_string();
        assert!(missing.contains("xeon-cxl-fpga"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,300}") {
            let _ = Profile::parse(&text, "p.toml");
            let _ = profile(&[]).set(&text, 1.0);
        }
    }
}
