//! Mounted file systems, from `/proc/self/mounts`.

use std::io;

use crate::Root;

/// One line of `/proc/self/mounts`, its octal escapes undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// A device, or a word such as `proc`.
    pub source: String,
    /// Where it is mounted.
    pub point: String,
    /// The file system: `ext4`, `cgroup2`.
    pub kind: String,
    /// Options, separated by commas.
    pub options: String,
}

impl Mount {
    /// Whether it has an option.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// The mounts that this process sees, in the order in which they were made: of several on one
/// mount point, the last one is visible.
///
/// # Errors
/// `/proc/self/mounts` cannot be read.
pub fn read(root: &Root) -> io::Result<Vec<Mount>> {
    Ok(parse(&root.read("proc/self/mounts")?))
}

/// Parses `/proc/self/mounts`; skips lines with too few fields.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ').map(unescape);
            Some(Mount {
                source: words.next()?,
                point: words.next()?,
                kind: words.next()?,
                options: words.next()?,
            })
        })
        .collect()
}

/// Undoes the octal escapes (`\040`) that the kernel writes for white space in names. An escape
/// that is none, or that stands for a byte outside ASCII, stays as it is.
pub fn unescape(text: &str) -> String {
    let mut name = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, from) = rest.split_at(at);
        name.push_str(before);
        let code = from
            .get(1..4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
            .filter(u8::is_ascii);
        match code {
            Some(code) => {
                name.push(char::from(code));
                rest = &from[4..];
            }
            None => {
                name.push('\\');
                rest = &from[1..];
            }
        }
    }
    name + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_have_their_names_and_options() {
        let text = "rootfs / rootfs rw 0 0\n/dev/vda /mnt/a\\040b ext4 rw,nosuid 0 0\nshort /\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[1].point, "/mnt/a b");
        assert!(mounts[1].has_option("nosuid") && !mounts[1].has_option("suid"));
    }

    #[test]
    fn only_octal_escapes_of_ascii_are_undone() {
        for (text, name) in [
            ("a\\040b\\134", "a b\\"),
            ("a\\999", "a\\999"),
            ("\\377", "\\377"),
        ] {
            assert_eq!(unescape(text), name);
        }
    }

    #[test]
    fn this_machine_has_proc_mounted() {
        let mounts = read(&Root::host()).unwrap();
        assert!(mounts.iter().any(|mount| mount.kind == "proc"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "([ -~é\\\\]|\n){0,200}") {
            let _ = parse(&text);
        }
    }
}
