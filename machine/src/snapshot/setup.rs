//! `dormouse setup-device`: makes a dax device the head of a sleep, and takes it back; chooses the key
//! that seals images.

use std::io::Write;

use clap::Args;
use dormouse_image::digest::Xxh64;
use dormouse_image::{ImageKind, State};
use serde_json::json;

use crate::bytes::human;
use crate::error::SleepError;
use crate::node::{self, DaxDevice};
use crate::snapshot::seal::SealArgs;
use crate::snapshot::seal::setup as seal_setup;
use crate::snapshot::{cxl_regions, devices, facts};
use dormouse_system::{Root, topology};

/// So much of a device must be empty, or it holds something that is not ours.
const LOOKED_AT_BYTES: u64 = 2 << 20;
/// Both header copies.
const HEADERS_BYTES: usize = 8192;

/// Set up two dax devices of persistent memory for sleeping on stock firmware.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  ndctl create-namespace --mode devdax --map mem --size 1G    # the head, for the kernel's snapshot
  ndctl create-namespace --mode devdax --map mem              # the node, for programs' pages
  dormouse setup-device --head dax0.0 --node dax0.1
  dormouse setup-device --head dax0.0 --node dax0.1 --seal tpm --pcrs sha256:7
  dormouse setup-device --head dax0.0 --undo

The first 2 MiB of the head must be empty unless --force is given; nothing of the node is written.
With --seal the kernel's part of an image is encrypted, and authenticated with all that describes it;
programs' pages on the node stay in plain text. The settings are in /etc/dormouse/seal.toml; the
initramfs holds a copy of them and of the key file, so make it anew and reboot before the next sleep.
Exit codes: 0 done; 1 refused; 2 wrong usage; 3 this machine lacks something.")]
pub struct SetupArgs {
    /// The dax device that takes the kernel's snapshot: half of DRAM is always enough, a quarter
    /// mostly
    #[arg(long, value_name = "DAX")]
    pub head: String,

    /// The dax device that takes programs' pages, on a NUMA node of its own
    #[arg(long, value_name = "DAX", required_unless_present = "undo")]
    pub node: Option<String>,

    /// Whose key seals images.
    #[command(flatten)]
    pub sealing: SealArgs,

    /// Write even over what is not known, and over an image that waits
    #[arg(long)]
    pub force: bool,

