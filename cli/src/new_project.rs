//! `fastlane new`: writes a Cargo project for an application.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::Error;

/// Source tree from which this command was built.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Files of a project with their templates. `{{name}}` and the like are replaced.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("new_project/Cargo.toml.in")),
    ("src/main.rs", include_str!("new_project/main.rs.in")),
    ("config.json", include_str!("new_project/config.json.in")),
    ("README.md", include_str!("new_project/README.md.in")),
    (".gitignore", "/target\n"),
];
/// Crates that a project depends on, with their folders in the source tree.
const CRATES: [(&str, &str); 3] =
    [("fastlane", "fastlane"), ("fastlane-core", "core"), ("fastlane-testing", "testing")];
/// Names that Cargo or Rust refuses, or that would hide a dependency.
const RESERVED: [&str; 12] = [
    "build",
    "core",
    "crate",
    "deps",
    "examples",
    "fastlane",
    "incremental",
    "proc-macro",
    "self",
    "std",
    "super",
    "test",
];

/// Writes a project: an application, its configuration, a test on lists of frames, and a README.
///
/// The project lies outside of the source tree of Fastlane and depends on it by path or by Git.
/// `cargo test` in it needs no privilege.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Name of the package: letters, digits, `-` and `_`, beginning with a letter
    name: String,
    /// Folder of the project, which must not exist [default: ./NAME]
    #[arg(long, value_name = "FOLDER")]
    into: Option<PathBuf>,
    /// Source tree of Fastlane to depend on [default: the one that this command was built from]
    #[arg(long, value_name = "FOLDER", conflicts_with = "git")]
    path: Option<PathBuf>,
    /// Git repository of Fastlane to depend on
    #[arg(long, value_name = "URL")]
    git: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// Returns the reason if the name is not valid, the folder exists, there is no source tree, or a
/// file cannot be written. Nothing is written before the first three are checked.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    let name = &arguments.name;
    check_name(name).map_err(Error::Failed)?;
    let folder = arguments.into.clone().unwrap_or_else(|| PathBuf::from(name));
    if folder.exists() {
        let folder = folder.display();
        return Err(Error::Failed(format!("{folder} exists; choose another name or --into")));
    }
    let [fastlane, core, testing] = dependencies(arguments)?;
    let values = [
        ("{{name}}", name.as_str()),
        ("{{fastlane}}", &fastlane),
        ("{{core}}", &core),
        ("{{testing}}", &testing),
    ];
    for (path, template) in FILES {
        let text =
            values.iter().fold(template.to_owned(), |text, (key, value)| text.replace(key, value));
        write(&folder.join(path), &text)
            .map_err(|error| Error::Failed(format!("{}: {error}", folder.join(path).display())))?;
    }
    let folder = folder.display();
    writeln!(io::stdout(), "wrote {folder}; next: cd {folder} && cargo test")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the reason if Cargo would refuse a package of this name.
fn check_name(name: &str) -> Result<(), String> {
    let is_valid = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
    if !is_valid {
        let rule = "use lower-case letters, digits, `-` and `_`, with a letter first";
        return Err(format!("`{name}` is not a name of a package: {rule}"));
    }
    match RESERVED.contains(&name) {
        true => Err(format!("`{name}` is reserved; choose another name")),
        false => Ok(()),
    }
}

/// Returns the specifications of the crates for `Cargo.toml`.
fn dependencies(arguments: &Arguments) -> Result<[String; 3], Error> {
    if let Some(url) = &arguments.git {
        return Ok(CRATES.map(|_| format!("{{ git = {url:?} }}")));
    }
    let sources = arguments.path.as_deref().unwrap_or(Path::new(SOURCES));
    let Ok(sources) = sources
        .canonicalize()
        .and_then(|root| root.join("crates/fastlane/Cargo.toml").metadata().map(|_| root))
    else {
        let reason = format!("{}: no source tree of Fastlane", sources.display());
        return Err(Error::Failed(format!("{reason}; give --path FOLDER or --git URL")));
    };
    Ok(CRATES.map(|(_, folder)| {
        let path = sources.join("crates").join(folder);
        format!("{{ path = {:?} }}", path.display().to_string())
    }))
}

/// Writes a new file and the folders above it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::File::create_new(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cargo_refuses_are_refused_with_the_reason() {
        for name in ["edge", "edge-2", "my_app"] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", "2edge", "-edge", "Edge", "edge/..", "a b"] {
            assert!(check_name(name).unwrap_err().contains("letter first"), "{name}");
        }
        assert!(check_name("test").unwrap_err().contains("reserved"));
    }
}
