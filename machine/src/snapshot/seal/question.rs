//! Asking a person for a passphrase: on the terminal of a command, or on the console of a boot.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Gives a passphrase.
pub(crate) type Ask = Box<dyn Fn() -> io::Result<Zeroizing<String>>>;

/// The first line of a file; `-` is standard input.
///
/// # Errors
/// It cannot be read.
pub(crate) fn answer_from_file(path: &Path) -> io::Result<Zeroizing<String>> {
    if path == Path::new("-") {
        return first_line(&mut io::stdin().lock());
    }
    let file = File::open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    first_line(&mut BufReader::new(file))
}

/// On the terminal of this process.
///
/// # Errors
/// There is none.
pub(crate) fn at_terminal(prompt: &str) -> io::Result<Zeroizing<String>> {
    question(Path::new("/dev/tty"), prompt).map_err(|error| {
        let text = format!("/dev/tty: {error}; without a terminal give --passphrase-file");
        io::Error::new(error.kind(), text)
    })
}

/// On the console; `ready` is called when what is typed is no longer shown.
///
/// # Errors
/// It cannot be read from.
pub(crate) fn at_console(prompt: &str) -> io::Result<Zeroizing<String>> {
    question(Path::new("/dev/console"), prompt)
}

fn question(path: &Path, prompt: &str) -> io::Result<Zeroizing<String>> {
    let mut terminal = OpenOptions::new().read(true).write(true).open(path)?;
    let hidden = Hidden::begin(terminal.try_clone()?)?;
    write!(terminal, "{prompt} (an empty line gives up): ")?;
    terminal.flush()?;
    let answer = first_line(&mut BufReader::new(&terminal));
    drop(hidden);
    let _ = writeln!(terminal);
    answer
}

/// Unbuffered beyond the line, as long as it comes from a terminal in line mode.
fn first_line(from: &mut impl BufRead) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length = line.trim_end_matches(['\n', '\r']).len();
    line.truncate(length);
    Ok(line)
}

/// A terminal that does not show what is typed, as long as this lives.
struct Hidden {
    terminal: File,
    before: Termios,
}

impl Hidden {
    fn begin(terminal: File) -> io::Result<Hidden> {
        let before = tcgetattr(&terminal)?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO;
        silent.local_modes |= LocalModes::ICANON;
        // Not "flush": what was typed ahead counts.
        tcsetattr(&terminal, OptionalActions::Now, &silent)?;
        Ok(Hidden { terminal, before })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passphrase_is_the_first_line_without_its_end() {
        for (text, expected) in [("a b\n", "a b"), ("x", "x"), ("x\r\ny\n", "x"), ("\n", "")] {
            assert_eq!(*first_line(&mut text.as_bytes()).unwrap(), expected);
        }
        assert!(first_line(&mut &b""[..]).is_err());
    }
}
