//! Graphs of devices: dependencies, orders, damaged files.

use super::*;

fn edge(superior: usize, subordinate: usize) -> Edge {
    Edge {
        superior,
        subordinate,
    }
}

#[test]
fn a_link_that_closes_a_cycle_is_refused_and_the_others_stay() {
    let edges = Edges::from_candidates(
        3,
        [edge(0, 1), edge(1, 2), edge(2, 0), edge(0, 2)].into_iter(),
    );
    assert_eq!(edges.refused, [edge(2, 0)]);
    assert_eq!(edges.subordinates(0), [1, 2]);
    assert_eq!(edges.superiors(2), [1, 0]);
}

#[test]
fn what_is_out_of_range_or_depends_on_itself_orders_nothing() {
    let graph = Graph {
        devices: vec![
            Device {
                parent: Some(0),
                ..Device::default()
            },
            Device {
                parent: Some(9),
                ..Device::default()
            },
        ],
        links: vec![Link {
            supplier: 1,
            consumer: 77,
            ..Link::default()
        }],
    };
    let edges = Edges::of(&graph);
    assert_eq!(edges.iter().count(), 0);
    assert_eq!(edges.devices(), 2);
}

#[test]
fn dormant_and_sync_state_links_order_nothing() {
    let devices = vec![Device::default(), Device::default()];
    let link = Link {
        supplier: 0,
        consumer: 1,
        ..Link::default()
    };
    for (link, ordered) in [
        (link.clone(), 1),
        (
            Link {
                status: LinkStatus::Dormant,
                ..link.clone()
            },
            0,
        ),
        (
            Link {
                sync_state_only: true,
                ..link
            },
            0,
        ),
    ] {
        let graph = Graph {
            devices: devices.clone(),
            links: vec![link],
        };
        assert_eq!(Edges::of(&graph).iter().count(), ordered);
    }
}

#[test]
fn the_list_has_superiors_first_and_otherwise_the_order_of_registration() {
    let edges = Edges::from_candidates(4, [edge(3, 0)].into_iter());
    assert_eq!(list_order(&edges, |device| device), [1, 2, 3, 0]);
    assert_eq!(list_order(&edges, |device| 9 - device), [3, 2, 1, 0]);
}
