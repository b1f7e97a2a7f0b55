//! The function pruner's table, `isa/natives.def`: which kernel functions are replaced, and by what.

use crate::guest::Guest;

/// Words of an object that is linked alone which stand for functions that are not there: `guest.ld`.
pub const MAX_STUBS: usize = 128;
/// The symbol of the first of them.
pub const STUBS: &str = "offload_stubs";

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Native {
    /// Name of the kernel function.
    pub function: String,
    /// Name of its replacement.
    pub kind: String,
    /// Only where the guest lacks the function.
    pub alone: bool,
    /// The lock, and `TAKES`, `GIVES` or `KEEPS`.
    pub lock: Option<(String, String)>,
}

/// The operands of each line of `isa/natives.def` that begins with a prefix.
fn lines(prefix: &'static str) -> impl Iterator<Item = Vec<String>> {
    include_str!("../../isa/natives.def")
        .lines()
        .filter_map(move |line| line.strip_prefix(prefix)?.split_once(')'))
        .map(|(inside, _)| inside.split(',').map(|word| word.trim().into()).collect())
}

/// The whole table.
pub fn natives() -> Vec<Native> {
    let plain = |alone: bool| {
        move |words: Vec<String>| match <[String; 2]>::try_from(words) {
            Ok([function, kind]) => Some(Native {
                function,
                kind,
                alone,
                lock: None,
            }),
            Err(_) => None,
        }
    };
    let lock = |words: Vec<String>| match <[String; 4]>::try_from(words) {
        Ok([lock, role, function, kind]) => Some(Native {
            function,
            kind,
            alone: true,
            lock: Some((lock, role)),
        }),
        Err(_) => None,
    };
    lines("NATIVE(")
        .filter_map(plain(false))
        .chain(lines("NATIVE_ALONE(").filter_map(plain(true)))
        .chain(lines("NATIVE_LOCK(").filter_map(lock))
        .collect()
}

/// The kernel functions that are replaced.
pub fn native_names() -> Vec<String> {
    natives()
        .into_iter()
        .map(|native| native.function)
        .collect()
}

/// `NATIVE_TAKES` and `NATIVE_GIVES` of `src/runtime/executor.h`: what is held at a hand-back is counted.
fn role_bit(native: &Native) -> u32 {
    match &native.lock {
        Some((_, role)) if role == "TAKES" => 1 << 8,
        Some((_, role)) if role == "GIVES" => 1 << 9,
        _ => 0,
    }
}

/// What is replaced in a guest: address and number of the replacement. A function that the guest has
/// itself is replaced only where nothing of it outlives the call.
pub fn natives_of(guest: &Guest) -> Vec<(u32, u32)> {
    let kinds: Vec<String> = lines("NATIVE_KIND(")
        .filter_map(|words| words.into_iter().next())
        .collect();
    let stubs = guest
        .symbols
        .get(STUBS)
        .map(|start| *start..*start + 4 * MAX_STUBS as u32);
    natives()
        .iter()
        .filter_map(|native| {
            let address = *guest.symbols.get(&native.function)?;
            let lacking = stubs.as_ref().is_some_and(|stubs| stubs.contains(&address));
            if native.alone && !lacking {
                return None;
            }
            let kind = kinds.iter().position(|known| *known == native.kind)?;
            Some((address, kind as u32 | role_bit(native)))
        })
        .collect()
}

/// At an address the executor hands back to the big core.
pub fn hand_back_at(address: u32) -> (u32, u32) {
    let kind = lines("NATIVE_KIND(").position(|words| words[0] == "FALLBACK");
    (address, kind.unwrap_or_default() as u32)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn guest_with(functions: impl Iterator<Item = String>, stubs: bool) -> Guest {
        let mut symbols: BTreeMap<String, u32> = functions
            .enumerate()
            .map(|(index, name)| (name, 0x8000 + 4 * index as u32))
            .collect();
        if stubs {
            symbols.insert(STUBS.into(), 0x8000);
        }
        Guest {
            base: 0,
            memory: vec![0; 1 << 20],
            text_start: 0x8000,
            text_end: 0x9000,
            end: 0x9000,
            symbols,
        }
    }

    #[test]
    fn every_line_of_the_table_has_a_known_replacement() {
        let table = natives();
        assert!(table.len() > 60 && table.len() <= MAX_STUBS);
        let guest = guest_with(native_names().into_iter(), true);
        assert_eq!(natives_of(&guest).len(), table.len());
        let names: BTreeSet<String> = native_names().into_iter().collect();
        assert_eq!(names.len(), table.len(), "a function is there twice");
    }

    /// What a pair of functions does to the interrupt mask.
    fn effect(kind: &str) -> &str {
        match kind {
            "IRQ_MASK" | "IRQ_UNMASK" => "mask",
            "IRQ_SAVE" | "IRQ_RESTORE" => "state",
            "NOTHING" | "ZERO" | "ONE" => "none",
            other => panic!("{other} is nothing that a lock does"),
        }
    }

    /// For each lock: how it can be taken, and how it can be given back.
    fn locks() -> BTreeMap<String, [BTreeSet<String>; 2]> {
        let mut locks: BTreeMap<String, [BTreeSet<String>; 2]> = BTreeMap::new();
        for native in natives() {
            let Some((lock, role)) = native.lock else {
                continue;
            };
            let side = match role.as_str() {
                "TAKES" => 0,
                "GIVES" => 1,
                "KEEPS" => continue,
                other => panic!("{other}: TAKES, GIVES or KEEPS"),
            };
            locks.entry(lock).or_default()[side].insert(effect(&native.kind).into());
        }
        locks
    }

    #[test]
    fn whatever_takes_a_lock_has_its_counterpart_with_the_same_effect_on_interrupts() {
        let locks = locks();
        assert!(locks.len() >= 7, "{locks:?}");
        for (lock, [takes, gives]) in locks {
            assert_eq!(takes, gives, "{lock}");
        }
    }

    /// Names by which a kernel takes and gives back locks, whatever they do besides.
    fn is_of_a_lock(name: &str) -> bool {
        [
            "mutex_",
            "down",
            "up_",
            "_raw_spin_",
            "_raw_read_",
            "_raw_write_",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
            || name == "up"
            || name.contains("lock")
    }

    #[test]
    fn no_lock_of_a_kernel_is_taken_without_the_kernels_own_code() {
        // A kernel has all of these itself.
        let kernel = guest_with(native_names().into_iter(), false);
        let names: BTreeMap<u32, &String> = kernel.symbols.iter().map(|(n, a)| (*a, n)).collect();
        let served = natives_of(&kernel);
        assert!(!served.is_empty());
        for (address, _) in served {
            assert!(!is_of_a_lock(names[&address]), "{}", names[&address]);
        }
    }

    #[test]
    fn every_function_with_a_locks_name_says_which_lock_it_is_of() {
        for native in natives() {
            assert_eq!(
                native.lock.is_some(),
                is_of_a_lock(&native.function),
                "{}",
                native.function
            );
        }
    }
}
