//! `tidegate import`: rules of another limiter, as rules of ours, with every difference in meaning.

mod notes; // what is different, and for which rules
mod write; // rules as text

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tidegate_config::{Loaded, RuleFiles, load, load_texts, quoted};
use tidegate_core::DomainDraft;

use super::config::tell;
use super::exit::Exit;
use super::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Import {
    /// Convert the rule files of envoyproxy/ratelimit, and explain what will be different
    Envoy(Envoy),
}

impl Import {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::Envoy(envoy) => envoy.run(),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Its files are valid here as they are: nobody has to convert them to start. Do so to use what they cannot say.

Examples:
  tidegate import envoy /data/ratelimit/config                  print the rules; what is different goes to stderr
  tidegate import envoy /data/ratelimit/config --write rules/   write a file for each of theirs")]
pub(crate) struct Envoy {
    /// Its folder of rule files, or one of them
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Write the rules to files of this folder, which must not have them yet
    #[arg(long, value_name = "OUT_DIR")]
    write: Option<PathBuf>,
}

/// A file of ours.
struct Converted {
    name: String,
    text: String,
}

impl Envoy {
    fn run(&self) -> io::Result<Exit> {
        let theirs = load(&reading(&self.path));
        tell(&theirs.report, &theirs.sources);
        if !theirs.is_valid() {
            return Ok(Exit::Config);
        }
        let files = convert(&self.path, &theirs);
        check(&files, &theirs)?;
        let explained = notes::explain(&theirs, files.len());
        match &self.write {
            Some(folder) => {
                write_files(folder, &files)?;
                output::write(&explained)?;
            }
            None => {
                let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
                output::write(&texts.join("---\n"))?;
                anstream::eprint!("\n{explained}");
            }
        }
        Ok(Exit::Yes)
    }
}

/// As that server reads them. Domains in several files are taken: whoever has not said so there has no such files.
fn reading(path: &Path) -> RuleFiles {
    RuleFiles { paths: vec![path.into()], merge_domains: true, as_reference: true, ..RuleFiles::default() }
}

/// A file of ours for each of theirs, in the order in which a node reads them.
fn convert(path: &Path, theirs: &Loaded) -> Vec<Converted> {
    let mut files: Vec<(PathBuf, PathBuf, Vec<DomainDraft>)> = Vec::new();
    for (name, text) in theirs.sources.all() {
        let alone = load_texts([(name.to_string(), text.as_bytes().to_vec())], &reading(path));
        let file = Path::new(name);
        let inside = file.strip_prefix(path).ok().filter(|inside| inside.file_name().is_some());
        let inside = inside.or_else(|| file.file_name().map(Path::new)).unwrap_or(file);
        files.push((ours(inside), inside.into(), alone.domains));
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    // What holds for a domain stands in its first document, and nowhere else.
    let mut known = HashSet::new();
    let convert = |(ours, theirs, domains): (PathBuf, PathBuf, Vec<DomainDraft>)| {
        let texts = domains.iter().map(|domain| write::domain(domain, known.insert(domain.name.clone())));
        let text = texts.collect::<Vec<_>>().join("---\n");
        let head = format!(
            "# {} of envoyproxy/ratelimit, by `tidegate import envoy`.\n",
            quoted(&theirs.display().to_string())
        );
        Converted { name: ours.display().to_string(), text: head + &text }
    };
    files.into_iter().map(convert).collect()
}

/// The name of a file of ours: there any name will do, here it says what is in it.
fn ours(theirs: &Path) -> PathBuf {
    if theirs.extension().is_some_and(|end| end == "yaml" || end == "yml") {
        return theirs.into();
    }
    let mut name = theirs.as_os_str().to_owned();
    name.push(".yaml");
    name.into()
}

/// What was written is read again: it has to be valid, and say as much as before.
fn check(files: &[Converted], theirs: &Loaded) -> io::Result<()> {
    let texts = files.iter().map(|file| (file.name.clone(), file.text.as_bytes().to_vec()));
    let ours = load_texts(texts, &RuleFiles { merge_domains: true, ..RuleFiles::default() });
    let rules =
        |domains: &[DomainDraft]| domains.iter().map(|domain| notes::rules(domain).len()).sum::<usize>();
    if ours.is_valid() && rules(&ours.domains) == rules(&theirs.domains) {
        return Ok(());
    }
    tell(&ours.report, &ours.sources);
    Err(io::Error::other("the converted rules are not what they were: please report this with the files"))
}

fn write_files(folder: &Path, files: &[Converted]) -> io::Result<()> {
    let of = |path: &Path, error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
    for file in files {
        let path = folder.join(&file.name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(|error| of(parent, error))?;
        // Never over what somebody wrote.
        let written = std::fs::File::create_new(&path)
            .and_then(|mut out| io::Write::write_all(&mut out, file.text.as_bytes()));
        written.map_err(|error| of(&path, error))?;
    }
    Ok(())
}
