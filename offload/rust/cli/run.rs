//! `dormouse offload run`: from the command's words to a job, and its outcome.

use std::path::Path;

use crate::cli::arguments::RunArguments;
use crate::error::{OffloadError, io};
use crate::guest::Guest;
use crate::guest::link::linked;
use crate::guest::natives::natives_of;
use crate::guest::page_table::{self, Mapping};
use crate::machine;
use crate::machine::job::{ALL_OPTIONS, Device, Job, MAX_DEVICES, OPTIONS, options_on};
use crate::machine::outcome::Outcome;
use crate::parts::Parts;

fn usage<T>(message: impl Into<String>) -> Result<T, OffloadError> {
    Err(OffloadError::Usage(message.into()))
}

fn number(text: &str) -> Result<u32, OffloadError> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text
            .parse::<u32>()
            .ok()
            .or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned)),
    };
    parsed.map_or_else(|| usage(format!("{text:?} is no number of 32 bits")), Ok)
}

/// Three numbers with colons between them.
fn three(text: &str) -> Result<[u32; 3], OffloadError> {
    let numbers: Vec<u32> = text.split(':').map(number).collect::<Result<_, _>>()?;
    numbers
        .try_into()
        .or_else(|_| usage(format!("{text:?}: three numbers with colons between them")))
}

fn device(text: &str) -> Result<Device, OffloadError> {
    let [physical, bytes, host] = three(text)?;
    let last = host.checked_add(bytes.saturating_sub(1));
    if bytes == 0
        || !Device::HOSTS.contains(&host)
        || last.is_none_or(|l| !Device::HOSTS.contains(&l))
    {
        return usage(format!(
            "device {text}: the small core's peripherals are from {:#x} to {:#x}",
            Device::HOSTS.start,
            Device::HOSTS.end - 1
        ));
    }
    if physical.checked_add(bytes - 1).is_none() {
        return usage(format!("device {text}: it goes beyond the last address"));
    }
    Ok(Device {
        physical,
        bytes,
        host,
    })
}

fn option_named(name: &str) -> Result<u32, OffloadError> {
    if name == "all" {
        return Ok(ALL_OPTIONS);
    }
    let known = OPTIONS.iter().find(|(known, _)| *known == name);
    known.map_or_else(
        || {
            let names: Vec<&str> = OPTIONS.iter().map(|(known, _)| *known).collect();
            usage(format!(
                "there is no optimisation {name:?}, but: {}, all",
                names.join(", ")
            ))
        },
        |(_, option)| Ok(*option),
    )
}

/// The guest, and the words that name function and arguments.
fn guest_of(
    arguments: &RunArguments,
    parts: &Parts,
    folder: &Path,
) -> Result<(Guest, Vec<String>), OffloadError> {
    let mut words: Vec<String> = Vec::new();
    let elf = match (&arguments.program, &arguments.elf) {
        (Some(program), first) => {
            if !machine::PROGRAMS.contains(&program.as_str()) {
                return usage(format!(
                    "there is no program {program:?}, but: {}",
                    machine::PROGRAMS.join(", ")
                ));
            }
            words.push(format!("run_{program}"));
            words.extend(first.clone());
            let state = if arguments.t32 { "t32" } else { "a32" };
            parts.file(&format!("guest-kernel-{state}.elf"))
        }
        (None, Some(elf)) => linked(parts, Path::new(elf), folder, arguments.prune)?,
        (None, None) => return usage("which ELF?"),
    };
    words.extend(arguments.words.iter().cloned());
    Ok((Guest::read(&elf)?, words))
}

/// Page tables and devices.
fn add_addresses(
    arguments: &RunArguments,
    guest: &mut Guest,
    job: &mut Job,
) -> Result<(), OffloadError> {
    job.physical = number(&arguments.physical)?;
    if !arguments.map.is_empty() {
        let mappings = arguments
            .map
            .iter()
            .map(|text| {
                let [address, physical, bytes] = three(text)?;
                Ok(Mapping {
                    address,
                    physical,
                    bytes,
                })
            })
            .collect::<Result<Vec<_>, OffloadError>>()?;
        let table = page_table::build(guest, &mappings, job.physical);
        job.page_table = Some(table.or_else(usage)?);
    }
    if let Some(name) = &arguments.page_table {
        let offset = guest.address(name)?.wrapping_sub(guest.base);
        let table = job.physical.wrapping_add(offset);
        if offset as usize >= guest.memory.len() || !table.is_multiple_of(16 << 10) {
            return usage(format!(
                "no page table can be at {name}: it is outside the guest's memory, or at no multiple \
                 of 16 KiB"
            ));
        }
        job.page_table = Some(table);
    }
    if arguments.device.len() > MAX_DEVICES {
        return usage(format!("at most {MAX_DEVICES} devices"));
    }
    job.devices = arguments
        .device
        .iter()
        .map(|text| device(text))
        .collect::<Result<_, _>>()?;
    Ok(())
}

