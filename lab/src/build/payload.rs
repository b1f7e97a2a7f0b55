//! Makes the small disk that changes with our own sources: binaries, our module, dax modules.
//!
//! ```text
//! bin/dormouse  bin/dormouse-guest
//! modules/dormouse.ko  modules/dormouse_snapshot.ko
//! modules/load-order  modules/*.ko     what makes memory of a CXL device, what lists sockets
//! more-modules/                        the same, for what some tests load
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::binaries::Binaries;
use super::context::{Context, Made};
use super::kernel::Kernel;
use super::modules::{self, Wanted, if_present, required};
use super::{BuildError, Step, ext4, module};
use crate::cache::Key;

/// From a soft-reserved range to memory of its own node; and what lists sockets, which the
/// kernel would fetch by itself where there is a modprobe.
const MODULES: [Wanted; 7] = [
    required("dax_hmem"),
    required("device_dax"),
    required("kmem"),
    if_present("af_packet_diag"),
    if_present("tcp_diag"),
    if_present("udp_diag"),
    if_present("unix_diag"),
];

/// What is loaded only by whoever needs it.
const MORE_MODULES: [Wanted; 1] = [if_present("zram")];

const IMAGE: ext4::Image = ext4::Image {
    label: "dormouse-pay",
    uuid: "d0127005-0000-4000-8000-000000000002",
    size_bytes: 64 << 20,
    journal: false,
};

/// Changes whenever this file makes something else from the same inputs.
const RECIPE: &str = "6";

pub(crate) fn payload(
    context: &Context<'_>,
    kernel: &Kernel,
    built_module: &Made,
    binaries: &Binaries,
) -> Result<Made, BuildError> {
    let mut key = Key::new();
    key.text("recipe", RECIPE)
        .text("kernel", &kernel.made.key)
        .text("module", &built_module.key)
        .text("modules", &format!("{MODULES:?} {MORE_MODULES:?}"));
    binaries.add_to(&mut key);
    context.make(
        Step::Payload,
        &key,
        "dormouse, dormouse.ko, dax modules",
        |running, work| {
            let tree = context.cache.work_folder("payload-tree")?;
            let place = |from: &Path, to: &str| {
                fs::copy(from, tree.path().join(to))
                    .map(drop)
                    .map_err(BuildError::io("copy", from))
            };
            let bin = tree.path().join("bin");
            fs::create_dir_all(&bin).map_err(BuildError::io("create", bin))?;
            place(&binaries.command, "bin/dormouse")?;
            place(&binaries.guest, "bin/dormouse-guest")?;
            modules::install(&kernel.modules(), &MODULES, &tree.path().join("modules"))?;
            let more = tree.path().join("more-modules");
            modules::install(&kernel.modules(), &MORE_MODULES, &more)?;
            place(&module::file(built_module), "modules/dormouse.ko")?;
            let snapshot = module::snapshot_file(built_module);
            place(&snapshot, "modules/dormouse_snapshot.ko")?;
            ext4::write(IMAGE, tree.path(), &image(work), &running.log()?)
        },
    )
}

/// The image in the step's artefact.
pub(crate) fn image(artefact: &Path) -> PathBuf {
    artefact.join("payload.img")
}
