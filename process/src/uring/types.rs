//! Where the fields of the kernel's structures are, by its own description of its types (BTF,
//! Documentation/bpf/btf.rst). Pure.

use std::ops::Range;

const MAGIC: u16 = 0xeb9f;
const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// typedef, volatile, const, restrict, type tag: names of another type.
const NAMES: [u32; 5] = [8, 9, 10, 11, 18];
const KIND_MAX: u32 = 19;

/// Why a description cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoType {
    #[error("the kernel's description of its types (/sys/kernel/btf/vmlinux) is malformed: {0}")]
    Malformed(&'static str),
    #[error("the kernel has no structure {0}")]
    Structure(String),
    #[error("the kernel's structure {0} has no field {1}")]
    Field(&'static str, &'static str),
}

/// Place of a field: the first bit from the start of its structure, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub bit: u32,
    pub bits: u32,
}

impl Place {
    /// The first byte.
    pub fn byte(self) -> usize {
        self.bit as usize / 8
    }

    /// The value in the bytes of its structure; none where they are too few, or the field is longer than
    /// a word.
    pub fn value(self, bytes: &[u8]) -> Option<u64> {
        let (first, shift) = (self.byte(), self.bit % 8);
        if self.bits == 0 || self.bits > 64 - shift {
            return None;
        }
        let length = (self.bits + shift).div_ceil(8) as usize;
        let mut word = [0u8; 8];
        word[..length].copy_from_slice(bytes.get(first..first + length)?);
        let value = u64::from_le_bytes(word) >> shift;
        Some(value & (u64::MAX >> (64 - self.bits)))
    }
}

/// A description, with the place of each of its types.
pub struct Types {
    bytes: Vec<u8>,
    /// By number; 0 is void.
    at: Vec<usize>,
    strings: Range<usize>,
}

struct Member {
    kind: u32,
    bit: u32,
    /// Of a bit field.
    bits: u32,
}

impl Types {
    /// Reads a description.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, NoType> {
        let short = NoType::Malformed("it is too short");
        let word = |at: usize| word(&bytes, at).ok_or(short.clone());
        if word(0)? as u16 != MAGIC {
            return Err(NoType::Malformed("it begins with other bytes"));
        }
        let [header, types, type_bytes, strings, string_bytes] = [4, 8, 12, 16, 20].map(word);
        let header = header? as usize;
        let section = |start: u32, length: u32| {
            let start = header + start as usize;
            start..start + length as usize
        };
        let types = section(types?, type_bytes?);
        let strings = section(strings?, string_bytes?);
        if types.end > bytes.len() || strings.end > bytes.len() {
            return Err(short);
        }
        let mut at = vec![0];
        let mut next = types.start;
        while next < types.end {
            at.push(next);
            let information = word(next + 4)?;
            let (kind, count) = (information >> 24 & 31, (information & 0xffff) as usize);
            next += 12
                + match kind {
                    INT | 14 | 17 => 4,
                    ARRAY => 12,
                    STRUCT | UNION | 15 | 19 => 12 * count,
                    6 | 13 => 8 * count,
                    0 | 13.. if kind == 0 || kind > KIND_MAX => {
                        return Err(NoType::Malformed("it has a type of an unknown kind"));
                    }
                    _ => 0,
                };
        }
        Ok(Self { bytes, at, strings })
    }

    /// The place of a field of a structure; `path` may lead through structures within it (`"a.b"`).
    pub fn place(&self, structure: &'static str, path: &'static str) -> Result<Place, NoType> {
        let missing = || NoType::Field(structure, path);
        let mut kind = self
            .structure(structure)
            .ok_or_else(|| NoType::Structure(structure.to_owned()))?;
        let mut place = Place { bit: 0, bits: 0 };
        for name in path.split('.') {
            let found = self.member(kind, name, 0).ok_or_else(missing)?;
            place.bit = place.bit.saturating_add(found.bit);
            place.bits = match found.bits {
                0 => self.bits(found.kind, 0).ok_or_else(missing)?,
                bits => bits,
            };
            kind = self.named(found.kind).ok_or_else(missing)?;
        }
        Ok(place)
    }

    /// The length of a structure, bytes.
    pub fn bytes_of(&self, structure: &str) -> Result<usize, NoType> {
        let found = self
            .structure(structure)
            .and_then(|kind| self.bits(kind, 0));
        found
            .map(|bits| bits as usize / 8)
            .ok_or_else(|| NoType::Structure(structure.to_owned()))
    }

    fn word(&self, kind: u32, index: usize) -> Option<u32> {
        word(&self.bytes, self.at.get(kind as usize)? + index * 4)
    }

    fn kind(&self, kind: u32) -> Option<u32> {
        Some(self.word(kind, 1)? >> 24 & 31)
    }

    fn is_name(&self, at: u32, name: &str) -> bool {
        let start = self.strings.start + at as usize;
        let end = start + name.len();
        end < self.strings.end && &self.bytes[start..end] == name.as_bytes() && self.bytes[end] == 0
    }

    fn structure(&self, name: &str) -> Option<u32> {
        (1..self.at.len() as u32).find(|&kind| {
            self.kind(kind) == Some(STRUCT)
                && self.word(kind, 0).is_some_and(|at| self.is_name(at, name))
        })
    }

    /// The type behind names of it.
    fn named(&self, mut kind: u32) -> Option<u32> {
        for _ in 0..32 {
            if !NAMES.contains(&self.kind(kind)?) {
                return Some(kind);
            }
            kind = self.word(kind, 2)?;
        }
        None
    }

    /// A member by its name, also one of a structure or union within, which has no name.
    fn member(&self, kind: u32, name: &str, depth: u32) -> Option<Member> {
        let kind = self.named(kind)?;
        if !matches!(self.kind(kind)?, STRUCT | UNION) || depth > 8 {
            return None;
        }
        let information = self.word(kind, 1)?;
        for index in 0..(information & 0xffff) as usize {
            let [at, its, offset] = [3, 4, 5].map(|word| self.word(kind, index * 3 + word));
            let (at, its, offset) = (at?, its?, offset?);
            let has_bit_fields = information >> 31 != 0;
            let (bit, bits) = match has_bit_fields {
                true => (offset & 0xff_ffff, offset >> 24),
                false => (offset, 0),
            };
            if self.is_name(at, name) {
                return Some(Member {
                    kind: its,
                    bit,
                    bits,
                });
            }
            if self.is_name(at, "")
                && let Some(mut found) = self.member(its, name, depth + 1)
            {
                found.bit = found.bit.saturating_add(bit);
                return Some(found);
            }
        }
        None
    }

    fn bits(&self, kind: u32, depth: u32) -> Option<u32> {
        let kind = self.named(kind)?;
        match self.kind(kind)? {
            POINTER => Some(64),
            // Element, index, count.
            ARRAY if depth < 8 => {
                let element = self.bits(self.word(kind, 3)?, depth + 1)?;
                element.checked_mul(self.word(kind, 5)?)
            }
            ARRAY => None,
            _ => self.word(kind, 2)?.checked_mul(8),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}
