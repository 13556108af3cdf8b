//! How accurate the shipped algorithms are, measured. Start at [`run`].
//!
//! The study feeds every algorithm the same traces and judges each decision by an exact log of the algorithm's own
//! admissions. Nothing here decides anything in service.

mod random; // seeded, the same on every machine
mod trace; // when requests arrive

mod limiter; // what is judged
mod exact; // the judge's memory
mod judge; // one limiter on one trace
mod attempts; // the same in the style of Cloudflare's figures

mod study; // everything on everything
mod claims; // what must hold
mod plots; // what one sees
mod svg; // how it is drawn
mod report; // what one reads

use std::fs;
use std::path::{Path, PathBuf};

/// The seed of the published figures.
const SEED: u64 = 20_260_801;

const USAGE: &str = "\
usage: cargo xtask accuracy [--quick] [--seed N] [--write | --plots]

Measures the accuracy of every algorithm against an exact log and prints it as Markdown.
Ends with exit code 1 if a hard claim does not hold.

  --quick   a short run, for tests
  --seed N  other random traces
  --write   write docs/accuracy.md and docs/plots/*.svg instead of printing
  --plots   write docs/plots/*.svg alone, which takes no time
";

#[derive(Debug, PartialEq)]
struct Options {
    quick: bool,
    write: bool,
    plots: bool,
    seed: u64,
    help: bool,
}

/// The whole program, given the words after its name.
pub fn run(args: &[String]) -> Result<(), String> {
    let options = parse(args)?;
    if options.help {
        print!("{USAGE}");
        return Ok(());
    }
    let figures = plots::figures()?;
    if options.plots {
        return write_plots(&docs_folder(), &figures);
    }
    let study = study::Study::run(options.seed, options.quick)?;
    let claims = claims::claims(&study);
    let text = report::markdown(&study, &claims, &claims::goals(&study), &figures);
    if options.write {
        write_plots(&docs_folder(), &figures)?;
        put(&docs_folder().join("accuracy.md"), &text)?;
    } else {
        print!("{text}");
    }
    let failed: Vec<&claims::Claim> = claims.iter().filter(|claim| !claim.holds).collect();
    match failed.len() {
        0 => Ok(()),
        n => {
            for claim in failed {
                eprintln!("FAIL {} — {}", claim.text, claim.worst);
            }
            Err(format!("{n} hard claims do not hold"))
        }
    }
}

fn parse(args: &[String]) -> Result<Options, String> {
    let mut options = Options { quick: false, write: false, plots: false, seed: SEED, help: false };
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.quick = true,
            "--write" => options.write = true,
            "--plots" => options.plots = true,
            "--help" | "-h" => options.help = true,
            "--seed" => {
                let number = words.next().and_then(|number| number.parse().ok());
                options.seed = number.ok_or("--seed needs a whole number")?;
            }
            other => return Err(format!("unknown argument {other}\n\n{USAGE}")),
        }
    }
    if options.quick && options.write {
        return Err("--quick is for tests; the published figures come from the full run".into());
    }
    Ok(options)
}

/// `docs` of the workspace when cargo runs us, else of the current folder.
fn docs_folder() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.as_deref().and_then(Path::parent).unwrap_or(Path::new(".")).join("docs")
}

fn write_plots(docs: &Path, figures: &[plots::Figure]) -> Result<(), String> {
    let folder = docs.join("plots");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    figures.iter().try_for_each(|figure| put(&folder.join(format!("{}.svg", figure.name)), &figure.svg))
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.file_name().unwrap_or_default().display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read() {
        assert_eq!(
            parsed(""),
            Ok(Options { quick: false, write: false, plots: false, seed: SEED, help: false })
        );
        assert_eq!(
            parsed("--quick --seed 7"),
            Ok(Options { quick: true, write: false, plots: false, seed: 7, help: false })
        );
        assert!(parsed("--seed").is_err());
        assert!(parsed("--seed x").is_err());
        assert!(parsed("--fast").is_err());
        assert!(parsed("--quick --write").is_err());
    }

    #[test]
    fn the_quick_run_is_the_same_twice_and_every_claim_holds() {
        let once = || {
            let study = study::Study::run(SEED, true).unwrap();
            let claims = claims::claims(&study);
            for claim in &claims {
                assert!(claim.holds, "{} — {}", claim.text, claim.worst);
            }
            report::markdown(&study, &claims, &claims::goals(&study), &plots::figures().unwrap())
        };
        assert_eq!(once(), once());
    }
}
