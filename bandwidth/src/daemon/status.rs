//! What goes on: a file for `top`, and text for Prometheus.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Daemon, Pass};
use crate::simulate::GIB;

/// One user, as `top` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserStatus {
    pub cgroup: String,
    pub gib_s: f64,
    pub cpus: f64,
    /// Nothing: not limited.
    pub limit_cpus: Option<f64>,
    pub resident_bytes: u64,
    pub weight: f64,
    pub protected: bool,
}

/// Everything that `top` and Prometheus show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub pid: u32,
    /// Seconds since 1970.
    pub at: u64,
    pub threshold_gib_s: f64,
    pub total_gib_s: f64,
    /// Whether the device's counters can be believed.
    pub trusted: bool,
    pub passes: u64,
    /// Of the last passes, in microseconds.
    pub pass_us: f64,
    pub writes: u64,
    /// By bandwidth, the largest first.
    pub users: Vec<UserStatus>,
}

impl Status {
    /// After a pass; `before` counts passes and writes.
    pub fn of(daemon: &Daemon, pass: &Pass, pass_time: Duration, before: &Self) -> Self {
        let user = |user: &super::User| UserStatus {
            cgroup: user.cgroup.path.display().to_string(),
            gib_s: user.bandwidth / GIB,
            cpus: user.cpu,
            limit_cpus: user.limit,
            resident_bytes: user.resident_bytes,
            weight: user.weight,
            protected: user.protected,
        };
        let mut users: Vec<UserStatus> = daemon.users().iter().map(user).collect();
        users.sort_by(|a, b| b.gib_s.total_cmp(&a.gib_s));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let pass_us = pass_time.as_secs_f64() * 1e6;
        Self {
            pid: std::process::id(),
            at: now.map_or(0, |time| time.as_secs()),
            threshold_gib_s: daemon.threshold() / GIB,
            total_gib_s: pass.total / GIB,
            trusted: pass.trusted,
            passes: before.passes + 1,
            pass_us: match before.passes {
                0 => pass_us,
                _ => before.pass_us + (pass_us - before.pass_us) / 20.0,
            },
            writes: before.writes + pass.writes as u64,
            users,
        }
    }

    /// Replaces the file at once, so that no reader sees half of it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string(self)?)?;
        fs::rename(new, path)
    }

    /// In Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            let _ = writeln!(
                text,
                "# HELP dormouse_bandwidth_{name} {help}\n# TYPE dormouse_bandwidth_{name} {kind}\n\
                 dormouse_bandwidth_{name} {value}"
            );
        };
        let bytes = |gib_s: f64| gib_s * GIB;
        one(
            "total_bytes_per_second",
            "gauge",
            "Traffic of the device.",
            bytes(self.total_gib_s),
        );
        one(
            "threshold_bytes_per_second",
            "gauge",
            "Where it is kept.",
            bytes(self.threshold_gib_s),
        );
        let trusted = f64::from(u8::from(self.trusted));
        one(
            "counters_trusted",
            "gauge",
            "1: they can be believed.",
            trusted,
        );
        one("passes_total", "counter", "Passes.", self.passes as f64);
        one(
            "writes_total",
            "counter",
            "Limits written.",
            self.writes as f64,
        );
        one(
            "pass_seconds",
            "gauge",
            "Time of a pass, averaged.",
            self.pass_us / 1e6,
        );
        let mut each = |name: &str, help: &str, of: &dyn Fn(&UserStatus) -> Option<f64>| {
            let _ = writeln!(
                text,
                "# HELP dormouse_bandwidth_{name} {help}\n# TYPE dormouse_bandwidth_{name} gauge"
            );
            for user in &self.users {
                if let Some(value) = of(user) {
                    let cgroup = escaped(&user.cgroup);
                    let _ = writeln!(
                        text,
                        "dormouse_bandwidth_{name}{{cgroup=\"{cgroup}\"}} {value}"
                    );
                }
            }
        };
        each("user_bytes_per_second", "Traffic of a cgroup.", &|user| {
            Some(bytes(user.gib_s))
        });
        each(
            "user_limit_cpus",
            "Its limit; none: not limited.",
            &|user| user.limit_cpus,
        );
        text
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Answers Prometheus, each request with the last status.
///
/// # Errors
/// The address cannot be used.
pub fn serve(address: SocketAddr, status: Arc<Mutex<Status>>) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let limit = Some(Duration::from_secs(2));
            let _ = stream.set_read_timeout(limit);
            let _ = stream.set_write_timeout(limit);
            // Whatever is asked for; a request of a scraper fits into one read.
            let _ = stream.read(&mut [0; 4096]);
            let text = status.lock().map(|status| status.metrics());
            let text = text.unwrap_or_default();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{text}",
                text.len()
            );
        }
    });
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        let user = |cgroup: &str, limit_cpus| UserStatus {
            cgroup: cgroup.to_owned(),
            gib_s: 1.0,
            cpus: 0.5,
            limit_cpus,
            resident_bytes: 1 << 20,
            weight: 1.0,
            protected: false,
        };
        Status {
            total_gib_s: 2.0,
            passes: 7,
            users: vec![user("/a\"b", Some(0.25)), user("/c", None)],
            ..Status::default()
        }
    }

    #[test]
    fn prometheus_is_answered() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve(any, Arc::new(Mutex::new(status()))).unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK"));
        assert!(
            said.contains("\ndormouse_bandwidth_passes_total 7\n"),
            "{said}"
        );
        assert!(said.contains("dormouse_bandwidth_total_bytes_per_second 2147483648\n"));
        assert!(said.contains("user_limit_cpus{cgroup=\"/a\\\"b\"} 0.25\n"));
        assert!(!said.contains("user_limit_cpus{cgroup=\"/c\"}"));
    }

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status.json");
        status().write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status());
    }
}
