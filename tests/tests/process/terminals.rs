//! tmux, which has the master side of a pseudo-terminal, and a shell on the slave side.

use std::fs;
use std::process::{Command, Stdio};

use dormouse_tests::alone::alone;
use dormouse_tests::program::Program;

/// tmux's client to the server with this socket; without `-N` it would start one of its own where
/// ours is not there yet.
fn tmux(socket: &str, words: &[&str]) -> Option<String> {
    let output = Command::new("tmux")
        .args(["-N", "-S", socket])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("tmux is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(said)
}

#[test]
fn tmux_with_a_shell_goes_on_after_persists_and_cuts() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("socket").display().to_string();
    let result = directory.path().join("result");
    let options = ["--on-power-loss", "none", "--epoch-interval", "200ms"];
    // `-D` keeps the server in front.
    let command = ["tmux", "-S", &socket, "-f", "/dev/null", "-D"];
    let mut program = Program::new(alone(), directory.path(), "it", &options, &command);
    program.run();
    let shell = [
        "new-session",
        "-d",
        "-x",
        "91",
        "-y",
        "27",
        "-s",
        "it",
        "bash --norc",
    ];
    program.until("a session", |_| tmux(&socket, &shell).is_some());
    let type_in =
        |line: &str| tmux(&socket, &["send-keys", "-t", "it", line, "Enter"]).expect("typed");
    let reads = |wanted: &str| fs::read_to_string(&result).is_ok_and(|text| text.trim() == wanted);
    let file = result.display();
    type_in(&format!("mine=kept; echo $$ $(tty) $(stty size) > {file}"));
    program.until("an answer", |_| result.exists() && !reads(""));
    let before = fs::read_to_string(&result).expect("readable");
    // A job in front, which has the terminal.
    type_in("sleep 1000");
    for cut in [false, true, false] {
        program.until("an epoch with all of it", |program| {
            let status = program.status();
            status["tracker"]["obstacles"]
                .as_array()
                .is_some_and(Vec::is_empty)
                && status["tracker"]["epochs"].as_u64().unwrap_or(0) > 3
        });
        if cut {
            program.cut(false);
        } else {
            let said = program.verb("persist", &["--then", "kill"]);
            assert_eq!(said.code, 0, "{}\n{}", said.all(), program.said());
            assert_eq!(program.wait(), 0);
        }
        program.run();
        program.until("an answer", |_| tmux(&socket, &["list-sessions"]).is_some());
    }
    // The key goes to the job in front, by the terminal's own rules.
    tmux(&socket, &["send-keys", "-t", "it", "C-c"]).expect("typed");
    type_in(&format!("echo $$ $(tty) $(stty size) $mine > {file}"));
    let wanted = format!("{} kept", before.trim());
    program.until("the same shell", |_| reads(&wanted));
    let screen = tmux(&socket, &["capture-pane", "-p", "-t", "it"]).expect("a screen");
    assert!(screen.contains("^C"), "{screen}");
    tmux(&socket, &["kill-server"]).expect("ended");
    assert_eq!(program.wait(), 0, "{}", program.said());
}
