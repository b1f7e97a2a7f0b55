//! Checks whether this machine itself can sleep in CXL memory.

use dormouse_machine::NodeChoice;
use dormouse_machine::hotness::damon::{self, Offer};
use dormouse_machine::node::{self, DaxDevice};
use dormouse_machine::persistence::{self, Persistence, Verdict};
use dormouse_machine::snapshot::{Readiness, bound_cxl_memory};
use dormouse_machine::system::module::{self, Status as ModuleStatus};
use dormouse_report::format::bytes;
use dormouse_system::kernel::{release, version_in};
use dormouse_system::{Root, proc};

use super::Check;
use super::snapshot;

const OLDEST_KERNEL: (u32, u32) = (6, 12);
/// The ACPI device with which firmware announces that it can save this machine.
const FIRMWARE_DEVICE: &str = "DORM0001";
/// Capabilities that `dormouse sleep` needs: number and name.
const CAPABILITIES: [(u32, &str); 3] = [
    (19, "CAP_SYS_PTRACE"),
    (21, "CAP_SYS_ADMIN"),
    (23, "CAP_SYS_NICE"),
];

/// A way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Firmware,
    Snapshot,
}

/// The way that suits this machine; none where it has what neither needs.
pub fn recommended(facts: &Facts) -> Option<Way> {
    if facts.firmware_device.is_some() || facts.module.is_some() {
        return Some(Way::Firmware);
    }
    let is_set_up = facts
        .snapshot
        .as_ref()
        .is_some_and(|found| found.setup.is_ok());
    (is_set_up || !facts.dax_devices.is_empty()).then_some(Way::Snapshot)
}

/// Says which way, and why.
pub fn way(facts: &Facts) -> Check {
    const ID: &str = "way";
    match recommended(facts) {
        Some(Way::Firmware) => Check::ok(
            ID,
            "firmware: this machine's firmware can save it, and gives the kernel's pages back before \
             any kernel starts, so waking takes a fraction of a boot",
        ),
        Some(Way::Snapshot) => Check::ok(
            ID,
            "snapshot: this firmware is not ours, and the kernel's own snapshot with persistent memory \
             needs none; waking takes the boot of a kernel and its initramfs",
        ),
        None => Check::missing(
            ID,
            "neither: no firmware that can save this machine, and no dax device of persistent memory",
            "snapshot: make two devdax namespaces of an NVDIMM or a CXL pmem region \
             (docs/howto/stock-firmware.md); firmware: coreboot with machine/firmware \
             (docs/howto/hardware.md)",
        ),
    }
}

/// What was found, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub kernel_release: String,
    /// /sys/power/mem_sleep, empty where the kernel has none.
    pub mem_sleep: String,
    /// CXL memory devices that the kernel's driver has.
    pub cxl_memory: Vec<String>,
    /// The name of firmware's ACPI device.
    pub firmware_device: Option<String>,
    /// Whether the module is loaded; a loaded module may have found no firmware.
    pub module_loaded: bool,
    /// What it reports in sysfs.
    pub module: Option<ModuleStatus>,
    pub dax_devices: Vec<DaxDevice>,
    pub has_cgroup2: bool,
    /// Those of [`CAPABILITIES`] that are not effective.
    pub missing_capabilities: Vec<&'static str>,
    /// /sys/kernel/security/lockdown, empty where the kernel has none.
    pub lockdown: String,
    pub auto_online_blocks: String,
    /// Whether the CXL device keeps its contents without power; none without the module.
    pub persistence: Option<Verdict>,
    /// Whether the kernel can report which pages are hot.
    pub damon: Option<Offer>,
    /// What the way by the kernel's snapshot needs.
    pub snapshot: Option<Readiness>,
}

impl Facts {
    /// Reads the machine below the root; changes nothing.
    pub fn probe(root: &Root) -> Facts {
        let text = |path: &str| root.read(path).unwrap_or_default();
        let firmware_device = root
            .list("sys/bus/acpi/devices")
            .into_iter()
            .find(|name| name.split(':').next() == Some(FIRMWARE_DEVICE));
        let own = proc::own_status(root).unwrap_or_default();
        let has = |capability: u32| own.has_capability(capability);
        let module = module::status(root).ok();
        Facts {
            persistence: module
                .as_ref()
                .map(|status| persistence::find(root, status)),
            kernel_release: release(root),
            mem_sleep: text("sys/power/mem_sleep"),
            cxl_memory: bound_cxl_memory(root),
            firmware_device,
            module_loaded: root.exists("sys/module/dormouse"),
            module,
            dax_devices: node::devices(root),
            has_cgroup2: dormouse_machine::processes::freezer::mount(root).is_ok(),
            missing_capabilities: CAPABILITIES
                .into_iter()
                .filter_map(|(number, name)| (!has(number)).then_some(name))
                .collect(),
            lockdown: text("sys/kernel/security/lockdown"),
            auto_online_blocks: text("sys/devices/system/memory/auto_online_blocks"),
            damon: Some(damon::offer(root)),
            snapshot: Some(Readiness::probe(root)),
        }
    }
}

