//! The verbs of `dormouse process` alone: quick to build while working on them.

use std::process::ExitCode;

use clap::Parser;
use dormouse_process::cli::{ProcessCommand, run};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: ProcessCommand,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    ExitCode::from(run(&Arguments::parse().command))
}
