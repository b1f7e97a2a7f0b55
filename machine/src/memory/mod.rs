//! Which memory lies on which node, and which process, file or pool it belongs to.

pub mod mappings;
pub mod owners;
pub mod unmapped;

use dormouse_system::proc::numa_maps::BytesByNode;

/// The node among `candidates` that holds most of the process; its pages go back there.
pub fn main_node(bytes_by_node: &BytesByNode, candidates: &[u32]) -> Option<u32> {
    bytes_by_node
        .iter()
        .filter(|(node, bytes)| candidates.contains(node) && **bytes > 0)
        .max_by_key(|(node, bytes)| (**bytes, u32::MAX - **node))
        .map(|(node, _)| *node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_node_is_the_fullest_candidate_and_the_lower_one_in_a_tie() {
        let bytes = BytesByNode::from([(0, 5), (1, 900), (2, 7), (3, 7)]);
        assert_eq!(main_node(&bytes, &[0, 2, 3]), Some(2));
        assert_eq!(main_node(&bytes, &[4]), None);
    }
}