/// Judges the facts: those of the way that suits this machine, and those of both.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut all = vec![way(facts), kernel(&facts.kernel_release)];
    let by_snapshot = facts
        .snapshot
        .as_ref()
        .filter(|_| recommended(facts) == Some(Way::Snapshot));
    match by_snapshot {
        Some(found) => all.extend(snapshot::checks(found)),
        None => all.extend(firmware_checks(facts)),
    }
    all.extend([
        auto_online(facts),
        cgroup(facts.has_cgroup2),
        capabilities(&facts.missing_capabilities),
        lockdown(&facts.lockdown),
        hot_pages(facts.damon),
    ]);
    all
}

fn firmware_checks(facts: &Facts) -> Vec<Check> {
    vec![
        mem_sleep(&facts.mem_sleep, &facts.cxl_memory),
        firmware(facts.firmware_device.as_deref()),
        module_loaded(facts),
        enabled(facts.module.as_ref()),
        image(facts.module.as_ref()),
        dax(facts),
        persistent(facts.persistence.as_ref()),
        snapshot::firmware_text(),
    ]
}

fn kernel(release: &str) -> Check {
    const ID: &str = "kernel";
    match version_in(release) {
        Some(version) if version >= OLDEST_KERNEL => Check::ok(ID, format!("Linux {release}")),
        Some(_) => Check::missing(
            ID,
            format!("Linux {release}"),
            "boot Linux 6.12 or newer: the module is built for that",
        ),
        None => Check::missing(
            ID,
            "no Linux kernel release found",
            "boot Linux 6.12 or newer",
        ),
    }
}

fn mem_sleep(kinds: &str, cxl_memory: &[String]) -> Check {
    const ID: &str = "mem-sleep";
    if kinds.split([' ', '[', ']']).any(|kind| kind == "deep") {
        return Check::ok(ID, format!("S3 is offered: {kinds}"));
    }
    let (found, todo) = if kinds.is_empty() {
        (
            "the kernel cannot suspend".to_owned(),
            "boot a kernel with CONFIG_SUSPEND",
        )
    } else if !cxl_memory.is_empty() {
        (
            format!(
                "only {kinds}: the kernel offers no S3 while its driver has CXL memory ({})",
                cxl_memory.join(", ")
            ),
            "boot with module_blacklist=cxl_mem: firmware programs the decoders",
        )
    } else {
        (
            format!("only {kinds}"),
            "enable S3 (not only S0ix) in the firmware setup",
        )
    };
    Check::missing(ID, found, todo)
}

fn firmware(device: Option<&str>) -> Check {
    const ID: &str = "firmware";
    match device {
        Some(name) => Check::ok(ID, format!("ACPI device {name}")),
        None => Check::missing(
            ID,
            format!("no ACPI device {FIRMWARE_DEVICE}: this firmware cannot save the machine"),
            "install coreboot with the driver of machine/firmware; `dormouse lab boot` has it",
        ),
    }
}

fn module_loaded(facts: &Facts) -> Check {
    const ID: &str = "module";
    match (&facts.module, facts.module_loaded) {
        (Some(_), _) => Check::ok(ID, "dormouse is loaded and has found its firmware"),
        (None, true) => Check::missing(
            ID,
            "dormouse is loaded, but /sys/power/dormouse is not there",
            "read why: dmesg | grep dormouse",
        ),
        (None, false) => Check::missing(
            ID,
            "dormouse is not loaded",
            "build and install it from machine/kernel (DKMS), then: modprobe dormouse",
        ),
    }
}

fn enabled(module: Option<&ModuleStatus>) -> Check {
    const ID: &str = "enabled";
    match module {
        None => Check::not_applicable(ID, "needs the module"),
        Some(status) if status.enabled => Check::ok(ID, "suspend goes to CXL memory"),
        Some(_) => Check::missing(
            ID,
            "switched off: a suspend is the firmware's ordinary one",
            "echo 1 > /sys/power/dormouse/enabled",
        ),
    }
}

