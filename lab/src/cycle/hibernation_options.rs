//! Options of hibernation, the peer of Suspend-to-CXL in measurements.

use std::fmt;
use std::str::FromStr;

use dormouse_guest::protocol::SWAP_ON_PMEM;
use dormouse_system::arguments::Size;

/// How the machine is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// into CXL memory
    Cxl,
    /// to disk, with all pages in the image
    Hibernate,
    /// to disk, with pages swapped out first
    HibernateSwap,
}

impl Mode {
    /// As options and results spell it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Cxl => "cxl",
            Mode::Hibernate => "hibernate",
            Mode::HibernateSwap => "hibernate-swap",
        }
    }
}

/// What the kernel compresses the image with. Whether it has that is for the kernel to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compressor {
    None,
    Named(String),
}

impl Compressor {
    /// What the kernel's command line must say: images that are not compressed are chosen there
    /// and nowhere else.
    pub fn cmdline(&self) -> &'static str {
        match self {
            Compressor::None => "hibernate=nocompress",
            Compressor::Named(_) => "",
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Compressor::None => formatter.write_str("none"),
            Compressor::Named(name) => formatter.write_str(name),
        }
    }
}

impl FromStr for Compressor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        match text {
            "none" => Ok(Compressor::None),
            "" => Err("a compressor has a name: lzo, lz4 or none".into()),
            name if name.bytes().all(is_name) => Ok(Compressor::Named(name.to_owned())),
            name => Err(format!("{name:?} is no compressor: lzo, lz4 or none")),
        }
    }
}

/// Where the image goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SwapOn {
    /// a virtio disk
    #[default]
    Disk,
    /// the persistent memory that Suspend-to-CXL would keep programs' pages in
    Pmem,
}

impl SwapOn {
    /// What the kernel's command line must say: init in the machine finds the swap area by it.
    pub fn cmdline(self) -> &'static str {
        match self {
            SwapOn::Disk => "",
            SwapOn::Pmem => SWAP_ON_PMEM,
        }
    }
}

/// How to hibernate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hibernation {
    /// Where the image goes.
    pub swap_on: SwapOn,
    /// Let the kernel swap pages out until the image is as small as it likes; otherwise all
    /// pages are to be in the image.
    pub swap_out: bool,
    pub compressor: Compressor,
    /// The size that the kernel makes the image fit in, if it can. None: all of DRAM, or with
    /// `swap_out` the kernel's default, two fifths of DRAM.
    pub image_size: Option<Size>,
}

impl Hibernation {
    pub fn mode(&self) -> Mode {
        if self.swap_out {
            Mode::HibernateSwap
        } else {
            Mode::Hibernate
        }
    }

    /// Further words for the kernel's command line.
    pub fn cmdline(&self) -> String {
        let words = [self.compressor.cmdline(), self.swap_on.cmdline()];
        words.join(" ").trim().to_owned()
    }

    /// A swap area that takes whatever DRAM holds, and the image's own bookkeeping.
    pub fn swap_bytes(dram_bytes: u64) -> u64 {
        const BOOKKEEPING_BYTES: u64 = 64 << 20;
        dram_bytes + BOOKKEEPING_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressor_is_a_plain_word() {
        assert_eq!("none".parse(), Ok(Compressor::None));
        assert_eq!("lz4".parse(), Ok(Compressor::Named("lz4".into())));
        for text in ["", "LZ4", "lz4 lzo", "../x"] {
            assert!(text.parse::<Compressor>().is_err(), "{text}");
        }
    }
}
