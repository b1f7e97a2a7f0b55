//! Huge pages of the hugetlb pool, taken from the DRAM node's part of it.

use std::fs;

use super::memory::anonymous;
use super::{Kind, Plan};
use crate::error::{Doing, GuestError};

const POOL: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
const HUGE_BYTES: usize = 2 << 20;

pub fn mapped(plan: &Plan) -> Result<Box<dyn Kind>, GuestError> {
    let pages = plan.bytes.div_ceil(HUGE_BYTES);
    fs::write(POOL, pages.to_string()).doing("fill the pool of huge pages")?;
    let found = fs::read_to_string(POOL).doing("read the pool of huge pages")?;
    if found.trim().parse() != Ok(pages) {
        return Err(GuestError::Other(format!(
            "the pool has {} huge pages instead of {pages}",
            found.trim()
        )));
    }
    let mut region = anonymous(pages * HUGE_BYTES, libc::MAP_HUGETLB)?;
    region.fill(plan.seed);
    let seed = plan.seed;
    Ok(Box::new(move || {
        region.verify(seed)?;
        let size = region.smaps("KernelPageSize");
        match size.map_err(|error| error.to_string())? {
            size if size == HUGE_BYTES as u64 => Ok(()),
            size => Err(format!("its pages have {size} bytes")),
        }
    }))
}
