//! What an operator is told about situations that no small file can show: folders, sizes, variables, files that do not hold still. And that
//! there is no diagnostic whose text is not written down somewhere. `TIDEGATE_BLESS=1 cargo test -p tidegate-config` writes them again.

mod support;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use support::differs;
use tidegate_config::{
    Caps, Code, Given, Report, RuleFiles, Sources, Style, load, load_texts, read_drop_in, resolve,
};

type Outcome = Result<(), Box<dyn Error>>;

/// A situation, made in an empty folder, and what is said about it.
type Situation = (&'static str, fn(&Path) -> String);

const SITUATIONS: &[Situation] = &[
    ("unreadable-file", |folder| told(folder, &[])),
    ("no-rule-files", |folder| told(folder, &[("rules/.hidden.yaml", ""), ("rules/notes.txt", "")])),
    ("too-large", |folder| told(folder, &[("rules/a.yaml", &"#".repeat(3_000))])),
    ("too-deep", |_| told_text(&format!("domain: a\ndescriptors: {}", "[".repeat(200)))),
    ("too-many-nodes", |_| told_text(&format!("domain: a\nx-all: [{}]\n", "a,".repeat(9_999)))),
    ("alias-bomb", |_| {
        let levels = (1..20).map(|at| format!("x-{at}: &x{at} [*x{0}, *x{0}, *x{0}]\n", at - 1));
        told_text(&format!("domain: a\nx-0: &x0 a\n{}", levels.collect::<String>()))
    }),
    ("too-many-limits", |_| {
        let limits: String = (0..200).map(|at| format!("      - {{ limit: 5/1m, name: n{at} }}\n")).collect();
        told_text(&format!("domain: a\ndescriptors:\n  - key: k\n    rate_limits:\n{limits}"))
    }),
    ("too-many-files", |folder| {
        let deep = (0..20).fold(folder.join("rules"), |path, _| path.join("d"));
        fs::create_dir_all(&deep).expect("folders");
        fs::write(deep.join("a.yaml"), "domain: a\n").expect("written");
        told(folder, &[("rules/b.yaml", "domain: b\n")])
    }),
    ("settings", |folder| {
        let file = folder.join("tidegate.yaml");
        fs::write(&file, "rules: { file_bytes_max: 32 megs }\n").expect("written");
        let variables = vec![("TIDEGATE_RULES_WATSH".into(), "true".into())];
        let resolved = resolve(&Given { file: Some(file), variables, ..Given::default() });
        resolved.report.render(&resolved.sources, Style::Plain)
    }),
    ("listeners", |folder| {
        let file = folder.join("tidegate.yaml");
        fs::write(&file, "rls: { listen: 8081, tls_key: key.pem }\nhttp: { headers: [ietf-11, x-epock] }\n")
            .expect("written");
        let flags = vec![("http.headers".into(), "retry-after,github,kongo".into())];
        let resolved = resolve(&Given { file: Some(file), flags, ..Given::default() });
        resolved.report.render(&resolved.sources, Style::Plain)
    }),
    ("store", |folder| {
        let file = folder.join("tidegate.yaml");
        fs::write(&file, "store:\n  url: 'redis://tide:secret@here:port'\n  tls: { key: key.pem }\n")
            .expect("written");
        let mut resolved = resolve(&Given { file: Some(file), ..Given::default() });
        resolved.refuse("store.url", Code::BadStoreUrl, "`port` is no port");
        resolved.report.render(&resolved.sources, Style::Plain)
    }),
    ("xds", |folder| {
        let file = folder.join("tidegate.yaml");
        fs::write(&file, "xds:\n  server: here\n  node_metadata: [zone]\n  headers: ['x-token hush']\n  tls: { ca: ca.pem }\n")
            .expect("written");
        let mut resolved = resolve(&Given { file: Some(file), ..Given::default() });
        resolved.refuse("xds.server", Code::BadXds, "`here` is no host and port");
        resolved.report.render(&resolved.sources, Style::Plain)
    }),
    ("control", |folder| {
        let file = folder.join("tidegate.yaml");
        fs::write(&file, "control:\n  listen: 0.0.0.0:8082\n  database: mysql://here/quotas\n")
            .expect("written");
        let resolved = resolve(&Given { file: Some(file), ..Given::default() });
        resolved.report.render(&resolved.sources, Style::Plain)
    }),
    ("drop-in", |folder| {
        let variables = [("BACKEND_TYPE", "memcache"), ("PORT", "http"), ("REDIS_TYPE", "sentinel")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut report = Report::new();
        read_drop_in(&variables).troubles.into_iter().for_each(|trouble| report.push(trouble));
        let empty = RuleFiles { as_reference: true, ..files(folder) };
        fs::create_dir(folder.join("rules")).expect("a folder");
        let text = "domain: a\ndescriptors:\n  - key: k\n    unit: day\n";
        let misplaced = load_texts([("rules.yaml".into(), text.into())], &empty);
        let empty = load(&empty);
        [report.render(&Sources::new(), Style::Plain), empty.report.render(&empty.sources, Style::Plain)]
            .concat()
            + &misplaced.report.render(&misplaced.sources, Style::Plain)
    }),
    ("unsteady-files", unsteady),
];

fn files(folder: &Path) -> RuleFiles {
    let caps = Caps { bytes: 2_000, ..Caps::default() };
    RuleFiles { paths: vec![folder.join("rules")], caps, ..RuleFiles::default() }
}

fn told(folder: &Path, texts: &[(&str, &str)]) -> String {
    for (name, text) in texts {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("written");
    }
    let loaded = load(&files(folder));
    loaded.report.render(&loaded.sources, Style::Plain)
}

fn told_text(text: &str) -> String {
    let caps = Caps { nodes: 5_000, ..Caps::default() };
    let files = RuleFiles { caps, ..RuleFiles::default() };
    let loaded = load_texts([("rules.yaml".into(), text.into())], &files);
    loaded.report.render(&loaded.sources, Style::Plain)
}

/// Somebody swaps the folder faster than it can be read.
fn unsteady(folder: &Path) -> String {
    for version in ["one", "two"] {
        fs::create_dir(folder.join(version)).expect("a folder");
        for file in 0..200 {
            let text = format!("domain: d{file}\n");
            fs::write(folder.join(version).join(format!("{file}.yaml")), text).expect("written");
        }
    }
    let swap = |version: &str| {
        std::os::unix::fs::symlink(folder.join(version), folder.join("next")).expect("a link");
        fs::rename(folder.join("next"), folder.join("rules")).expect("swapped");
    };
    swap("one");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap("two");
                swap("one");
            }
        });
        // The two may, by luck, keep out of each other's way.
        let loads = std::iter::repeat_with(|| load(&files(folder)));
        let refused = loads.take(3_000).find(|loaded| !loaded.is_valid());
        done.store(true, Ordering::Relaxed);
        refused.map_or_else(String::new, |loaded| loaded.report.render(&loaded.sources, Style::Plain))
    })
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

#[test]
fn situations_are_told_as_written_down() -> Outcome {
    let mut stale = Vec::new();
    for (name, make) in SITUATIONS {
        let folder = tempfile::tempdir()?;
        let told = make(folder.path()).replace(&folder.path().display().to_string(), "FOLDER");
        stale.extend(differs(&tests().join(format!("golden/situations/{name}.txt")), &told)?);
    }
    assert!(
        stale.is_empty(),
        "{}\nif that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-config",
        stale.join("\n")
    );
    Ok(())
}

#[test]
fn every_diagnostic_is_written_down_somewhere() -> Outcome {
    let mut written = String::new();
    // Those of `tidegate test` need a runner, which is in the binary.
    let mut folders = vec![tests().join("golden"), tests().join("../../tidegate/tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "txt") {
                written += &fs::read_to_string(path)?;
            }
        }
    }
    let missing: Vec<&str> =
        Code::ALL.iter().map(|code| code.id()).filter(|id| !written.contains(&format!("[{id}]:"))).collect();
    assert!(missing.is_empty(), "no golden text for {missing:?}");
    Ok(())
}
