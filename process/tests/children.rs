//! The list of the children of a process is complete.

use std::process::{Command, Stdio};

use dormouse_process::procfs;

#[test]
fn no_child_is_missing_in_the_list_while_others_end() {
    const OTHERS: usize = 40;
    for _ in 0..60 {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let child = |stdin: Stdio| {
            let mut command = Command::new("cat");
            command.stdin(stdin).stdout(Stdio::null());
            command.spawn().expect("cat")
        };
        let mut others: Vec<_> = (0..OTHERS)
            .map(|_| child(reader.try_clone().expect("a copy").into()))
            .collect();
        // At the end of the kernel's list.
        let mut last = child(Stdio::piped());
        let last_pid = last.id() as i32;
        drop((reader, writer));
        let reaper = std::thread::spawn(move || {
            for other in &mut others {
                other.wait().expect("its end");
            }
        });
        let own = std::process::id() as i32;
        let mut incomplete = 0;
        while !reaper.is_finished() {
            let children = procfs::children(own).expect("a list");
            incomplete += u32::from(!children.contains(&last_pid));
        }
        last.kill().expect("it lives");
        last.wait().expect("its end");
        reaper.join().expect("the reaper");
        assert_eq!(incomplete, 0);
    }
}
