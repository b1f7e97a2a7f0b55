//! A private trace instance, with a buffer and events of its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Options, RecordError, failed};
use dormouse_system::settings::Settings;

/// The instance's name in tracefs.
const NAME: &str = "dormouse-devices";

/// Events that are needed, below `events/`.
pub const EVENTS: [&str; 3] = [
    "power/suspend_resume",
    "power/device_pm_callback_start",
    "power/device_pm_callback_end",
];
/// Wanted with [`Options::switches`].
pub const SWITCHES: &str = "sched/sched_switch";

/// Where tracefs is, or can be mounted; and whether it is.
pub fn tracefs(sys: &Path) -> Option<(PathBuf, bool)> {
    let own = sys.join("kernel/tracing");
    for path in [own.clone(), sys.join("kernel/debug/tracing")] {
        if path.join("events").is_dir() {
            return Some((path, true));
        }
    }
    own.is_dir().then_some((own, false))
}

/// The instance, tracing nothing yet.
pub struct Instance {
    folder: PathBuf,
}

impl Instance {
    /// Makes it; `settings` removes it at the end.
    pub fn make(options: &Options, settings: &mut Settings) -> Result<Instance, RecordError> {
        let (root, is_mounted) =
            tracefs(&options.sys).unwrap_or_else(|| (options.sys.join("kernel/tracing"), false));
        if !is_mounted {
            let flags = rustix::mount::MountFlags::NOSUID | rustix::mount::MountFlags::NODEV;
            rustix::mount::mount("tracefs", &root, "tracefs", flags, None)
                .map_err(|error| failed(&root, "mounted")(error.into()))?;
            settings.unmount_later(&root);
        }
        let folder = root.join("instances").join(NAME);
        if folder.exists() {
            // A recording that was killed left it.
            fs::remove_dir(&folder).map_err(failed(&folder, "removed"))?;
        }
        fs::create_dir(&folder).map_err(failed(&folder, "made"))?;
        settings.remove_later(&folder);
        let instance = Instance { folder };
        instance.set("tracing_on", "0")?;
        // Stands still while timekeeping does: time asleep is not on it.
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &options.buffer_kib.to_string())?;
        for event in EVENTS {
            instance.set(&format!("events/{event}/enable"), "1")?;
        }
        if options.switches {
            instance.set(&format!("events/{SWITCHES}/enable"), "1")?;
        }
        Ok(instance)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), RecordError> {
        let path = self.folder.join(name);
        fs::write(&path, value).map_err(failed(&path, "written"))
    }

    /// Starts or stops tracing.
    pub fn mark_on(&self, on: bool) -> Result<(), RecordError> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    /// All that was traced, with the number of lost events.
    pub fn text(&self) -> Result<String, RecordError> {
        let path = self.folder.join("trace");
        let bytes = fs::read(&path).map_err(failed(&path, "read"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
