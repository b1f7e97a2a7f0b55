//! Tests of files of /dev/shm that are made again.

use std::io::{Read, Write};

use super::*;

/// A file of its own, removed in the end.
struct Place(String);

impl Place {
    fn new(name: &str) -> Self {
        Self(format!("/dev/shm/dormouse-{name}-{}", std::process::id()))
    }

    /// What another program leaves there.
    fn write(&self, text: &str) -> (u64, u64) {
        fs::write(&self.0, text).expect("written");
        let found = fs::metadata(&self.0).expect("there");
        (found.dev(), found.ino())
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).expect("there")
    }

    fn make(&self, made: &mut MadeFiles, file: (u64, u64)) -> Result<fs::File, Error> {
        let own = fs::metadata("/proc/self").expect("ours");
        made.make(&self.0, 0o644, (own.uid(), own.gid()), file)
            .map(fs::File::from)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_stays_as_it_is() {
    let place = Place::new("others");
    let (device, inode) = place.write("of another program");
    let mut made = MadeFiles::default();
    let refused = place.make(&mut made, (device, inode + 1));
    let message = refused.expect_err("it is not the program's").to_string();
    assert!(message.contains(&place.0), "{message}");
    assert!(message.contains("move or remove it"), "{message}");
    drop(made);
    assert_eq!(place.text(), "of another program");
}

#[test]
fn a_file_that_was_left_behind_is_whole_until_the_restore_is_proven() {
    let place = Place::new("left");
    let file = place.write("left behind");
    let mut made = MadeFiles::default();
    place.make(&mut made, file).expect("made");
    assert_eq!(place.text(), "left behind");
    assert_ne!(made.path_of(&place.0), place.0);
    let aside = made.path_of(&place.0).to_owned();
    drop(made);
    assert_eq!(place.text(), "left behind");
    assert!(!Path::new(&aside).exists(), "{aside} stays");

    let mut made = MadeFiles::default();
    let mut new = place.make(&mut made, file).expect("made again");
    new.write_all(b"restored").expect("written");
    made.take_places();
    assert_eq!(place.text(), "restored");
    assert!(!Path::new(&aside).exists(), "{aside} stays");

    // Its restored life ended before there was another epoch: the file bears a mark.
    drop(new);
    let mut made = MadeFiles::default();
    let mut new = place
        .make(&mut made, file)
        .expect("the marked one is its own");
    made.take_places();
    let mut text = String::new();
    new.read_to_string(&mut text).expect("read");
    assert_eq!(text, "");
}

#[test]
fn a_file_that_was_left_behind_and_that_a_process_uses_is_refused() {
    let place = Place::new("used");
    let file = place.write("in use");
    let user = std::process::Command::new("sleep")
        .arg("1000")
        .stdin(fs::File::open(&place.0).expect("opened"))
        .spawn();
    let mut user = user.expect("sleep starts");
    let refused = place.make(&mut MadeFiles::default(), file);
    let _ = user.kill();
    let _ = user.wait();
    let message = refused.expect_err("it is in use").to_string();
    let words = format!("process {} uses it", user.id());
    assert!(message.contains(&words), "{message}");
    assert_eq!(place.text(), "in use");
}
