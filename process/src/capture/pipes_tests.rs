use super::*;

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
