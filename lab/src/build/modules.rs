//! Finds kernel modules, what they depend on, and the order in which to load them.
//!
//! The kernel package carries no `modules.dep` (its installation would make one), so the
//! dependencies are read where `depmod` reads them: in each module's `.modinfo` section.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection};

use super::BuildError;
use super::command::find_program;

/// Name of the file beside the modules: their file names, one a line, dependencies first.
pub(crate) const LOAD_ORDER: &str = "load-order";

/// A module for the emulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub name: &'static str,
    /// Whether a kernel that has it neither as a module nor built in will not do.
    pub required: bool,
}

pub(crate) const fn required(name: &'static str) -> Wanted {
    Wanted {
        name,
        required: true,
    }
}

pub(crate) const fn if_present(name: &'static str) -> Wanted {
    Wanted {
        name,
        required: false,
    }
}

/// Writes the wanted modules and their dependencies, decompressed, and the load order to
/// `folder`.
pub(crate) fn install(
    modules: &Path,
    wanted: &[Wanted],
    folder: &Path,
) -> Result<Vec<String>, BuildError> {
    let tree = ModuleTree::read(modules)?;
    let mut contents = BTreeMap::new();
    let order = load_order(
        wanted,
        &|name| tree.files.contains_key(name),
        &|name| tree.built_in.contains(name),
        &mut |name| {
            let path = tree.files.get(name).ok_or_else(|| missing(name))?;
            let bytes = decompressed(path)?;
            let dependencies = dependencies(&bytes)
                .map_err(|why| BuildError::Unexpected(format!("{}: {why}", path.display())))?;
            contents.insert(name.to_string(), bytes);
            Ok(dependencies)
        },
    )?;
    fs::create_dir_all(folder).map_err(BuildError::io("create", folder))?;
    let mut list = String::new();
    for name in &order {
        let path = folder.join(format!("{name}.ko"));
        fs::write(&path, &contents[name]).map_err(BuildError::io("write", &path))?;
        list.push_str(&format!("{name}.ko\n"));
    }
    let path = folder.join(LOAD_ORDER);
    fs::write(&path, list).map_err(BuildError::io("write", path))?;
    Ok(order)
}

fn missing(name: &str) -> BuildError {
    BuildError::Unexpected(format!("this kernel has no module {name}"))
}

/// The modules of one kernel, by their canonical names (`-` written as `_`).
#[derive(Debug, Default)]
struct ModuleTree {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl ModuleTree {
    fn read(folder: &Path) -> Result<Self, BuildError> {
        let lines = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).map_err(BuildError::io("read", path))
        };
        let mut tree = ModuleTree::default();
        for line in lines("modules.order")?.lines() {
            let plain = folder.join(line);
            let found = ["", ".xz", ".zst", ".gz"].iter().find_map(|suffix| {
                let mut path = plain.clone().into_os_string();
                path.push(suffix);
                Some(PathBuf::from(path)).filter(|path| path.is_file())
            });
            if let Some(path) = found {
                tree.files.insert(module_name(line), path);
            }
        }
        tree.built_in = lines("modules.builtin")?.lines().map(module_name).collect();
        Ok(tree)
    }
}

fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// All wanted modules and what they depend on, dependencies first, each once.
fn load_order(
    wanted: &[Wanted],
    is_module: &dyn Fn(&str) -> bool,
    is_built_in: &dyn Fn(&str) -> bool,
    dependencies: &mut dyn FnMut(&str) -> Result<Vec<String>, BuildError>,
) -> Result<Vec<String>, BuildError> {
    fn visit(
        name: &str,
        order: &mut Vec<String>,
        seen: &mut BTreeSet<String>,
        dependencies: &mut dyn FnMut(&str) -> Result<Vec<String>, BuildError>,
    ) -> Result<(), BuildError> {
        // Marked before its dependencies are visited: a cycle ends instead of recursing.
        if seen.insert(name.to_string()) {
            for dependency in dependencies(name)? {
                visit(&dependency, order, seen, dependencies)?;
            }
            order.push(name.to_string());
        }
        Ok(())
    }
    let mut order = Vec::new();
    let mut seen = BTreeSet::new();
    for module in wanted {
        if is_module(module.name) {
            visit(module.name, &mut order, &mut seen, dependencies)?;
        } else if module.required && !is_built_in(module.name) {
            return Err(missing(module.name));
        }
    }
    Ok(order)
}

/// The modules that this one needs loaded first, from its `depends=` entry.
fn dependencies(module: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(module).map_err(|error| error.to_string())?;
    let section = file
        .section_by_name(".modinfo")
        .ok_or("it has no .modinfo section")?;
    let entries = section.data().map_err(|error| error.to_string())?;
    let depends = entries
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"depends="));
    let depends = String::from_utf8_lossy(depends.ok_or("it does not say what it depends on")?);
    Ok(depends
        .split(',')
        .filter(|name| !name.is_empty())
        .map(module_name)
        .collect())
}

/// A module as the kernel's `finit_module` takes it whatever its configuration.
fn decompressed(path: &Path) -> Result<Vec<u8>, BuildError> {
    let (program, package) = match path.extension().and_then(|kind| kind.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return fs::read(path).map_err(BuildError::io("read", path)),
    };
    let output = Command::new(find_program(program, package)?)
        .arg("-dc")
        .arg(path)
        .output()
        .map_err(BuildError::io("run", program))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(BuildError::Unexpected(format!(
        "{program} cannot unpack {}: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(wanted: &[Wanted]) -> Result<Vec<String>, BuildError> {
        let modules = [
            ("virtio_blk", vec!["virtio", "virtio_ring"]),
            ("virtio_pci", vec!["virtio_ring", "virtio"]),
            ("virtio_ring", vec!["virtio"]),
            ("virtio", vec![]),
            ("loop_a", vec!["loop_b"]),
            ("loop_b", vec!["loop_a"]),
        ];
        let known: BTreeMap<&str, Vec<&str>> = modules.into_iter().collect();
        load_order(
            wanted,
            &|name| known.contains_key(name),
            &|name| name == "ext4",
            &mut |name| Ok(known[name].iter().map(|name| name.to_string()).collect()),
        )
    }

    #[test]
    fn every_module_comes_after_all_that_it_depends_on_and_only_once() {
        let order = order_of(&[required("virtio_pci"), required("virtio_blk")]).unwrap();
        assert_eq!(order, ["virtio", "virtio_ring", "virtio_pci", "virtio_blk"]);
    }

    #[test]
    fn built_in_and_optional_modules_are_left_out_and_required_ones_are_not() {
        assert!(
            order_of(&[required("ext4"), if_present("nowhere")])
                .unwrap()
                .is_empty()
        );
        let error = order_of(&[required("nowhere")]).unwrap_err();
        assert!(error.to_string().contains("nowhere"));
    }

    #[test]
    fn modules_that_depend_on_each_other_do_not_hang_the_build() {
        assert_eq!(
            order_of(&[required("loop_a")]).unwrap(),
            ["loop_b", "loop_a"]
        );
    }

    #[test]
    fn a_module_has_one_name_however_its_file_is_spelt() {
        assert_eq!(
            module_name("kernel/arch/x86/crypto/crc32c-intel.ko.xz"),
            "crc32c_intel"
        );
        assert_eq!(module_name("virtio_blk.ko"), "virtio_blk");
        assert_eq!(module_name("virtio_ring"), "virtio_ring");
    }

    #[test]
    fn what_is_no_module_is_refused_with_a_reason() {
        assert!(dependencies(b"not an ELF file").is_err());
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(dependencies(&own).unwrap_err().contains(".modinfo"));
    }
}
