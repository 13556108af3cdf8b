//! Where pages and raw numbers are published: `bench/results/`.

use crate::published as folder;

/// Prints a page, and writes it and its raw numbers where they are published, as `NAME.md` and `NAME.json`, if it is to.
pub(crate) fn publish(
    write_it: bool,
    name: &str,
    json: serde_json::Result<String>,
    markdown: String,
) -> Result<(), String> {
    println!("{markdown}");
    if !write_it {
        return Ok(());
    }
    let json = json.map_err(|error| format!("the numbers are no JSON: {error}"))?;
    write(&[(&format!("{name}.json"), json), (&format!("{name}.md"), markdown)])
}

/// Writes files, by their names.
pub(crate) fn write(files: &[(&str, String)]) -> Result<(), String> {
    std::fs::create_dir_all(folder()).map_err(|error| format!("no bench/results: {error}"))?;
    for (name, text) in files {
        let path = folder().join(name);
        std::fs::write(&path, text)
            .map_err(|error| format!("bench/results/{name} cannot be written: {error}"))?;
        eprintln!("written: bench/results/{name}");
    }
    Ok(())
}

/// What was published under these names.
#[cfg(test)]
pub(crate) fn read<const COUNT: usize>(names: [&str; COUNT]) -> [String; COUNT] {
    let read = |name| std::fs::read_to_string(folder().join(name));
    names.map(|name| read(name).unwrap_or_else(|error| panic!("bench/results/{name}: {error}")))
}
