//! How fast an image is sealed and opened on this machine, by number of threads.
//!
//! `cargo run --release -p dormouse-seal --example seal_bench [MIB] [ROUNDS]`

use std::io::{self, Write};
use std::time::Instant;

use dormouse_seal::{KeySourceKind, MasterKey, Opener, Sealer};

/// Takes bytes as a mapped window does: by copying them.
struct Window(Vec<u8>, usize);

impl Write for Window {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0[self.1..self.1 + data.len()].copy_from_slice(data);
        self.1 += data.len();
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), dormouse_seal::SealError> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut number = |otherwise| match arguments.next() {
        Some(Ok(number)) if number > 0 => number,
        None => otherwise,
        _ => {
            eprintln!("usage: seal_bench [MIB] [ROUNDS]");
            std::process::exit(2)
        }
    };
    let (mib, rounds) = (number(256), number(5));
    let text = vec![0x5a; mib << 20];
    let master = MasterKey::random()?;
    let mut window = Window(vec![1; text.len()], 0);
    let mut back = Window(vec![1; text.len()], 0);
    let gib_s = |since: Instant| mib as f64 / 1024.0 / since.elapsed().as_secs_f64();
    println!("{mib} MiB, median and range of {rounds} rounds");
    for threads in [1, 2, 4] {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            (window.1, back.1) = (0, 0);
            let begin = Instant::now();
            let sealer = Sealer::new(&master, KeySourceKind::File, &master.id(), 0)?;
            let unsigned = sealer.seal_stream(&text[..], &mut window, threads)?;
            let sealed = unsigned.sealed().clone();
            let record = unsigned.finish(0, &[]);
            down.push(gib_s(begin));

            let begin = Instant::now();
            let opener = Opener::new(&master, &record, &[], &sealed)?;
            opener.open_stream(&window.0[..], &mut back, threads)?;
            up.push(gib_s(begin));
        }
        assert!(back.0 == text, "what comes back is what was sealed");
        for (name, mut rates) in [("seal", down), ("open", up)] {
            rates.sort_by(f64::total_cmp);
            let (min, max) = (rates[0], rates[rounds - 1]);
            let median = rates[rounds / 2];
            println!("{name} {threads} threads: {median:.2} GiB/s ({min:.2} to {max:.2})");
        }
    }
    Ok(())
}
