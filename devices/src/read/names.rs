//! Devices by their description in traces and logs: name, parent's name, driver.
//!
//! A name is not unique (`0`, `card0`, …), nor is it with its parent's. Where the device graph of
//! the machine is known, a device is searched in it, first by its whole description,
//! then by parts of it. If nothing matches, or no graph is known, a new device is added.

use std::collections::HashMap;

use crate::model::{Device, Graph};

/// The description of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Description<'a> {
    /// The name of the device.
    pub name: &'a str,
    /// None if the device has no parent or it is unknown.
    pub parent: Option<&'a str>,
    /// The driver.
    pub driver: &'a str,
}

/// Finds devices in a graph, and adds those that are missing.
#[derive(Debug, Default)]
pub struct Names {
    graph: Graph,
    by_name: HashMap<String, Vec<usize>>,
    known: HashMap<(String, Option<String>, String), usize>,
    /// Devices that could not be distinguished from others of the same name and parent.
    pub ambiguous: usize,
    /// Devices that the machine's graph does not have.
    pub unknown: usize,
    has_graph: bool,
}

impl Names {
    /// With the graph of the machine; an empty one where it is not known.
    pub fn new(graph: Graph) -> Names {
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, device) in graph.devices.iter().enumerate() {
            by_name.entry(device.name.clone()).or_default().push(index);
        }
        Names {
            has_graph: !graph.devices.is_empty(),
            graph,
            by_name,
            ..Names::default()
        }
    }

    /// The device that is meant.
    pub fn find(&mut self, description: Description<'_>) -> usize {
        let key = (
            description.name.to_owned(),
            description.parent.map(str::to_owned),
            description.driver.to_owned(),
        );
        if let Some(&device) = self.known.get(&key) {
            return device;
        }
        let device = self
            .look_up(description)
            .unwrap_or_else(|| self.add(description));
        self.known.insert(key, device);
        device
    }

    fn look_up(&mut self, description: Description<'_>) -> Option<usize> {
        let candidates = self.by_name.get(description.name)?;
        let devices = &self.graph.devices;
        let parent_fits = |&&index: &&usize| {
            let parent = devices[index].parent;
            parent.map(|parent| devices[parent].name.as_str()) == description.parent
        };
        let mut fitting: Vec<usize> = candidates.iter().filter(parent_fits).copied().collect();
        if fitting.len() > 1 {
            let same_driver = |&&index: &&usize| {
                let device = &devices[index];
                let of = device.driver.as_deref().or(device.subsystem.as_deref());
                of.unwrap_or_default() == description.driver
            };
            let narrowed: Vec<usize> = fitting.iter().filter(same_driver).copied().collect();
            if !narrowed.is_empty() {
                fitting = narrowed;
            }
        }
        if fitting.len() > 1 && self.has_graph {
            self.ambiguous += 1;
        }
        fitting.first().copied()
    }

    fn add(&mut self, description: Description<'_>) -> usize {
        self.unknown += usize::from(self.has_graph);
        let parent = description.parent.and_then(|parent| {
            let first = self
                .by_name
                .get(parent)
                .and_then(|all| all.first())
                .copied();
            // A device that is its own parent's namesake is not its own parent.
            first.or_else(|| (parent != description.name).then(|| self.push(parent, None, "")))
        });
        self.push(description.name, parent, description.driver)
    }

    fn push(&mut self, name: &str, parent: Option<usize>, driver: &str) -> usize {
        let index = self.graph.devices.len();
        self.graph.devices.push(Device {
            name: name.to_owned(),
            parent,
            driver: (!driver.is_empty()).then(|| driver.to_owned()),
            ..Device::default()
        });
        self.by_name.entry(name.to_owned()).or_default().push(index);
        index
    }

    /// The kernel's list, as a trace showed it from its beginning: devices get their places.
    pub fn set_list_order(&mut self, order: &[usize]) {
        // Whatever was not seen comes after.
        for device in &mut self.graph.devices {
            device.registered = None;
        }
        for (place, &device) in order.iter().enumerate() {
            self.graph.devices[device].registered = Some(place as u64);
        }
    }

    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.graph.devices.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.graph.devices.is_empty()
    }

    /// The graph, with what was added.
    pub fn into_graph(self) -> Graph {
        self.graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described<'a>(name: &'a str, parent: Option<&'a str>, driver: &'a str) -> Description<'a> {
        Description {
            name,
            parent,
            driver,
        }
    }

    #[test]
    fn devices_of_the_same_name_are_told_apart_by_their_parents_and_drivers() {
        let device = |name: &str, parent, driver: &str| Device {
            name: name.into(),
            parent,
            driver: Some(driver.into()),
            ..Device::default()
        };
        let graph = Graph {
            devices: vec![
                device("a", None, ""),
                device("b", None, ""),
                device("0", Some(0), "x"),
                device("0", Some(1), "x"),
                device("0", Some(1), "y"),
            ],
            links: vec![],
        };
        let mut names = Names::new(graph);
        assert_eq!(names.find(described("0", Some("a"), "x")), 2);
        assert_eq!(names.find(described("0", Some("b"), "y")), 4);
        assert_eq!(names.find(described("0", Some("b"), "x")), 3);
        assert_eq!((names.ambiguous, names.unknown), (0, 0));
        assert_eq!(names.find(described("0", Some("b"), "z")), 3);
        assert_eq!(names.ambiguous, 1);
        assert_eq!(names.find(described("new", Some("a"), "z")), 5);
        assert_eq!(names.unknown, 1);
    }

    #[test]
    fn without_a_graph_parents_are_made_as_they_are_named() {
        let mut names = Names::new(Graph::default());
        let child = names.find(described("child", Some("parent"), "d"));
        let parent = names.find(described("parent", None, "e"));
        let again = names.find(described("child", Some("parent"), "d"));
        assert_eq!(child, again);
        let graph = names.into_graph();
        assert_eq!(graph.devices[child].parent, Some(parent));
        // A loop of names makes no loop of devices.
        let mut names = Names::new(Graph::default());
        names.find(described("a", Some("b"), ""));
        names.find(described("b", Some("a"), ""));
        names.find(described("c", Some("c"), ""));
        let graph = names.into_graph();
        assert!(crate::model::Edges::of(&graph).refused.is_empty());
    }
}
