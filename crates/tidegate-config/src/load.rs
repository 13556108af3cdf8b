//! Files and folders to all rules: found, read, checked together.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tidegate_core::DomainDraft;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::graft;
use crate::reader::Reader;
use crate::report::Report;
use crate::rules::{self, Common, DOMAIN, Defaults, DomainText};
use crate::source::Sources;
use crate::theirs;
use crate::yaml::{self, Caps};

/// How many files there may be, and how many levels of folders: enough for people, and an end for a wrong path.
const FILES_MAX: usize = 10_000;
const FOLDERS_MAX: usize = 16;
/// What the names of rule files end in.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// How many files may be as large as a file may be.
const FULL_FILES_MAX: usize = 4;
/// How often files are read anew that changed while they were read.
const ATTEMPTS_MAX: usize = 5;

/// Which rules to load, and what holds for them.
#[derive(Clone, Debug, Default)]
pub struct RuleFiles {
    /// Files, and folders of files.
    pub paths: Vec<PathBuf>,
    /// Texts that are here already, by name.
    pub texts: Vec<(String, Arc<str>)>,
    /// Texts whose descriptors are grafted onto what the others say, by name: rules that were written one by one.
    pub added: Vec<(String, Arc<str>)>,
    /// Bounds of each file.
    pub caps: Caps,
    /// May a domain stand in several documents?
    pub merge_domains: bool,
    /// What holds for limits that do not say otherwise.
    pub defaults: Defaults,
    /// Are they read as envoyproxy/ratelimit reads them? Files of any name, none at all, keys that have no effect where they stand, and
    /// refunds in every domain.
    pub as_reference: bool,
    /// The folder below which envoyproxy/ratelimit names files, in what it says of them.
    pub reference_root: Option<PathBuf>,
}

/// What was found.
#[derive(Debug)]
pub struct Loaded {
    /// All domains, in order; to be used only if there are no errors.
    pub domains: Vec<DomainDraft>,
    /// What is wrong.
    pub report: Report,
    /// The files, to show it.
    pub sources: Sources,
    /// Which of the texts that were to be grafted are not among them, since they do not go together with the others.
    pub left_out: Vec<LeftOut>,
}

/// A text that could not be grafted.
#[derive(Clone, PartialEq, Debug)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// What is wrong with it, as [`Report::json`] tells it.
    pub errors: Vec<Value>,
    /// Was it not so before, or with another text?
    pub is_new: bool,
}

impl LeftOut {
    /// Why, for people: what is said first.
    pub fn why(&self) -> &str {
        let messages = self.errors.iter().filter_map(|error| error["message"].as_str());
        messages.into_iter().next().unwrap_or("it does not go together with other rules")
    }
}

/// What files said, by their names.
pub(crate) type FileTexts = Arc<[(String, Vec<u8>)]>;

impl Loaded {
    /// Can the rules be used?
    pub fn is_valid(&self) -> bool {
        self.report.errors() == 0
    }
}

/// Loads all rules. Never a mixture of old and new files: what changes while it is read is read again.
pub fn load(files: &RuleFiles) -> Loaded {
    load_marked(files).0
}

/// The same, and what the files looked like when they were read, and said; nothing if one could not be read.
pub(crate) fn load_marked(files: &RuleFiles) -> (Loaded, Fingerprint, Option<FileTexts>) {
    for _ in 0..ATTEMPTS_MAX {
        let reader = files.reader();
        let before = files.fingerprint();
        let texts = read_files(&files.paths, files.names(), &files.caps, &reader, files.told_empty());
        if before == files.fingerprint() {
            let named = texts.into_iter().map(|(path, bytes)| (path.display().to_string(), bytes));
            let texts: Vec<(String, Bytes)> = named.collect();
            let said = texts.iter().map(|(name, bytes)| Some((name.clone(), bytes.as_ref().ok()?.clone())));
            let said = if reader.errors() == 0 { said.collect() } else { None };
            return (load_all(texts.into_iter().chain(built_in(files)), files, reader), before, said);
        }
    }
    let reader = Reader::new(&[]);
    let message = "the rule files keep changing while they are read";
    reader.say(
        Diagnostic::nowhere(Code::UnsteadyFiles, message)
            .help("replace them all at once: write a new folder and swap a link"),
    );
    (load_all(Vec::new(), files, reader), Fingerprint::new(), None)
}

