use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
struct Whole {
    #[command(subcommand)]
    command: ProcessCommand,
}

fn parse(words: &str) -> Result<ProcessCommand, clap::Error> {
    let words = std::iter::once("process").chain(words.split(' '));
    Whole::try_parse_from(words).map(|whole| whole.command)
}

/// The name that a verb takes, and the PID of `attach`.
fn target(command: &ProcessCommand) -> (String, Option<i32>) {
    let plain = |name: &Name| (name.as_str().to_owned(), None);
    match command {
        ProcessCommand::Run(of) => (of.name(), None),
        ProcessCommand::Attach(of) => {
            let (name, pid) = of.target().expect("a PID");
            (name.to_owned(), Some(pid))
        }
        ProcessCommand::Restore(of) => plain(&of.name),
        ProcessCommand::Persist(of) => plain(&of.name),
        ProcessCommand::Status(of) | ProcessCommand::Remove(of) | ProcessCommand::Verify(of) => {
            plain(&of.name)
        }
        ProcessCommand::List(_) => unreachable!("it takes no name"),
    }
}

#[test]
fn the_command_line_is_consistent() {
    Whole::command().debug_assert();
}

#[test]
fn every_verb_takes_the_name_as_its_first_argument_and_the_older_form_as_an_option() {
    for verb in ["restore", "persist", "status", "remove", "verify"] {
        for words in [
            format!("{verb} cache"),
            format!("{verb} --name cache"),
            format!("{verb} --store /x cache"),
        ] {
            let parsed = parse(&words).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(target(&parsed), ("cache".to_owned(), None), "{words}");
        }
        assert!(parse(verb).is_err(), "{verb} without a name");
        assert!(parse(&format!("{verb} cache --name other")).is_err());
    }
    for words in [
        "run cache -- /bin/sleep 9",
        "run --name cache -- /bin/sleep 9",
        "run --store /x cache --fresh -- /bin/sleep 9",
    ] {
        let parsed = parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(target(&parsed), ("cache".to_owned(), None), "{words}");
    }
    for words in [
        "attach cache 4711",
        "attach --name cache 4711",
        "attach 4711 --name cache",
        "attach cache --store /x 4711",
    ] {
        let parsed = parse(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert_eq!(target(&parsed), ("cache".to_owned(), Some(4711)), "{words}");
    }
}

#[test]
fn without_a_name_run_takes_that_of_the_command() {
    let parsed = parse("run -- /bin/sleep 9").expect("a command is enough");
    assert_eq!(target(&parsed).0, "sleep");
    assert!(parse("run cache").is_err(), "a name is not a command");
    assert!(parse("run cache --name other -- sleep 9").is_err());
}

#[test]
fn attach_wants_a_name_and_a_pid() {
    for words in [
        "attach",
        "attach cache",
        "attach 4711",
        "attach cache x",
        "attach --name cache",
    ] {
        assert!(parse(words).is_err(), "{words}");
    }
    let Ok(ProcessCommand::Attach(of)) = parse("attach --name cache other") else {
        panic!("the older form takes any word for a PID");
    };
    assert!(of.target().is_err_and(|error| error.contains("`other`")));
}

#[test]
fn help_shows_the_name_once_and_not_the_older_form() {
    for verb in [
        "run", "attach", "restore", "persist", "status", "remove", "verify",
    ] {
        let error = parse(&format!("{verb} --help")).expect_err("help ends the parser");
        let help = error.to_string();
        assert!(help.contains("NAME"), "{help}");
        assert!(!help.contains("--name"), "{help}");
    }
}

#[test]
fn a_time_has_a_number_and_a_unit() {
    assert_eq!(time("16ms"), Ok(Duration::from_millis(16)));
    assert_eq!(time("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(time("2min"), Ok(Duration::from_secs(120)));
    assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
    assert_eq!(time("500us"), Ok(Duration::from_micros(500)));
    for text in ["", "16", "ms", "-1s", "1.2.3s", "0s"] {
        assert!(time(text).is_err(), "{text}");
    }
}

#[test]
fn a_program_is_throttled_for_a_bound_only_and_there_is_one_bound() {
    let is_wrong = |options: &str| parse(&format!("run {options} cache -- x")).is_err();
    for options in [
        "--budget 1MiB --throttle 50%",
        "--deadline 16ms --throttle 100",
        "--budget 1MiB",
    ] {
        assert!(!is_wrong(options), "{options}");
    }
    for options in [
        "--throttle 50",
        "--budget 1MiB --throttle 101",
        "--budget 1MiB --deadline 16ms",
    ] {
        assert!(is_wrong(options), "{options}");
    }
}
