//! Metrics for Prometheus, in the OpenMetrics text format.
//!
//! `prometheus-client` is the official library; `tiny_http` is a threaded server without an
//! asynchronous run-time. Both fit into a static program.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tiny_http::{Header, Method, Request, Response, Server};

use super::status::{DeviceStatus, QUANTILES, Status, TieringStatus, UserStatus};
use crate::curve::GIB;

/// Content type of the format.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The last status, encoded on request.
#[derive(Debug)]
struct Collected(Arc<Mutex<Status>>);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let status = self.0.lock().map_err(|_| fmt::Error)?.clone();
        let gauges = [
            (
                "total_bytes_per_second",
                "Traffic of the device.",
                status.total_gib_s * GIB,
            ),
            (
                "threshold_bytes_per_second",
                "The threshold.",
                status.threshold_gib_s * GIB,
            ),
            (
                "counters_trusted",
                "1: the device's counters are valid.",
                f64::from(u8::from(status.trusted)),
            ),
            (
                "derated",
                "1: the device answers too slowly for its curve or threshold; a lower one is in force.",
                f64::from(u8::from(status.derated)),
            ),
            (
                "pass_seconds",
                "Moving average of the time of a pass.",
                status.pass_us / 1e6,
            ),
        ];
        for (name, help, value) in gauges {
            one(&mut encoder, name, help, &ConstGauge::new(value))?;
        }
        encode_devices(&mut encoder, &status.devices)?;
        let counters = [
            ("passes", "Passes of the daemon.", status.passes),
            ("writes", "Limits written.", status.writes),
        ];
        for (name, help, value) in counters {
            one(&mut encoder, name, help, &ConstCounter::new(value))?;
        }
        if let Some(lost) = status.samples_lost {
            one(
                &mut encoder,
                "samples_lost",
                "Samples of accesses that were lost.",
                &ConstCounter::new(lost),
            )?;
        }
        if let Some(tiering) = &status.tiering {
            encode_tiering(&mut encoder, tiering)?;
        }
        let users = &status.users;
        each(
            &mut encoder,
            "user_bytes_per_second",
            "Traffic of a cgroup.",
            users,
            |user| Some(ConstGauge::new(user.gib_s * GIB)),
        )?;
        each(
            &mut encoder,
            "user_limit_cpus",
            "CPU limit of a cgroup; no sample: not limited.",
            users,
            |user| user.limit_cpus.map(ConstGauge::new),
        )?;
        each(
            &mut encoder,
            "user_charged_bytes",
            "Traffic attributed to a cgroup since it became a user.",
            users,
            |user| Some(ConstCounter::new(user.charged_gib * GIB)),
        )?;
        each(
            &mut encoder,
            "user_passes_held_back",
            "Passes before which its limit held a cgroup back.",
            users,
            |user| Some(ConstCounter::new(user.passes_held_back)),
        )?;
        each(
            &mut encoder,
            "user_held_back_seconds",
            "Time in which its limit held a cgroup back.",
            users,
            |user| Some(ConstCounter::new(user.held_back_s)),
        )
    }
}

