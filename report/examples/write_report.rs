//! Writes the report of the run in the directory named on the command line, and draws it here.
use dormouse_report::{Timeline, read_run, terminal, write_report};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .ok_or("usage: write_report DIRECTORY")?;
    let run = read_run(directory.as_ref())?;
    let style = terminal::Style::from_environment(None, |name| std::env::var(name).ok());
    print!(
        "{}",
        terminal::render(&Timeline::from_events(&run.events), &run.cycles, style)
    );
    let paths = write_report(directory.as_ref(), None, None)?;
    println!("{}\n{}", paths.html.display(), paths.trace.display());
    Ok(())
}