/// Loads all rules with what the files said before, whatever they say by now.
pub(crate) fn load_again(files: &RuleFiles, said: &FileTexts) -> Loaded {
    let texts = said.iter().map(|(name, bytes)| (name.clone(), Ok(bytes.clone())));
    load_all(texts.chain(built_in(files)), files, files.reader())
}

fn built_in(files: &RuleFiles) -> impl Iterator<Item = (String, Bytes)> {
    files.texts.iter().map(|(name, text)| (name.clone(), Ok(text.as_bytes().to_vec())))
}

/// Loads rules from texts that are here already, each with a name.
pub fn load_texts(texts: impl IntoIterator<Item = (String, Vec<u8>)>, files: &RuleFiles) -> Loaded {
    let reader = files.reader();
    load_all(texts.into_iter().map(|(name, bytes)| (name, Ok(bytes))), files, reader)
}

/// The bytes of a file, or why there are none.
pub(crate) type Bytes = Result<Vec<u8>, Diagnostic>;

/// The bytes of all files; of all together not more than a few times what one may have. What is wrong with a folder that has none
/// is said by `empty`.
pub(crate) fn read_files(
    paths: &[PathBuf],
    names: FileNames,
    caps: &Caps,
    reader: &Reader,
    empty: impl Fn(&Path) -> Diagnostic,
) -> Vec<(PathBuf, Bytes)> {
    let mut left = caps.bytes.saturating_mul(FULL_FILES_MAX);
    let mut texts = Vec::new();
    for path in find(paths, names, reader, empty) {
        let bytes = read_file(&path, caps.bytes.min(left)).map_err(|trouble| match trouble.code {
            Code::TooLarge if left < caps.bytes => too_much(&path, caps.bytes),
            _ => trouble,
        });
        left -= bytes.as_ref().map_or(0, Vec::len);
        texts.push((path, bytes));
    }
    texts
}

/// Which files of a folder are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileNames {
    /// Those that say by their names that they are meant.
    Rules,
    /// All but hidden ones.
    Any,
}

impl RuleFiles {
    fn reader(&self) -> Reader {
        let reader = Reader::new(&[&DOMAIN]).of_rules();
        if self.as_reference { reader.as_reference() } else { reader }
    }

    fn names(&self) -> FileNames {
        if self.as_reference { FileNames::Any } else { FileNames::Rules }
    }

    fn told_empty(&self) -> fn(&Path) -> Diagnostic {
        if self.as_reference { no_rules } else { no_rule_files }
    }

    /// What changes when the files do.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.paths, self.names())
    }
}

fn no_rules(folder: &Path) -> Diagnostic {
    let message = format!("there is no file in {}: nothing is limited", folder.display());
    Diagnostic::nowhere(Code::NoRules, message).help("put rules there; they are loaded when they come")
}

fn no_rule_files(folder: &Path) -> Diagnostic {
    Diagnostic::nowhere(Code::NoRuleFiles, format!("there is no rule file in {}", folder.display()))
        .help("rule files end in .yaml, .yml or .json; names that begin with a dot are left out")
}

fn load_all(texts: impl IntoIterator<Item = (String, Bytes)>, files: &RuleFiles, reader: Reader) -> Loaded {
    let mut sources = Sources::new();
    // What is added to a domain counts as the domain's first document says.
    let mut common = Common::new(files.merge_domains || !files.added.is_empty(), files.as_reference);
    let domains = read_all(texts, files, &reader, &mut sources, &mut common);
    let mut domains = join(domains, files.merge_domains, &reader);
    let added = files.added.iter().map(|(name, text)| (name.clone(), Ok(text.as_bytes().to_vec())));
    let added = read_all(added, files, &reader, &mut sources, &mut common);
    graft::graft_all(&mut domains, added, &reader);
    let domains = domains.into_iter().map(|text| text.draft).collect();
    let mut report = reader.finish();
    report.name_theirs(|source| theirs::file_name(sources.name(source), files.reference_root.as_deref()));
    Loaded { domains, report, sources, left_out: Vec::new() }
}

