//! Choice among free devices: those of one NUMA node.

use std::collections::BTreeMap;

/// Chooses `count` of the available devices, with all that must be among them. They are on the node
/// of those, otherwise on the node with the fewest free devices that suffice, so that larger
/// requests still find theirs. What is missing then comes from the other nodes, the fullest first.
pub(crate) fn choose<'a>(
    available: &[&'a str],
    required: &[&'a str],
    count: usize,
    node_of: impl Fn(&str) -> Option<u32>,
) -> Vec<&'a str> {
    let mut chosen: Vec<&str> = required.to_vec();
    let mut nodes = BTreeMap::<Option<u32>, Vec<&str>>::new();
    for device in available.iter().filter(|device| !required.contains(device)) {
        nodes.entry(node_of(device)).or_default().push(device);
    }
    let missing = count.saturating_sub(chosen.len());
    let mut order: Vec<(Option<u32>, Vec<&str>)> = nodes.into_iter().collect();
    order.sort_by_key(|(node, devices)| {
        let has_required = required.iter().any(|device| node_of(device) == *node);
        let suffices = devices.len() >= missing;
        let free = if suffices { devices.len() } else { usize::MAX - devices.len() };
        (!has_required, !suffices, free)
    });
    chosen.extend(order.into_iter().flat_map(|(_, devices)| devices).take(missing));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digit after the `n` is the node.
    fn node(device: &str) -> Option<u32> {
        device.split_once('n').and_then(|(_, node)| node.parse().ok())
    }

    #[test]
    fn devices_are_of_one_node_if_one_suffices() {
        let all = ["a-n0", "b-n1", "c-n0", "d-n1", "e-n1"];
        assert_eq!(choose(&all, &[], 2, node), ["a-n0", "c-n0"]);
        assert_eq!(choose(&all, &[], 3, node), ["b-n1", "d-n1", "e-n1"]);
        assert_eq!(choose(&all, &["d-n1"], 2, node), ["d-n1", "b-n1"]);
        assert_eq!(choose(&all, &[], 4, node), ["b-n1", "d-n1", "e-n1", "a-n0"]);
    }

    #[test]
    fn no_more_than_is_available_and_asked_for_is_chosen() {
        assert_eq!(choose(&["a-n0"], &[], 3, node), ["a-n0"]);
        assert_eq!(choose(&["a-n0", "b"], &["b"], 1, node), ["b"]);
        assert!(choose(&[], &[], 1, node).is_empty());
    }
}
