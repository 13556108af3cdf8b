//! `tidegate completions`

use std::io;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::exit::Exit;
use super::output;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish")]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut super::Arguments::command(), "tidegate", &mut text);
        output::write(&String::from_utf8_lossy(&text))?;
        Ok(Exit::Yes)
    }
}
