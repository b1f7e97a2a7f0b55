//! Puts firmware, kernel and initrd into one flash image.
//!
//! The kernel is coreboot's payload, so there is no boot loader and no boot partition: power-on,
//! firmware, kernel. `cbfstool` makes the payload; one of our hooks teaches it to keep the initrd
//! clear of what a large kernel needs to unpack itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::run;
use super::context::{Context, Made};
use super::kernel::Kernel;
use super::{BuildError, Step, firmware, initrd};
use crate::cache::Key;

pub(crate) fn rom(
    context: &Context<'_>,
    built_firmware: &Made,
    kernel: &Kernel,
    built_initrd: &Made,
    cmdline: &str,
) -> Result<Made, BuildError> {
    let mut key = Key::new();
    key.text("firmware", &built_firmware.key)
        .text("kernel", &kernel.made.key)
        .text("initrd", &built_initrd.key)
        .text("cmdline", cmdline);
    context.make(
        Step::Rom,
        &key,
        "coreboot, kernel, initrd",
        |running, work| {
            let log = running.log()?;
            let image = file(work);
            let plain = firmware::rom(&built_firmware.path);
            fs::copy(&plain, &image).map_err(BuildError::io("copy", plain))?;
            let tool = firmware::cbfstool(&built_firmware.path);
            run(
                Command::new(&tool)
                    .arg(&image)
                    .args(["add-payload", "-n", "fallback/payload", "-c", "none"])
                    .args(["-C", cmdline, "-f"])
                    .arg(kernel.image())
                    .arg("-I")
                    .arg(initrd::file(&built_initrd.path)),
                "putting the kernel into the flash image",
                &log,
            )?;
            run(
                Command::new(&tool).arg(&image).arg("print"),
                "listing the flash image",
                &log,
            )
        },
    )
}

/// The image in the step's artefact.
pub(crate) fn file(artefact: &Path) -> PathBuf {
    artefact.join("dormouse.rom")
}
