//! The format page agrees with the code.

use std::mem::offset_of;

use dormouse_image::Reason;
use dormouse_image::check::Header;

const PAGE: &str = include_str!("../../../docs/reference/image-format.md");

macro_rules! fields {
    ($($field:ident)*) => { [$((stringify!($field), offset_of!(Header, $field))),*] };
}

#[test]
fn the_page_lists_each_header_field_at_its_offset() {
    let fields = fields!(
        magic version header_bytes generation state flags cxl_base cxl_bytes reserved_bytes
        dram_bytes dram_pages memory_map_digest device_serial dirty_shutdown_count
        dram_bitmap_offset dram_bitmap_bytes dram_bitmap_digest cxl_bitmap_offset
        cxl_bitmap_bytes cxl_bitmap_digest data_offset request_pages saved_pages saved_digest
        restored_pages wake_vector restore_attempts kind sleep_count resume_count
        last_outcome last_reason last_detail phase persistence user_check user_table_offset
        user_table_bytes user_table_digest user_groups user_pages encryption snapshot
        reserved header_digest
    );
    let ends = fields
        .iter()
        .skip(1)
        .map(|&(_, offset)| offset)
        .chain([size_of::<Header>()]);
    for ((name, offset), end) in fields.into_iter().zip(ends) {
        let row = format!("| {offset} | {} | `{name}` |", end - offset);
        assert!(PAGE.contains(&row), "no row {row}");
    }
}

#[test]
fn the_page_lists_each_reason_with_its_number() {
    for reason in Reason::all() {
        let cell = format!("| {} | `{}` |", reason.0, reason.name());
        assert!(PAGE.contains(&cell), "no cell {cell}");
    }
}