/// Reads texts, one after the other.
fn read_all(
    texts: impl IntoIterator<Item = (String, Bytes)>,
    files: &RuleFiles,
    reader: &Reader,
    sources: &mut Sources,
    common: &mut Common,
) -> Vec<DomainText> {
    let mut domains: Vec<DomainText> = Vec::new();
    for (name, bytes) in texts {
        let source = bytes.and_then(|bytes| sources.add(name.clone(), bytes));
        match source.and_then(|source| yaml::parse(source, sources, &files.caps)) {
            Ok(tree) => {
                let name = Arc::from(name);
                let checked = rules::read(reader, sources, &tree, &name, files.defaults, common, false);
                if reader.errors() > 0 {
                    domains.extend(checked);
                } else {
                    // All has been said. It has to take what the first reader took: a limit with an error in it is left out.
                    let silent = files.reader();
                    let kept = rules::read(&silent, sources, &tree, &name, files.defaults, common, true);
                    domains.extend(kept);
                }
            }
            Err(trouble) => reader.say(trouble),
        }
    }
    domains
}

/// Domains of the same name become one, or are refused.
fn join(texts: Vec<DomainText>, merge: bool, reader: &Reader) -> Vec<DomainText> {
    let mut domains: Vec<DomainText> = Vec::with_capacity(texts.len());
    let mut seen: HashMap<String, usize> = HashMap::new();
    for text in texts {
        match seen.get(&text.draft.name) {
            None => {
                seen.insert(text.draft.name.clone(), domains.len());
                domains.push(text);
            }
            Some(first) if merge => merge_into(&mut domains[*first], text, reader),
            Some(first) => reader.say(
                Diagnostic::new(
                    Code::DuplicateDomain,
                    text.at,
                    format!("the domain {} stands twice", quoted(&text.draft.name)),
                )
                .label("once more")
                .note(domains[*first].at, "first here")
                .help("put its descriptors into one document, or set `rules.merge_domains`")
                .theirs(theirs::duplicate_domain(&text.draft.name)),
            ),
        }
    }
    domains
}

fn merge_into(first: &mut DomainText, more: DomainText, reader: &Reader) {
    refuse_settings(first, &more, reader);
    let known: HashSet<(&str, Option<&str>)> =
        first.draft.descriptors.iter().map(|draft| (draft.key.as_str(), draft.value.as_deref())).collect();
    for draft in &more.draft.descriptors {
        if known.contains(&(draft.key.as_str(), draft.value.as_deref())) {
            let value =
                draft.value.as_deref().map_or_else(String::new, |value| format!(" = {}", quoted(value)));
            reader.say(
                Diagnostic::new(
                    Code::DuplicateDescriptor,
                    more.at,
                    format!("the descriptor {}{value} stands in two documents", quoted(&draft.key)),
                )
                .label("once more in this document")
                .note(first.at, "first in this one")
                .help("join the two descriptors")
                .theirs(theirs::duplicate_descriptor(&format!(
                    "{}.{}",
                    more.draft.name,
                    theirs::composite(&draft.key, draft.value.as_deref())
                ))),
            );
        }
    }
    first.draft.descriptors.extend(more.draft.descriptors);
}

/// Only the first document of a domain says something about the domain itself.
pub(crate) fn refuse_settings(first: &DomainText, more: &DomainText, reader: &Reader) {
    if let Some(at) = more.settings {
        reader.say(
            Diagnostic::new(
                Code::DuplicateDomain,
                at,
                format!("settings of the domain {} in its second document", quoted(&more.draft.name)),
            )
            .label("only the first may have them")
            .note(first.at, "the first")
            .help("move it there"),
        );
    }
}

/// The files of all paths, in the order of their names. What cannot be looked at is told.
fn find(
    paths: &[PathBuf],
    names: FileNames,
    reader: &Reader,
    empty: impl Fn(&Path) -> Diagnostic,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let mut walk = Walk { found: &mut found, names, entered: HashSet::new(), full: false };
                walk.enter(path, FOLDERS_MAX, &mut |trouble| reader.say(trouble));
                if walk.full {
                    reader.say(too_many(path, &format!("more than {FILES_MAX} rule files")));
                }
            }
            Ok(_) => found.push(path.clone()),
            Err(error) => {
                reader.say(unreadable(path, &error));
                continue;
            }
        }
        if found.len() == before {
            reader.say(empty(path));
        }
    }
    found
}

/// Looks for rule files below a folder.
struct Walk<'w> {
    found: &'w mut Vec<PathBuf>,
    names: FileNames,
    /// Where folders really are. Each is looked into once, by whichever name comes first: links may lead in circles.
    entered: HashSet<PathBuf>,
    /// Were there more files than may be?
    full: bool,
}

