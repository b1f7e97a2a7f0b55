//! Arguments of the commands that sleep and wake.

use super::*;
use clap::{CommandFactory, Parser};

#[derive(Parser)]
enum Verbs {
    Sleep(SleepArgs),
    MigrateBack(MigrateBackArgs),
}

fn sleep(arguments: &[&str]) -> SleepArgs {
    match Verbs::try_parse_from([&["dormouse", "sleep"], arguments].concat()).unwrap() {
        Verbs::Sleep(args) => args,
        Verbs::MigrateBack(_) => unreachable!(),
    }
}

#[test]
fn the_command_line_is_consistent_and_has_examples() {
    Verbs::command().debug_assert();
    for mut verb in Verbs::command()
        .get_subcommands()
        .cloned()
        .collect::<Vec<_>>()
    {
        assert!(verb.render_long_help().to_string().contains("Examples:"));
    }
}

#[test]
fn defaults_wait_for_home_on_the_device_s_node() {
    let options = sleep_options(&sleep(&[]), Cancel::default());
    assert_eq!(
        (options.node, options.home),
        (NodeChoice::Auto, MigrateBackMode::Wait)
    );
    assert_eq!(options.migrate_back_options.rate_bytes_per_s, None);
}

#[test]
fn the_background_command_repeats_the_choices() {
    let args = sleep(&[
        "--home",
        "background",
        "--rate",
        "2M/s",
        "--events",
        "e.jsonl",
    ]);
    let command = background_command(&args.choices);
    let rest: Vec<&str> = command[2..]
        .iter()
        .filter_map(|word| word.to_str())
        .collect();
    assert_eq!(
        rest,
        [
            "--rate",
            "2097152",
            "--policy",
            "process-order",
            "--events",
            "e.jsonl"
        ]
    );
    let again = [&["dormouse", "migrate-back"], rest.as_slice()].concat();
    assert!(matches!(
        Verbs::try_parse_from(again),
        Ok(Verbs::MigrateBack(_))
    ));
}

#[test]
fn a_rate_of_nothing_and_an_unknown_node_are_wrong_usage() {
    for arguments in [["--rate", "0"], ["--node", "cxl"], ["--rate", "fast"]] {
        let all = [&["dormouse", "sleep"], arguments.as_slice()].concat();
        assert!(Verbs::try_parse_from(all).is_err());
    }
}
