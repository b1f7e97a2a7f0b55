//! The function pruner's table, `isa/natives.def`: which kernel functions are replaced, and by what.

use crate::guest::Guest;

/// The two operands of each line of `isa/natives.def` that begins with a prefix.
fn native_lines(prefix: &'static str) -> impl Iterator<Item = (String, String)> {
    include_str!("../../isa/natives.def")
        .lines()
        .filter_map(move |line| line.strip_prefix(prefix)?.split_once(')'))
        .filter_map(|(inside, _)| inside.split_once(','))
        .map(|(one, two)| (one.trim().to_owned(), two.trim().to_owned()))
}

/// The kernel functions that are replaced.
pub fn native_names() -> Vec<String> {
    native_lines("NATIVE(").map(|(name, _)| name).collect()
}

/// `isa/natives.def`: which kernel function is replaced by what.
pub fn natives_of(guest: &Guest) -> Vec<(u32, u32)> {
    let kinds: Vec<String> = native_lines("NATIVE_KIND(").map(|(kind, _)| kind).collect();
    native_lines("NATIVE(")
        .filter_map(|(function, kind)| {
            let address = *guest.symbols.get(&function)?;
            let kind = kinds.iter().position(|known| *known == kind)?;
            Some((address, kind as u32))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_replacement_is_one_of_at_most_twelve_kinds() {
        let text = include_str!("../../isa/natives.def");
        let count = |prefix| text.lines().filter(|l| l.starts_with(prefix)).count();
        assert!(count("NATIVE_KIND(") <= 12);
        let symbols = text
            .lines()
            .filter_map(|line| line.strip_prefix("NATIVE("))
            .filter_map(|rest| rest.split_once(','))
            .map(|(name, _)| (name.to_owned(), 4))
            .collect();
        let guest = Guest {
            base: 0,
            memory: vec![0; 1 << 20],
            text_start: 0x8000,
            text_end: 0x9000,
            end: 0x9000,
            symbols,
        };
        assert_eq!(natives_of(&guest).len(), count("NATIVE("));
    }
}
