//! Images that hold the kernel's own snapshot: what a checker knows by itself, and the C checks.

use crate::check::{Geometry, Header, Refusal};
use crate::names::Reason;
use crate::sys;
use crate::user_pages::{GROUP_BYTES, GROUP_PAGES};

/// What only such an image compares; see `struct dormouse_snapshot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Machine {
    /// Of the running kernel's release, version and build.
    pub kernel_digest: u64,
    /// Of firmware's whole memory map.
    pub firmware_map_digest: u64,
    /// The device for user pages: physical address and bytes.
    pub node_base: u64,
    /// Bytes of that device.
    pub node_bytes: u64,
    /// Pages of memory that the kernel counts; when waking, without the node.
    pub present_pages: u64,
}

/// What a checker knows: the machine, and the head as the window of `geometry`.
#[derive(Clone)]
pub struct Facts(sys::dormouse_snapshot_facts);

impl Facts {
    /// `geometry`: the head is its window, all of it reserved.
    pub fn new(geometry: &Geometry, machine: Machine) -> Facts {
        Facts(sys::dormouse_snapshot_facts {
            geometry: geometry.0,
            snapshot: sys::dormouse_snapshot {
                kernel_digest: machine.kernel_digest,
                firmware_map_digest: machine.firmware_map_digest,
                node_base: machine.node_base,
                node_bytes: machine.node_bytes,
                present_pages: machine.present_pages,
                node_present_pages: 0,
                room: [0; 8],
            },
        })
    }

    /// A fresh EMPTY header, with history from `previous`.
    ///
    /// # Errors
    /// Why these facts have no layout.
    pub fn new_header(&self, previous: Option<&Header>) -> Result<Box<Header>, Reason> {
        let mut header = Box::<Header>::default();
        let previous = previous.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: writes one whole header; `previous` is NULL or a valid header.
        let reason =
            Reason(unsafe { sys::dormouse_snapshot_init(&mut *header, &self.0, previous) });
        if reason.is_ok() {
            Ok(header)
        } else {
            Err(reason)
        }
    }

    /// Groups of the node, each with one word of the bitmap and of the table.
    pub fn groups(&self) -> u64 {
        // SAFETY: takes any number.
        unsafe { sys::dormouse_groups(self.0.snapshot.node_bytes) }
    }

    /// The whole image except the snapshot itself. `window`: the head, at least up to the
    /// header's `data_offset`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    ///
    /// # Panics
    /// When `window` is shorter and the layout would let it be read.
    pub fn check(
        &self,
        header: &Header,
        window: &[u64],
        allowed_states: u32,
    ) -> Result<(), Refusal> {
        assert!(
            header.data_offset <= size_of_val(window) as u64 || self.layout_differs(header),
            "the window must reach to data_offset"
        );
        let mut detail = 0;
        // SAFETY: only the one layout of these facts passes, whose parts end at or before
        // data_offset; see the assertion.
        let reason = Reason(unsafe {
            sys::dormouse_snapshot_check(
                header,
                &self.0,
                window.as_ptr().cast(),
                allowed_states,
                &mut detail,
            )
        });
        reason.passed(detail)
    }

    fn layout_differs(&self, header: &Header) -> bool {
        self.new_header(None)
            .map_or(true, |own| own.data_offset != header.data_offset)
    }

    /// Compares the user pages that have a digest. `window` as for [`Facts::check`], which must
    /// have passed; `node`: the node's memory from its start.
    ///
    /// # Errors
    /// `user-digest`, with the group that differs.
    ///
    /// # Panics
    /// When `window` or `node` is too short.
    pub fn compare(
        &self,
        header: &Header,
        window: &[u64],
        node: Mapped<'_>,
    ) -> Result<(), Refusal> {
        assert!(header.data_offset <= size_of_val(window) as u64);
        assert!(node.bytes as u64 >= self.0.snapshot.node_bytes);
        assert_eq!(header.snapshot.node_bytes, self.0.snapshot.node_bytes);
        let groups = self.groups();
        // SAFETY: bitmap and table lie in `window`, all groups in `node`.
        let differs = unsafe {
            sys::dormouse_snapshot_compare(
                header,
                window.as_ptr().cast(),
                node.at.cast(),
                0,
                groups,
            )
        };
        if differs >= groups {
            return Ok(());
        }
        Err(Refusal {
            reason: Reason::USER_DIGEST,
            detail: differs,
        })
    }
}

/// Memory that others may write, so no slice.
#[derive(Clone, Copy)]
pub struct Mapped<'a> {
    pub(crate) at: *const u8,
    pub(crate) bytes: usize,
    pub(crate) _of: std::marker::PhantomData<&'a ()>,
}

impl<'a> Mapped<'a> {
    /// A plain slice, for tests.
    pub fn from_slice(bytes: &'a [u8]) -> Mapped<'a> {
        Mapped {
            at: bytes.as_ptr(),
            bytes: bytes.len(),
            _of: std::marker::PhantomData,
        }
    }
}

/// Whether the snapshot is cipher text.
pub fn is_sealed(header: &Header) -> bool {
    header.flags & sys::DORMOUSE_FLAG_ENCRYPTED != 0
}

/// Bytes of the table of tags for a sealed snapshot of so many bytes.
pub fn tag_table_bytes(bytes: u64) -> u64 {
    // SAFETY: takes any number.
    unsafe { sys::dormouse_tag_table_bytes(bytes) }
}

/// The number of groups whose pages `bytes` hold, and their size.
pub const fn group_bytes() -> usize {
    GROUP_BYTES
}

/// Words of a bitmap or of a table for a device of this size.
pub const fn words(node_bytes: u64) -> u64 {
    (node_bytes / crate::check::PAGE_BYTES).div_ceil(GROUP_PAGES)
}