    /// Make the head an empty device again
    #[arg(long, conflicts_with = "node")]
    pub undo: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Runs the verb: prints what was done (or the error) and returns the exit code.
pub fn run(args: &SetupArgs) -> u8 {
    let root = Root::host();
    match set_up(&root, args) {
        Ok(text) if args.json => {
            println!("{}", json!({"done": true, "text": text}));
            0
        }
        Ok(text) => {
            let _ = writeln!(std::io::stdout(), "{text}");
            0
        }
        Err(error) => {
            if args.json {
                println!(
                    "{}",
                    json!({"done": false, "reason": error.reason(), "error": error.to_string()})
                );
            }
            eprintln!("dormouse setup-device: {error}");
            error.exit_code()
        }
    }
}

fn named(all: &[DaxDevice], name: &str) -> Result<DaxDevice, SleepError> {
    let name = name.trim_start_matches("/dev/");
    all.iter()
        .find(|one| one.name == name)
        .cloned()
        .ok_or_else(|| SleepError::NoNode {
            detail: format!(
                "{name} is not among the dax devices: {}",
                devices::describe(all)
            ),
        })
}

fn set_up(root: &Root, args: &SetupArgs) -> Result<String, SleepError> {
    if !rustix::process::geteuid().is_root() {
        return Err(SleepError::NotRoot);
    }
    let all = devices::all(root);
    let head_device = named(&all, &args.head)?;
    let mut head = devices::open_head(root, &head_device, true)?;
    let known = head.header().ok();
    let waits = known.as_ref().is_some_and(|header| {
        header.state == State::SUSPENDED.0 || header.state == State::RESTORING.0
    });
    if waits && !args.force {
        return Err(SleepError::ImageExists {
            state: State(known.expect("it waits").state).name().to_owned(),
        });
    }
    let is_ours = known
        .as_ref()
        .is_some_and(|header| header.kind == ImageKind::SNAPSHOT.0);
    if args.undo {
        if !is_ours && !args.force {
            return Err(not_ours(&head_device, "it was not set up as a head"));
        }
        head.store(0, &[0; HEADERS_BYTES], &mut Xxh64::new());
        let seal = seal_setup::remove(root)?;
        cxl_regions::forget(root).map_err(|detail| no_record(root, detail))?;
        return Ok(format!("{} is empty again.{seal}", head_device.name));
    }
    let node_device = named(&all, args.node.as_deref().unwrap_or_default())?;
    check_pair(root, &head_device, &node_device)?;
    let record = || {
        cxl_regions::record(root, &[&head_device, &node_device])
            .map_err(|detail| no_record(root, detail))
    };
    if let Some(header) = &known
        && is_ours
        && !args.force
        && header.cxl_bytes == head_device.bytes
        && (header.snapshot.node_base, header.snapshot.node_bytes)
            == (node_device.base, node_device.bytes)
    {
        let sealing = seal_setup::apply(root, &args.sealing)?;
        let regions = record()?;
        return Ok(format!(
            "{} and {} are set up already.\n{regions}{sealing}",
            head_device.name, node_device.name
        ));
    }
    let words = head
        .device()
        .read_words(LOOKED_AT_BYTES.min(head_device.bytes));
    if !is_ours && !args.force && words.iter().any(|word| *word != 0) {
        return Err(not_ours(
            &head_device,
            "it holds something that is not known",
        ));
    }
    let present = facts::present_pages(root)
        .iter()
        .map(|(_, pages)| pages)
        .sum();
    let facts = facts::gather(root, &head_device, &node_device, present)?;
    let mut header = facts
        .new_header(known.as_deref())
        .map_err(|reason| SleepError::Refused {
            reason: reason.name().to_owned(),
            detail: reason.text().to_owned(),
        })?;
    let sealing = seal_setup::apply(root, &args.sealing)?;
    let regions = record()?;
    head.commit(&mut header);
    Ok(format!(
        "{} takes the kernel's snapshot ({}), {} the programs' pages ({}).\n{regions}{sealing}\nNext: \
         `modprobe dormouse_snapshot`; make the initramfs anew (`update-initramfs -u` or `dracut \
         -f`) and reboot once; then `dormouse doctor sleep`.",
        head_device.name,
        human(head_device.bytes - header.data_offset),
        node_device.name,
        human(node_device.bytes)
    ))
}

fn no_record(root: &Root, detail: String) -> SleepError {
    SleepError::Head {
        path: root.path(cxl_regions::FILE),
        detail,
    }
}

fn not_ours(device: &DaxDevice, why: &str) -> SleepError {
    SleepError::Head {
        path: format!("/dev/{}", device.name).into(),
        detail: format!("{why}; --force overwrites it"),
    }
}

fn check_pair(root: &Root, head: &DaxDevice, device: &DaxDevice) -> Result<(), SleepError> {
    let refuse = |detail: String| Err(SleepError::NoNode { detail });
    if head.name == device.name {
        return refuse("head and node are two devices: make two namespaces".to_owned());
    }
    if topology::nodes_with(root, "has_cpu").contains(&device.node) {
        return refuse(format!(
            "{} belongs to node {}, which has CPUs: the platform gives it no node of its own, so \
             its memory would be taken for DRAM",
            device.name, device.node
        ));
    }
    let block = node::block_bytes(root);
    if node::blocks_inside(device.base, device.bytes, block).is_empty() {
        return refuse(format!(
            "{} holds no whole memory block of {}",
            device.name,
            human(block)
        ));
    }
    Ok(())
}