fn image(module: Option<&ModuleStatus>) -> Check {
    const ID: &str = "image";
    let Some(status) = module else {
        return Check::not_applicable(ID, "needs the module");
    };
    if matches!(status.state.as_str(), "suspended" | "restoring") {
        return Check::missing(
            ID,
            format!(
                "the CXL device holds an image in state {} that was not resumed",
                status.state
            ),
            "see `dormouse image inspect`; reboot to drop it",
        );
    }
    let outcome = match status.last_outcome.as_str() {
        "" | "none" => "never slept".to_owned(),
        "cold-boot" | "refused" => {
            format!(
                "last time: {} ({})",
                status.last_outcome, status.last_reason
            )
        }
        outcome => format!("last time: {outcome}"),
    };
    Check::ok(ID, format!("none is waiting; {outcome}"))
}

fn dax(facts: &Facts) -> Check {
    const ID: &str = "cxl-node";
    let window = facts.module.as_ref().filter(|status| status.cxl_bytes > 0);
    let window = window.map(|status| (status.cxl_base, status.cxl_bytes));
    match node::choose(&facts.dax_devices, NodeChoice::Auto, window) {
        Ok(Some(device)) => Check::ok(
            ID,
            format!(
                "{}: {} as node {}",
                device.name,
                bytes(device.bytes),
                device.node
            ),
        ),
        Ok(None) => Check::missing(ID, "no dax device", "load dax_hmem: modprobe dax_hmem"),
        Err(why) => {
            // The other crate gives the finding and the remedy in one sentence.
            let (found, todo) = why
                .split_once("; ")
                .unwrap_or((&why, "choose one with --node"));
            Check::missing(ID, found, todo)
        }
    }
}

fn auto_online(facts: &Facts) -> Check {
    const ID: &str = "memory-policy";
    match facts.auto_online_blocks.as_str() {
        "" => Check::not_applicable(ID, "the kernel has no memory hotplug"),
        "offline" => Check::ok(ID, "new memory stays offline until a sleep needs it"),
        "online_movable" => Check::ok(
            ID,
            "new memory goes online as movable: it may be used while awake",
        ),
        other => Check::warn(
            ID,
            format!("new memory goes online by itself ({other}): kernel data may land on CXL"),
            "boot with memhp_default_state=offline, and disable udev rules that do the same",
        ),
    }
}

fn cgroup(has_cgroup2: bool) -> Check {
    const ID: &str = "cgroup";
    if has_cgroup2 {
        Check::ok(ID, "cgroup v2, which can freeze user space")
    } else {
        Check::missing(
            ID,
            "no cgroup v2 is mounted",
            "boot with systemd.unified_cgroup_hierarchy=1, or: mount -t cgroup2 none /sys/fs/cgroup",
        )
    }
}

fn capabilities(lacking: &[&str]) -> Check {
    const ID: &str = "privileges";
    if lacking.is_empty() {
        Check::ok(ID, "may freeze and migrate every process")
    } else {
        Check::warn(
            ID,
            format!("without {}", lacking.join(", ")),
            "run `dormouse sleep` as root",
        )
    }
}

fn lockdown(text: &str) -> Check {
    const ID: &str = "lockdown";
    if text.is_empty() || text.contains("[none]") {
        Check::ok(ID, "the kernel takes modules without a signature")
    } else {
        Check::warn(
            ID,
            format!("kernel lockdown: {text}"),
            "sign the module with a key that this machine trusts, or switch Secure Boot off",
        )
    }
}

fn hot_pages(damon: Option<Offer>) -> Check {
    const ID: &str = "hot-pages";
    const OTHERWISE: &str = "pages migrate back in process order";
    match damon {
        Some(Offer::Ready) => {
            Check::ok(ID, "DAMON reports the hot pages, which migrate back first")
        }
        Some(Offer::NoTracepoint) => Check::warn(
            ID,
            format!("DAMON's tracepoint cannot be read: {OTHERWISE}"),
            "mount -t tracefs tracefs /sys/kernel/tracing",
        ),
        Some(Offer::NoDamon) | None => Check::warn(
            ID,
            format!("no DAMON in sysfs: {OTHERWISE}"),
            "boot a kernel with CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS, or accept this order",
        ),
    }
}

fn persistent(verdict: Option<&Verdict>) -> Check {
    const ID: &str = "persistence";
    let Some(verdict) = verdict else {
        return Check::not_applicable(ID, "needs the module");
    };
    let found = verdict.reasons.join("; ");
    if verdict.persistence == Persistence::UNKNOWN {
        Check::missing(
            ID,
            found,
            "sleep is refused: use a device that guarantees its flush (Linux 6.16 or newer, or firmware, \
             must report it), or take the risk with `dormouse sleep --accept-volatile`",
        )
    } else {
        Check::ok(ID, found)
    }
}

#[cfg(test)]
#[path = "sleep_tests.rs"]
mod tests;
