//! The kernel's view of power supplies (`Documentation/ABI/testing/sysfs-class-power`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Meter, Reading};

const INTERVAL: Duration = Duration::from_millis(100);

/// The power supplies under a directory.
#[derive(Debug)]
pub struct Supplies {
    directory: PathBuf,
}

impl Supplies {
    /// Those of this machine.
    pub fn system() -> Self {
        Self::in_directory(Path::new("/sys/class/power_supply"))
    }

    /// Those that a directory describes as sysfs does.
    pub fn in_directory(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }
}

impl Meter for Supplies {
    fn read(&mut self) -> Reading {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Reading::Silence(format!("{} cannot be read", self.directory.display()));
        };
        let (mut mains, mut online, mut discharging, mut low) = (false, false, false, false);
        for entry in entries.flatten() {
            let field = |name: &str| {
                let text = fs::read_to_string(entry.path().join(name)).unwrap_or_default();
                text.trim().to_owned()
            };
            match field("type").as_str() {
                "Mains" | "USB" | "UPS" if !field("online").is_empty() => {
                    mains = true;
                    online |= field("online") != "0";
                }
                // A mouse's battery is not the machine's.
                "Battery" | "UPS" if field("scope") != "Device" => {
                    discharging |= field("status") == "Discharging";
                    low |= field("capacity_level") == "Critical";
                }
                _ => {}
            }
        }
        match (mains, online, discharging) {
            (true, true, _) => Reading::Mains,
            (_, false, true) if low => Reading::BatteryLow,
            (true, false, _) | (false, _, true) => Reading::Battery,
            (false, _, false) => Reading::Silence(format!(
                "no power supply in {}; choose another --on-power-loss",
                self.directory.display()
            )),
        }
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(supplies: &[(&str, &[(&str, &str)])]) -> Reading {
        let directory = tempfile::tempdir().unwrap();
        for (name, fields) in supplies {
            let of = directory.path().join(name);
            fs::create_dir(&of).unwrap();
            for (field, value) in *fields {
                fs::write(of.join(field), format!("{value}\n")).unwrap();
            }
        }
        Supplies::in_directory(directory.path()).read()
    }

    #[test]
    fn a_machine_is_on_battery_when_its_mains_are_off_or_its_battery_discharges() {
        let mains = |online| ("AC", [("type", "Mains"), ("online", online)]);
        let battery = |status| {
            let fields = [("type", "Battery"), ("status", status), ("scope", "System")];
            ("BAT0", fields)
        };
        let (on, off) = (mains("1"), mains("0"));
        let (full, falling) = (battery("Full"), battery("Discharging"));
        assert_eq!(machine(&[(on.0, &on.1), (full.0, &full.1)]), Reading::Mains);
        assert_eq!(
            machine(&[(off.0, &off.1), (falling.0, &falling.1)]),
            Reading::Battery
        );
        assert_eq!(machine(&[(off.0, &off.1)]), Reading::Battery);
        assert_eq!(machine(&[(falling.0, &falling.1)]), Reading::Battery);
        let low = [
            ("type", "UPS"),
            ("status", "Discharging"),
            ("capacity_level", "Critical"),
        ];
        assert_eq!(machine(&[("UPS", &low)]), Reading::BatteryLow);
        let mouse = [
            ("type", "Battery"),
            ("status", "Discharging"),
            ("scope", "Device"),
        ];
        assert!(matches!(machine(&[("mouse", &mouse)]), Reading::Silence(_)));
        assert!(matches!(machine(&[]), Reading::Silence(_)));
    }
}
