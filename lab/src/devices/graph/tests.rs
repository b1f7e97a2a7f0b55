//! Made-up graphs: bounds, and the text that the test module reads.

use super::*;

fn chain() -> Graph {
    let device = |parent, us| Device {
        parent,
        phases: [Duration { us, busy: false }; 6],
        ..Device::default()
    };
    Graph {
        devices: vec![
            device(None, 10),
            device(Some(0), 20),
            device(None, 25),
            device(Some(1), 5),
        ],
        links: Vec::new(),
    }
}

#[test]
fn the_bound_is_the_longest_path_or_the_shared_work_or_a_bus() {
    let mut graph = chain();
    assert_eq!(graph.lower_bound_us(0, 2), 35);
    assert_eq!(graph.sum_us(0), 60);
    for device in &mut graph.devices {
        device.phases[0].busy = true;
    }
    assert_eq!(graph.lower_bound_us(0, 1), 60);
    assert_eq!(graph.lower_bound_us(0, 2), 35);
    for device in &mut graph.devices {
        device.bus = Some(3);
    }
    assert_eq!(graph.lower_bound_us(0, 2), 60);
}

#[test]
fn the_text_is_what_the_test_module_reads() {
    let mut graph = chain();
    graph.devices[1].permitted = true;
    graph.devices[1].phases = [Duration::default(); 6];
    graph.devices[1].phases[5] = Duration { us: 7, busy: true };
    graph.links.push(Link {
        supplier: 2,
        consumer: 1,
        kind: LinkKind::Managed,
    });
    let text = graph.text(false);
    assert!(
        text.contains("device d1 parent=d0 async resume=7:busy\n"),
        "{text}"
    );
    assert!(text.ends_with("link d2 d1 managed\n"), "{text}");
}

#[test]
fn what_depends_on_an_unused_device_is_unused() {
    let mut graph = chain();
    assert_eq!(graph.leave_unused(3), 0);
    graph.devices[1].phases[0].us = 2000;
    assert_eq!(graph.leave_unused(0), 0);
    assert_eq!(graph.leave_unused(3), 2);
    let direct = |device: &Device| device.direct;
    let left: Vec<bool> = graph.devices.iter().map(direct).collect();
    assert_eq!(left, [false, true, false, true]);
}

#[test]
fn random_graphs_have_no_circle() {
    for seed in 0..200 {
        let graph = Graph::random(&mut Dice::new(seed, 0));
        for (device, superiors) in graph.superiors().iter().enumerate() {
            assert!(!superiors[device], "seed {seed}");
        }
    }
}
