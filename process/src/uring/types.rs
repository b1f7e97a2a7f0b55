//! Where the fields of the kernel's structures are, by its own description of its types (BTF).

use std::ffi::CString;

use dormouse_bpf::libbpf_rs::AsRawLibbpf;
use dormouse_bpf::libbpf_rs::btf::types::{Composite, MemberAttr};
use dormouse_bpf::libbpf_rs::btf::{Btf, BtfType, TypeId};
use dormouse_bpf::libbpf_sys;

/// A structure without a name, in another one, and so on.
const DEPTH_MAX: u32 = 8;

/// Why a description cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoType {
    #[error("the kernel's description of its types (/sys/kernel/btf/vmlinux) cannot be read: {0}")]
    Unreadable(String),
    #[error("the kernel has no structure {0}")]
    Structure(&'static str),
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

/// The running kernel's description.
pub struct Types(Btf<'static>);

/// A member: its type, and its first bit and number of bits; 0 bits: as many as the type has.
struct Member {
    kind: TypeId,
    bit: u32,
    bits: u32,
}

impl Types {
    /// Reads it.
    ///
    /// # Errors
    /// The kernel has none, or it cannot be read.
    pub fn of_kernel() -> Result<Self, NoType> {
        let unreadable = |error| NoType::Unreadable(format!("{error}"));
        Btf::from_vmlinux().map(Self).map_err(unreadable)
    }

    /// The place of a field of a structure; `path` may lead through structures within it (`"a.b"`).
    ///
    /// # Errors
    /// There is no such structure, or no such field.
    pub fn place(&self, structure: &'static str, path: &'static str) -> Result<Place, NoType> {
        let missing = || NoType::Field(structure, path);
        let mut kind = self.structure(structure)?;
        let mut place = Place { bit: 0, bits: 0 };
        for name in path.split('.') {
            let found = self.member(kind, name, 0).ok_or_else(missing)?;
            place.bit = place.bit.saturating_add(found.bit);
            place.bits = match found.bits {
                0 => self.bits(found.kind).ok_or_else(missing)?,
                bits => bits,
            };
            kind = found.kind;
        }
        Ok(place)
    }

    /// The length of a structure, bytes.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn bytes_of(&self, structure: &'static str) -> Result<usize, NoType> {
        let bits = self.bits(self.structure(structure)?);
        let bits = bits.ok_or(NoType::Structure(structure))?;
        Ok(bits as usize / 8)
    }

    fn structure(&self, name: &'static str) -> Result<TypeId, NoType> {
        let none = NoType::Structure(name);
        let text = CString::new(name).map_err(|_| none.clone())?;
        let (btf, kind) = (self.0.as_libbpf_object(), libbpf_sys::BTF_KIND_STRUCT);
        // SAFETY: the description and the name live.
        let found =
            unsafe { libbpf_sys::btf__find_by_name_kind(btf.as_ptr(), text.as_ptr(), kind) };
        u32::try_from(found).map(TypeId::from).map_err(|_| none)
    }

    /// A member by its name, also one of a structure or union within, which has no name.
    fn member(&self, kind: TypeId, name: &str, depth: u32) -> Option<Member> {
        let kind: BtfType<'_> = self.0.type_by_id(kind)?;
        let composite = Composite::try_from(kind.skip_mods_and_typedefs()).ok()?;
        for member in (0..composite.len()).filter_map(|index| composite.get(index)) {
            let (bit, bits) = match member.attr {
                MemberAttr::Normal { offset } => (offset, 0),
                MemberAttr::BitField { size, offset } => (offset, size.into()),
            };
            match member.name {
                Some(its) if its == name => {
                    let kind = member.ty;
                    return Some(Member { kind, bit, bits });
                }
                None if depth < DEPTH_MAX => {
                    if let Some(mut found) = self.member(member.ty, name, depth + 1) {
                        found.bit = found.bit.saturating_add(bit);
                        return Some(found);
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn bits(&self, kind: TypeId) -> Option<u32> {
        // SAFETY: the description lives.
        let bytes = unsafe {
            libbpf_sys::btf__resolve_size(self.0.as_libbpf_object().as_ptr(), kind.into())
        };
        u32::try_from(bytes).ok()?.checked_mul(8)
    }
}