fn encode_devices(encoder: &mut DescriptorEncoder, devices: &[DeviceStatus]) -> fmt::Result {
    type Value = fn(&DeviceStatus) -> Option<f64>;
    let seconds: [(&str, &str, Value); 3] = [
        (
            "access_seconds",
            "Moving average of the device's access latency.",
            |device| device.latency_ns,
        ),
        (
            "max_access_seconds",
            "The access latency that is kept.",
            |device| device.max_latency_ns,
        ),
        (
            "expected_access_seconds",
            "The access latency that the curve has for the present traffic.",
            |device| device.expected_latency_ns,
        ),
    ];
    for (name, help, of) in seconds {
        let of = |device: &DeviceStatus| of(device).map(|ns| ConstGauge::new(ns / 1e9));
        labelled(encoder, name, help, devices, device_label, of)?;
    }
    let values: [(&str, &str, Value); 5] = [
        (
            "device_bytes_per_second",
            "Traffic of a device.",
            |device| Some(device.total_gib_s * GIB),
        ),
        (
            "device_threshold_bytes_per_second",
            "The threshold of a device.",
            |device| Some(device.threshold_gib_s * GIB),
        ),
        (
            "device_counters_trusted",
            "1: the device's counters are valid.",
            |device| Some(f64::from(u8::from(device.trusted))),
        ),
        (
            "device_derated",
            "1: the device answers too slowly for its curve or threshold; a lower one is in force.",
            |device| Some(f64::from(u8::from(device.derated))),
        ),
        (
            "carried_ratio",
            "The part of the curve's bandwidth that the device is taken to carry.",
            |device| device.carried_part,
        ),
    ];
    for (name, help, of) in values {
        let of = |device: &DeviceStatus| of(device).map(ConstGauge::new);
        labelled(encoder, name, help, devices, device_label, of)?;
    }
    // A summary has no encoder in the library for values of another thread.
    let quantiles = devices.iter().flat_map(|device| {
        let of = device.latency_quantiles_ns.into_iter().flatten();
        of.zip(QUANTILES)
            .map(|(ns, part)| (device.name.as_str(), part, ns / 1e9))
    });
    let quantiles: Vec<(&str, f64, f64)> = quantiles.collect();
    let label =
        |one: &(&str, f64, f64)| vec![("device", escaped(one.0)), ("quantile", one.1.to_string())];
    labelled(
        encoder,
        "access_quantile_seconds",
        "The access latency that this part of the recent samples does not exceed.",
        &quantiles,
        label,
        |one| Some(ConstGauge::new(one.2)),
    )
}

fn device_label(device: &DeviceStatus) -> Vec<(&'static str, String)> {
    vec![("device", escaped(&device.name))]
}

fn encode_tiering(encoder: &mut DescriptorEncoder, tiering: &TieringStatus) -> fmt::Result {
    one(
        encoder,
        "tiering_bytes_per_second",
        "Traffic of the kernel's memory tiering: promotion, demotion, DAMON.",
        &ConstGauge::new(tiering.gib_s * GIB),
    )?;
    one(
        encoder,
        "tiering_moved_bytes",
        "Bytes that memory tiering has moved.",
        &ConstCounter::new(tiering.moved_gib * GIB),
    )?;
    match tiering.limit_gib_s {
        None => Ok(()),
        Some(limit) => one(
            encoder,
            "tiering_limit_bytes_per_second",
            "The limit of memory tiering; no sample: not limited.",
            &ConstGauge::new(limit * GIB),
        ),
    }
}

fn one(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    metric: &impl EncodeMetric,
) -> fmt::Result {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

/// A metric with a value for each user that has one.
fn each<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    users: &[UserStatus],
    of: impl Fn(&UserStatus) -> Option<M>,
) -> fmt::Result {
    let label = |user: &UserStatus| {
        vec![
            ("cgroup", escaped(&user.cgroup)),
            ("name", escaped(&user.name)),
        ]
    };
    labelled(encoder, name, help, users, label, of)
}

/// A metric with a value for each of these that has one.
fn labelled<T, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    all: &[T],
    label: impl Fn(&T) -> Vec<(&'static str, String)>,
    of: impl Fn(&T) -> Option<M>,
) -> fmt::Result {
    let values: Vec<(&T, M)> = all.iter().filter_map(|one| Some((one, of(one)?))).collect();
    let Some((_, first)) = values.first() else {
        return Ok(());
    };
    let mut metric = encoder.encode_descriptor(name, help, None, first.metric_type())?;
    for (one, value) in &values {
        value.encode(metric.encode_family(&label(one))?)?;
    }
    Ok(())
}

