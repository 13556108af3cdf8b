//! What goes to stdout: data. Talk goes to stderr.

use std::io;

use clap::ValueEnum;
use serde_json::Value;
use tidegate_config::escaped;

/// In which form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Table,
    /// For machines
    Json,
}

/// Writes text to stdout. Whoever reads it may have gone: `tidegate … | head` is no trouble.
pub(crate) fn write(text: &str) -> io::Result<()> {
    use io::Write as _;
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes JSON to stdout.
pub(crate) fn write_json(value: &Value) -> io::Result<()> {
    write(&format!("{value:#}\n"))
}

/// Writes data to stdout as it came. Only a terminal is shown nothing that it would obey. Says whether anybody still reads.
pub(crate) fn write_bytes(bytes: &[u8]) -> io::Result<bool> {
    use io::{IsTerminal as _, Write as _};
    let mut out = io::stdout().lock();
    let written = match out.is_terminal() {
        true => {
            let tame = |letter: char| {
                if letter.is_control() && !"\n\t".contains(letter) { '\u{fffd}' } else { letter }
            };
            let text: String = String::from_utf8_lossy(bytes).chars().map(tame).collect();
            out.write_all(text.as_bytes())
        }
        false => out.write_all(bytes),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// Asks whether something is meant. Where nobody can answer, nobody is asked.
pub(crate) fn is_meant(question: &str) -> io::Result<bool> {
    use io::{BufRead as _, Read as _};
    need_somebody_to_ask()?;
    write(&format!("{question} [y/N] "))?;
    let mut line = String::new();
    io::stdin().lock().take(LINE_MAX).read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// The longest answer that is read.
const LINE_MAX: u64 = 64;

pub(crate) fn need_somebody_to_ask() -> io::Result<()> {
    match io::IsTerminal::is_terminal(&io::stdin()) {
        true => Ok(()),
        false => Err(io::Error::other("nobody can be asked whether this is meant: add --yes")),
    }
}

/// A word as a shell takes it, to be shown in a command.
pub(crate) fn word(said: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&byte);
    match !said.is_empty() && said.bytes().all(is_plain) {
        true => said.into(),
        false => format!("'{}'", escaped(said).replace('\'', "'\\''")),
    }
}

/// Rows as columns of equal width, under a head. What comes from files is shown with nothing in it that a terminal obeys.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> =
        rows.iter().map(|row| std::array::from_fn(|column| escaped(&row[column]))).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |cells: &[String; N]| {
        // By hand: the width of a format has an end, and names of rules may have none.
        let padded = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| cell.clone() + &" ".repeat(width.saturating_sub(cell.chars().count())));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    std::iter::once(line(&head.map(|name| name.to_uppercase()))).chain(rows.iter().map(line)).collect()
}
