//! The C checks of headers and images, safely.

use crate::names::Reason;
use crate::sys;

pub use crate::sys::dormouse_header as Header;

/// Bytes of one copy of the header.
pub const HEADER_BYTES: usize = sys::DORMOUSE_HEADER_BYTES as usize;
/// Copies of the header in a window.
pub const HEADER_COPIES: usize = sys::DORMOUSE_HEADER_COPIES as usize;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = sys::DORMOUSE_PAGE_BYTES as u64;

/// Both header copies, aligned as the C functions need them.
pub type HeaderCopies = Box<[Header; HEADER_COPIES]>;

/// The header in these bytes, whatever they hold.
pub fn header_from(bytes: &[u8; HEADER_BYTES]) -> Box<Header> {
    let mut header = Box::<Header>::default();
    // SAFETY: both sides have HEADER_BYTES bytes, and each bit pattern is a valid Header,
    // which consists of integers without padding.
    unsafe {
        (&raw mut *header)
            .cast::<[u8; HEADER_BYTES]>()
            .write(*bytes)
    };
    header
}

/// The header's bytes as they lie on the device.
pub fn header_bytes(header: &Header) -> &[u8; HEADER_BYTES] {
    // SAFETY: a Header has exactly HEADER_BYTES bytes and no padding.
    unsafe { &*(&raw const *header).cast() }
}

/// Magic, version, size, digest, flags and state number of one copy.
pub fn header(header: &Header) -> Reason {
    // SAFETY: reads the header only.
    Reason(unsafe { sys::dormouse_header_check(header) })
}

/// Index of the copy that counts.
///
/// # Errors
/// Why neither of them is valid.
pub fn select(copies: &[Header; HEADER_COPIES]) -> Result<usize, Reason> {
    let mut why = sys::DORMOUSE_OK;
    // SAFETY: two copies are there, and `why` is a valid place for the reason.
    let index = unsafe { sys::dormouse_header_select(copies.as_ptr(), &mut why) };
    usize::try_from(index).map_err(|_| Reason(why))
}

/// What a checker knows by itself: the CXL window and the RAM that firmware gives to the OS.
#[derive(Clone)]
pub struct Geometry(pub(crate) sys::dormouse_geometry);

impl Geometry {
    /// `ranges`: base and bytes of each, ascending.
    ///
    /// # Errors
    /// `memory-map` when there are more ranges than the format allows.
    pub fn new(
        cxl_base: u64,
        cxl_bytes: u64,
        reserved_bytes: u64,
        ranges: &[(u64, u64)],
    ) -> Result<Self, Reason> {
        let mut geometry = sys::dormouse_geometry {
            cxl_base,
            cxl_bytes,
            reserved_bytes,
            range_count: ranges.len() as u32,
            ..Default::default()
        };
        if ranges.len() > geometry.range.len() {
            return Err(Reason::MEMORY_MAP);
        }
        for (range, &(base, bytes)) in geometry.range.iter_mut().zip(ranges) {
            *range = sys::dormouse_range { base, bytes };
        }
        Ok(Self(geometry))
    }

    /// The same with this device's identity.
    pub fn with_device(mut self, serial: u64, dirty_shutdown_count: u64) -> Self {
        self.0.device_serial = serial;
        self.0.dirty_shutdown_count = dirty_shutdown_count;
        self
    }

    /// Checks the geometry itself: [`Reason::OK`], or the rule that it breaks.
    pub fn check(&self) -> Reason {
        // SAFETY: reads the geometry only.
        Reason(unsafe { sys::dormouse_geometry_check(&self.0) })
    }

    /// Whether `[base, base + bytes)` lies wholly in RAM.
    pub fn contains(&self, base: u64, bytes: u64) -> bool {
        // SAFETY: reads the geometry only.
        unsafe { sys::dormouse_geometry_contains(&self.0, base, bytes) != 0 }
    }

    /// A fresh EMPTY header, with history from `previous`.
    pub fn new_header(&self, previous: Option<&Header>) -> Box<Header> {
        let mut header = Box::<Header>::default();
        let previous = previous.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: writes one whole header; `previous` is NULL or a valid header.
        unsafe { sys::dormouse_header_init(&mut *header, &self.0, previous) };
        header
    }
}

/// What was refused, and of it the page frame, offset, number or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, thiserror::Error)]
#[error("{reason} (detail {detail:#x})")]
pub struct Refusal {
    /// The reason of the refusal.
    pub reason: Reason,
    /// The page frame, offset, number or bytes that were refused.
    pub detail: u64,
}

impl Reason {
    /// The verdict of a check as a result.
    pub(crate) fn passed(self, detail: u64) -> Result<(), Refusal> {
        if self.is_ok() {
            return Ok(());
        }
        Err(Refusal {
            reason: self,
            detail,
        })
    }
}

/// Panics unless the C functions find all that a layout which they accept lets them read.
fn assert_readable(header: &Header, geometry: &Geometry, window: &[u64]) {
    let readable = size_of_val(window) as u64;
    assert!(
        header.data_offset <= readable || header.data_offset > geometry.0.reserved_bytes,
        "the window must reach to data_offset"
    );
}

/// The whole image except its saved pages, as firmware checks it. `window` is the CXL
/// window, at least up to the header's `data_offset`.
///
/// # Errors
/// The first thing that is wrong.
///
/// # Panics
/// When `window` is shorter.
pub fn image(
    header: &Header,
    geometry: &Geometry,
    window: &[u64],
    allowed_states: u32,
) -> Result<(), Refusal> {
    assert_readable(header, geometry, window);
    let mut detail = 0;
    // SAFETY: the layout check lets only bitmaps pass that end at or before data_offset, and
    // refuses a data_offset above reserved_bytes before reading anything; see the assertion.
    let reason = Reason(unsafe {
        sys::dormouse_image_check(
            header,
            &geometry.0,
            window.as_ptr().cast(),
            allowed_states,
            &mut detail,
        )
    });
    reason.passed(detail)
}

/// Bytes that saving needs and bytes that free CXL pages offer, as for the mailbox.
///
/// # Panics
/// As [`image`].
pub fn space(header: &Header, geometry: &Geometry, window: &[u64]) -> (Reason, u64, u64) {
    assert_readable(header, geometry, window);
    let (mut needed, mut available) = (0, 0);
    // SAFETY: as in `image`.
    let reason = unsafe {
        sys::dormouse_image_space(
            header,
            &geometry.0,
            window.as_ptr().cast(),
            &mut needed,
            &mut available,
        )
    };
    (Reason(reason), needed, available)
}
