//! `dormouse image inspect|verify`: the fields of a sleep image, and whether the next power-on
//! would restore it.

use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use dormouse_image::{HeaderView, Inspection, Persistence, Reason, SleepImage};
use dormouse_report::format::{bytes, duration};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::arguments::ImageArguments;
use crate::{exit, output};

/// Runs `dormouse image inspect`.
///
/// # Errors
/// The file cannot be opened or read; a bad image is no error.
pub fn inspect(arguments: &ImageArguments) -> Result<ExitCode> {
    let inspection = SleepImage::open(&arguments.file)?
        .inspect()
        .with_context(|| format!("cannot read {}", arguments.file.display()))?;
    if arguments.json {
        output::json(&inspection)?;
    } else {
        output::text(&describe(&arguments.file, &inspection))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `dormouse image verify`.
///
/// # Errors
/// The file cannot be opened or read; a bad image gives exit code 4.
pub fn verify(arguments: &ImageArguments) -> Result<ExitCode> {
    let image = SleepImage::open(&arguments.file)?;
    let bar = progress_bar(arguments.json);
    let result = image.verify_with_progress(|done_bytes, all_bytes| {
        bar.set_length(all_bytes);
        bar.set_position(done_bytes);
    });
    bar.finish_and_clear();
    let error = match result {
        Ok(verified) => {
            if arguments.json {
                let mut object = serde_json::to_value(&verified).context("cannot write JSON")?;
                object["verified"] = true.into();
                output::json(&object)?;
            } else {
                output::text(&format!(
                    "{}: good. The next power-on restores {} in {} pieces, unless the machine has \
                     changed.\n",
                    arguments.file.display(),
                    bytes(verified.saved_bytes),
                    verified.pieces,
                ))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => error,
    };
    let Some(refusal) = error.refusal() else {
        return Err(error).with_context(|| format!("cannot verify {}", arguments.file.display()));
    };
    if arguments.json {
        output::json(&json!({
            "verified": false,
            "reason": refusal.reason,
            "detail": refusal.detail,
        }))?;
    } else {
        output::text(&format!(
            "{}: refused. {} (detail {:#x})\nThe next power-on is a cold boot. See it whole with \
             `dormouse image inspect {}`.\n",
            arguments.file.display(),
            refusal.reason,
            refusal.detail,
            arguments.file.display(),
        ))?;
    }
    Ok(ExitCode::from(exit::DIFFERS))
}

fn progress_bar(json: bool) -> ProgressBar {
    if json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let style = "comparing {bar:30} {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn describe(file: &Path, inspection: &Inspection) -> String {
    let mut text = format!("{} ({})\n", file.display(), bytes(inspection.source_bytes));
    let mut row = |name: &str, value: String| {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {name:<22} {value}");
    };
    for (index, copy) in inspection.copies.iter().enumerate() {
        let mut value = if copy.valid {
            "valid".to_owned()
        } else {
            copy.reason.to_string()
        };
        if let (Some(generation), Some(state)) = (copy.generation, copy.state) {
            let _ = write!(value, ", generation {generation}, {state}");
        }
        if inspection.selected == Some(index) {
            value.push_str(" (counts)");
        }
        row(
            ["header copy A", "header copy B"]
                .get(index)
                .unwrap_or(&"header copy"),
            value,
        );
    }
    match &inspection.header {
        Some(header) => describe_header(header, &mut row),
        None if inspection.reason == Reason::NO_IMAGE => {
            row("", "No sleep image was ever written here.".to_owned());
        }
        None => row("", "Nothing in the header can be trusted.".to_owned()),
    }
    if let Some(mailbox) = &inspection.mailbox {
        let answer = match mailbox.answer {
            Some(reason) => reason.to_string(),
            None => "not answered".to_owned(),
        };
        row("last request", format!("{}: {answer}", mailbox.command));
        if mailbox.needed_bytes > 0 {
            let (needed, available) = (bytes(mailbox.needed_bytes), bytes(mailbox.available_bytes));
            row("  space", format!("{needed} needed, {available} available"));
        }
    }
    text
}

fn describe_header(header: &HeaderView, row: &mut impl FnMut(&str, String)) {
    row("version", header.version.to_string());
    row("made by", header.kind.to_string());
    row("sealed", sealed(header));
    row("state", header.state.to_string());
    let reason = if header.last_reason.is_ok() {
        String::new()
    } else {
        format!(
            ": {} (detail {:#x})",
            header.last_reason, header.last_detail
        )
    };
    row("last outcome", format!("{}{reason}", header.last_outcome));
    row(
        "slept, resumed",
        format!(
            "{} times, {} times",
            header.sleep_count, header.resume_count
        ),
    );
    row(
        "CXL window",
        format!("{} at {:#x}", bytes(header.cxl_bytes), header.cxl_base),
    );
    row("reserved for images", bytes(header.reserved_bytes));
    row("DRAM", bytes(header.dram_bytes));
    row("saved", bytes(header.saved_pages.saturating_mul(4096)));
    row(
        "restored",
        bytes(header.restored_pages.saturating_mul(4096)),
    );
    row("restore attempts", header.restore_attempts.to_string());
    row("device", format!("{:#018x}", header.device_serial));
    row("dirty shutdowns", header.dirty_shutdown_count.to_string());
    row(
        "keeps its contents",
        keeps_contents(header.persistence).to_owned(),
    );
    row(
        "user pages with digest",
        format!("{}: {}", header.user_check, header.user_pages),
    );
    row(
        "memory map digest",
        format!("{:#018x}", header.memory_map_digest),
    );
    row("wake vector", format!("{:#x}", header.wake_vector));
    for phase in &header.phases {
        if let Some(duration_ns) = phase.duration_ns {
            row(&format!("phase {}", phase.name), duration(duration_ns));
        }
    }
}

/// Whether the kernel's part is encrypted, and by what.
fn sealed(header: &HeaderView) -> String {
    let Some(seal) = &header.seal else {
        return "no: in plain text, and its digests keep nobody from changing it".to_owned();
    };
    let source = match seal.key_source {
        1 => "a passphrase",
        2 => "a key file",
        3 => "the TPM",
        _ => "an unknown source",
    };
    let counter = match seal.counter {
        0 => "no counter against an older image".to_owned(),
        count => format!("counter {count}"),
    };
    format!("AES-256-GCM, the key from {source}; {counter}")
}

/// The source of the statement that the device keeps its contents without power.
fn keeps_contents(persistence: Persistence) -> &'static str {
    match persistence {
        Persistence::DEVICE => "device: armed and counted, as Linux saw it",
        Persistence::FIRMWARE => "firmware: stated by the board's firmware",
        Persistence::ACCEPTED => {
            "accepted: no source vouched for it, and --accept-volatile was given"
        }
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_image_is_described_as_that() {
        let zeros = vec![0; 64 << 10];
        let inspection = SleepImage::from_bytes(&zeros).inspect().unwrap();
        let text = describe(Path::new("cxl.mem"), &inspection);
        assert!(text.contains("cxl.mem (64.0 KiB)"), "{text}");
        assert!(
            text.contains("No sleep image was ever written here"),
            "{text}"
        );
    }

    #[test]
    fn noise_is_described_without_trusting_any_of_it() {
        let noise: Vec<u8> = (0..65_536u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let inspection = SleepImage::from_bytes(&noise).inspect().unwrap();
        assert!(describe(Path::new("x"), &inspection).contains("Nothing in the header"));
    }
}
