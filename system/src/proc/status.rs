//! `/proc/PID/status`, the lines `Name:\tvalue`.

/// The text of a `status` file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status(pub String);

impl Status {
    /// The value of a line, without white space around it.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.0, name)
    }

    /// A number in a line; a unit behind it (`kB`) is ignored.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    }

    /// Whether the process has a capability in its effective set, by its number in capability.h.
    pub fn has_capability(&self, capability: u32) -> bool {
        let mask = self
            .field("CapEff")
            .and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_some_and(|mask| mask.checked_shr(capability).unwrap_or(0) & 1 == 1)
    }
}

/// The value of a `Name:\tvalue` line in any file of that form (`status`, `fdinfo`).
pub fn field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let status = Status("Name:\tx\nVmRSSx:\t1\nVmRSS:\t  12 kB\nSeccomp:\t0\n".into());
        assert_eq!(status.field("VmRSS"), Some("12 kB"));
        assert_eq!(
            (status.number("VmRSS"), status.number("Vm")),
            (Some(12), None)
        );
    }

    #[test]
    fn capabilities_are_bits_of_the_effective_set() {
        let status = Status("CapPrm:\tffff\nCapEff:\t0000000000200000\n".into());
        assert!(status.has_capability(21) && !status.has_capability(20));
        assert!(!status.has_capability(64) && !Status::default().has_capability(0));
    }
}
