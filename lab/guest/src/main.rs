//! The program that is init, agent and workload inside the emulated machine.

mod agent;
mod error;
mod hard_to_move;
mod init;
mod jobs;
mod sleep;
mod smi_test;
mod stress;
mod system;
mod workload;

use std::process::ExitCode;

const USAGE: &str = "usage: dormouse-guest poweroff|smi-test CASE|smi-test list|agent|workload|
                       hard-to-move KIND BYTES SEED|service start SHARDS MIB NEIGHBOURS MIB SEED|
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
        ["hard-to-move", kind, bytes, seed] => hard_to_move::run(kind, bytes, seed),
        ["service", words @ ..] if !words.is_empty() => workload::service::run(words),
        ["stress-files", folder, seed] => stress::files::run(folder, seed),
        ["stress-redis", seed] => stress::redis::run(seed),
        ["compute", busy_ms, sleep_ms] => jobs::bandwidth::compute(busy_ms, sleep_ms),
        ["touch", words @ ..] => jobs::traffic::touch(words),
        ["poweroff"] => system::power::off(),
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
