use super::*;

#[test]
fn epoll_items_are_read_with_their_words() {
    let info = "pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\n\
                tfd:        5 events:       19 data: deadbeef00000005  pos:0 ino:61af sdev:7\n\
                tfd:       11 events: 80000001 data:                b  pos:0 ino:61b0 sdev:7\n";
    let items = epoll_items(info);
    assert_eq!(items.len(), 2);
    assert_eq!(
        items[0],
        EpollItem {
            descriptor: 5,
            events: 0x19,
            data: 0xdead_beef_0000_0005
        }
    );
    assert_eq!(items[1].events, 0x8000_0001);
}

#[test]
fn a_timer_keeps_its_remaining_time_and_period() {
    let info = "clockid: 1\nticks: 3\nsettime flags: 01\nit_value: (4, 500)\nit_interval: (1, 0)\n";
    assert_eq!(
        timer(info),
        FileKind::Timer {
            clock: 1,
            flags: 1,
            remaining_ns: 4_000_000_500,
            interval_ns: 1_000_000_000,
            ticks: 3
        }
    );
}

#[test]
fn reading_a_pipe_leaves_its_content_there() {
    use std::io::Write;
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    for word in ["one ", "two ", "three"] {
        writer.write_all(word.as_bytes()).expect("room");
    }
    let own = std::process::id() as Pid;
    for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
        let (content, capacity) = pipe_content(own, end).expect("readable");
        assert_eq!(
            (content.as_slice(), capacity),
            (b"one two three".as_slice(), 65536)
        );
    }
    let mut bytes = [0u8; 13];
    reader.read_exact(&mut bytes).expect("all of it");
    assert_eq!(&bytes, b"one two three");
}