impl Walk<'_> {
    fn enter(&mut self, folder: &Path, levels: usize, trouble: &mut impl FnMut(Diagnostic)) {
        let listed = fs::canonicalize(folder).and_then(|real| {
            if !self.entered.insert(real) {
                return Ok(Vec::new());
            }
            fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
        });
        let mut paths: Vec<PathBuf> = match listed {
            Ok(paths) => paths,
            Err(error) => return trouble(unreadable(folder, &error)),
        };
        paths.sort();
        for path in paths {
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            let known = |end: &OsStr| EXTENSIONS.iter().any(|known| end.eq_ignore_ascii_case(known));
            let any = self.names == FileNames::Any;
            let is_rules = || any || path.extension().is_some_and(known);
            if hidden || self.full {
                continue;
            }
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() && levels > 0 => self.enter(&path, levels - 1, trouble),
                Ok(metadata) if metadata.is_dir() => {
                    trouble(too_many(&path, &format!("more than {FOLDERS_MAX} folders in each other")));
                }
                Ok(_) if is_rules() && self.found.len() >= FILES_MAX => self.full = true,
                Ok(_) if is_rules() => self.found.push(path),
                Ok(_) => {}
                Err(error) if is_rules() => trouble(unreadable(&path, &error)),
                Err(_) => {}
            }
        }
    }
}

/// The bytes of a file; not one more than allowed is read.
pub(crate) fn read_file(path: &Path, max: usize) -> Result<Vec<u8>, Diagnostic> {
    let mut bytes = Vec::new();
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        // To open a pipe is to wait for whoever writes to it.
        let message = format!("{} is not a file but {}", path.display(), kind(&metadata));
        return Err(
            Diagnostic::nowhere(Code::UnreadableFile, message).help("name a file, or a folder of files")
        );
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() > max {
        let message = format!("{} has more than {max} bytes", path.display());
        return Err(Diagnostic::nowhere(Code::TooLarge, message)
            .help("split the file, or raise `rules.file_bytes_max`"));
    }
    Ok(bytes)
}

fn kind(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { "a folder" } else { "a pipe, a socket or a device" }
}

fn too_much(path: &Path, file_max: usize) -> Diagnostic {
    let message = format!(
        "with {} the rule files have more than {FULL_FILES_MAX} times {file_max} bytes",
        path.display()
    );
    Diagnostic::nowhere(Code::TooLarge, message)
        .help("check that the folder holds rules only, or raise `rules.file_bytes_max`, which bounds all together too")
}

fn too_many(path: &Path, what: &str) -> Diagnostic {
    Diagnostic::nowhere(Code::TooManyFiles, format!("{}: {what}", path.display()))
        .help("check that the path is the folder of rules; put rules together into fewer files")
}

fn unreadable(path: &Path, error: &io::Error) -> Diagnostic {
    let path = path.display();
    let help = match error.kind() {
        io::ErrorKind::NotFound => "check the path; in a container, check that the volume is mounted",
        io::ErrorKind::PermissionDenied => "let this process's user read it, e.g. `chmod o+r`",
        _ => "check the file and its disk",
    };
    Diagnostic::nowhere(Code::UnreadableFile, format!("{path} cannot be read: {error}")).help(help)
}

/// What changes when files do: of each its name, where that leads, its size and its time.
pub(crate) type Fingerprint = Vec<(PathBuf, Option<PathBuf>, u64, Option<std::time::SystemTime>)>;

fn fingerprint(paths: &[PathBuf], names: FileNames) -> Fingerprint {
    let of = |path: PathBuf| {
        let metadata = fs::metadata(&path).ok();
        let leads_to = fs::canonicalize(&path).ok();
        let size = metadata.as_ref().map_or(0, Metadata::len);
        (path, leads_to, size, metadata.and_then(|metadata| metadata.modified().ok()))
    };
    paths.iter().flat_map(|path| rule_files(path, names)).map(of).collect()
}

/// The rule files of a path, without a word about what cannot be looked at.
pub(crate) fn rule_files(path: &Path, names: FileNames) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    let mut found = Vec::new();
    let mut walk = Walk { found: &mut found, names, entered: HashSet::new(), full: false };
    walk.enter(path, FOLDERS_MAX, &mut |_| {});
    found
}
