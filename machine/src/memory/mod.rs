//! Which memory lies on which node, and which process, file or pool it belongs to.

pub mod mappings;
pub mod numa_maps;
pub mod owners;
pub mod unmapped;