fn job_of(
    arguments: &RunArguments,
    guest: &mut Guest,
    words: &[String],
) -> Result<Job, OffloadError> {
    let Some((function, values)) = words.split_first() else {
        return usage("which function?");
    };
    if values.len() > 4 {
        return usage("at most four arguments");
    }
    let mut job = Job::new(guest.address(function)?, [0; 4]);
    for (slot, value) in job.arguments.iter_mut().zip(values) {
        *slot = number(value)?;
    }
    job.board = arguments.board;
    let most = job.board.max_cache_bytes();
    job.cache_bytes = arguments.cache.unwrap_or(job.cache_bytes.min(most));
    if job.cache_bytes > most {
        return usage(format!(
            "--cache {}: {} has {most} bytes of code cache",
            job.cache_bytes,
            job.board.machine()
        ));
    }
    job.budget = arguments.budget;
    job.runs = arguments.runs;
    job.scratch = arguments.scratch;
    for name in &arguments.without {
        job.options &= !option_named(name)?;
    }
    job.options = options_on(job.board, job.options)?;
    if arguments.prune {
        job.natives = natives_of(guest);
        job.time_ns = arguments.time;
    }
    if let Some(handler) = &arguments.irq_handler {
        job.irq_handler = guest.address(handler)?;
        // 1.6 ticks an instruction.
        job.tick = (arguments.irq_period / 5 * 8).clamp(64, 0xff_ffff);
        job.budget = job
            .budget
            .saturating_mul(655_000 / arguments.irq_period.min(655_000));
    }
    if let Some([address, bytes, _]) = arguments.dump.as_deref() {
        job.dump = (guest.address(address)?, number(bytes)?);
        let offset = job.dump.0.wrapping_sub(guest.base);
        if u64::from(offset) + u64::from(job.dump.1) > guest.memory.len() as u64 {
            return usage(format!(
                "{bytes} bytes at {address} are not in the guest's memory"
            ));
        }
    }
    add_addresses(arguments, guest, &mut job)?;
    Ok(job)
}

/// Runs what the words say.
///
/// # Errors
/// Words that make no sense, an ELF that cannot be run, a tool that is missing.
pub fn run(arguments: &RunArguments) -> Result<Vec<Outcome>, OffloadError> {
    let parts = Parts::ready()?;
    let folder = tempfile::tempdir().map_err(io("create", "a folder for the run"))?;
    let (mut guest, words) = guest_of(arguments, &parts, folder.path())?;
    guest = arguments.board.fit(guest)?;
    let job = job_of(arguments, &mut guest, &words)?;
    if guest.memory.len() > arguments.board.max_memory_bytes() as usize {
        return usage(format!(
            "{} has no memory for page tables behind this guest",
            arguments.board.machine()
        ));
    }
    let (runs, memory) = machine::run(&parts, &guest, &job)?;
    if let Some([_, _, file]) = arguments.dump.as_deref() {
        std::fs::write(file, &memory).map_err(io("write", file))?;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_one_of_the_small_cores() {
        assert_eq!(
            device("0x48000000:256:0x40028000").unwrap(),
            Device {
                physical: 0x4800_0000,
                bytes: 256,
                host: 0x4002_8000
            }
        );
        for bad in [
            "1:2",
            "1:2:3:4",
            "0x48000000:x:0x40028000",
            "0x48000000:0:0x40028000",
            "0x48000000:256:0x40000000",
            "0x48000000:256:0x5fffff80",
            "0x48000000:256:0x20000000",
            "0xffffff80:256:0x40028000",
        ] {
            assert!(device(bad).is_err(), "{bad}");
        }
    }
}