/// A label's value, escaped: the library writes it unchanged.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Serves the last status at `/metrics` from a thread of its own.
///
/// # Errors
/// The address cannot be used.
pub fn serve(address: SocketAddr, status: Arc<Mutex<Status>>) -> std::io::Result<SocketAddr> {
    let server = Server::http(address).map_err(std::io::Error::other)?;
    let bound = server.server_addr().to_ip().unwrap_or(address);
    let mut registry = Registry::with_prefix("dormouse_bandwidth");
    registry.register_collector(Box::new(Collected(status)));
    std::thread::spawn(move || {
        for request in server.incoming_requests() {
            if let Err(error) = answer(request, &registry) {
                tracing::debug!("the connection to Prometheus is closed: {error}");
            }
        }
    });
    Ok(bound)
}

fn answer(request: Request, registry: &Registry) -> std::io::Result<()> {
    if request.url().split('?').next() != Some("/metrics") {
        return request.respond(Response::from_string("see /metrics\n").with_status_code(404));
    }
    if *request.method() != Method::Get {
        return request.respond(Response::from_string("GET only\n").with_status_code(405));
    }
    let mut body = String::new();
    if text::encode(&mut body, registry).is_err() {
        return request.respond(Response::from_string("no status\n").with_status_code(500));
    }
    let header = Header::from_bytes("Content-Type", OPEN_METRICS);
    let header = header.map_err(|()| std::io::Error::other("invalid header"))?;
    request.respond(Response::from_string(body).with_header(header))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};

    use super::*;

    fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    /// The names of metrics in a text.
    fn names(text: &str) -> BTreeSet<String> {
        let parts = text.split(|at: char| !(at.is_ascii_alphanumeric() || at == '_'));
        let ours = parts.filter(|part| part.starts_with("dormouse_bandwidth_"));
        ours.map(str::to_owned).collect()
    }

    #[test]
    fn the_dashboard_shows_what_is_exported_and_nothing_else() {
        let address = serve(
            SocketAddr::from(([127, 0, 0, 1], 0)),
            Arc::new(Mutex::new(Status::example())),
        );
        let said = ask(address.unwrap(), "GET /metrics");
        let samples: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("dormouse_bandwidth_"))
            .map(|line| line.split(['{', ' ']).next().unwrap_or_default())
            .collect();
        let exported: BTreeSet<String> = samples.into_iter().map(str::to_owned).collect();
        assert!(exported.len() > 10, "{said}");
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/grafana/dashboard.json");
        let text = std::fs::read_to_string(file).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut shown = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                shown.extend(names(expression));
                let told = panel["title"].as_str().unwrap();
                assert!(!names(expression).is_empty(), "{told}: {expression}");
            }
        }
        assert_eq!(shown, exported);
    }

    #[test]
    fn only_requests_for_metrics_are_answered() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = serve(any, Arc::new(Mutex::new(Status::example()))).unwrap();
        let said = ask(address, "GET /metrics");
        assert!(said.starts_with("HTTP/1.1 200 OK"), "{said}");
        assert!(said.contains("application/openmetrics-text"), "{said}");
        assert!(
            said.contains("\ndormouse_bandwidth_passes_total 7\n"),
            "{said}"
        );
        assert!(
            said.contains("dormouse_bandwidth_total_bytes_per_second 2147483648.0\n"),
            "{said}"
        );
        assert!(
            said.contains("user_limit_cpus{cgroup=\"/a\\\"b\",name=\"/a\\\"b\"} 0.25\n"),
            "{said}"
        );
        assert!(!said.contains("user_limit_cpus{cgroup=\"/c\""));
        for line in [
            "access_quantile_seconds{device=\"device0\",quantile=\"0.99\"} 4.8e-7\n",
            "user_held_back_seconds_total{cgroup=\"/c\",name=\"/c\"} 0.25\n",
            "device_bytes_per_second{device=\"device0\"} 2147483648.0\n",
            "samples_lost_total 3\n",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        assert!(said.contains("# EOF"));
        assert!(ask(address, "GET /").starts_with("HTTP/1.1 404"));
        assert!(ask(address, "POST /metrics").starts_with("HTTP/1.1 405"));
    }
}
