//! The program that is init, agent and workload inside the emulated machine.

mod agent;
mod awkward;
mod bandwidth;
mod cgroups;
mod counters;
mod devices;
mod dialogue;
mod disk;
mod error;
mod fill;
mod hibernate;
mod init;
mod job;
mod kernel_log;
mod modules;
mod placement;
mod redis;
mod resp;
mod run;
mod service;
mod sleep;
mod smi_test;
mod stress_disks;
mod stress_files;
mod stress_load;
mod stress_redis;
mod traffic;
mod workload;

use std::process::ExitCode;

const USAGE: &str = "usage: dormouse-guest poweroff|smi-test CASE|smi-test list|agent|workload|
                       awkward KIND BYTES SEED|service start SHARDS MIB NEIGHBOURS MIB SEED|
                       stress-files FOLDER SEED|stress-redis SEED|compute BUSY_MS SLEEP_MS|
                       touch NAME NODE MIB read|write SPINS BUSY_MS SLEEP_MS
As process 1 it is init, which starts the agent, which starts the workload.";

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::run();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["agent"] => agent::run(),
        ["workload"] => workload::run(),
        ["awkward", kind, bytes, seed] => awkward::run(kind, bytes, seed),
        ["service", words @ ..] if !words.is_empty() => service::run(words),
        ["stress-files", folder, seed] => stress_files::run(folder, seed),
        ["stress-redis", seed] => stress_redis::run(seed),
        ["compute", busy_ms, sleep_ms] => bandwidth::compute(busy_ms, sleep_ms),
        ["touch", words @ ..] => traffic::touch(words),
        ["poweroff"] => init::power_off(),
        ["smi-test", case] => return smi_test::run(case),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dormouse-guest: {error}");
            ExitCode::FAILURE
        }
    }
}
