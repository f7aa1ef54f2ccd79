//! Committed corpora of the fuzz targets: `fuzz/corpus/TARGET/NAME`.

use std::fs;
use std::path::{Path, PathBuf};

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Returns the inputs of a target, sorted by name.
///
/// # Panics
/// When there is no corpus of this target.
#[must_use]
pub fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory(target);
    let entries = fs::read_dir(&directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let read = |entry: Result<fs::DirEntry, _>| {
        let entry = entry.expect("an entry");
        let bytes = fs::read(entry.path()).expect("the input is readable");
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    };
    let mut inputs: Vec<_> = entries.map(read).collect();
    inputs.sort();
    inputs
}

/// Calls `body` with each input of a target. Prints the name before each call, so that the last one
/// names the input that failed.
///
/// # Panics
/// When there are fewer than `least`.
pub fn replay(target: &str, least: usize, mut body: impl FnMut(&[u8])) {
    let inputs = inputs(target);
    assert!(inputs.len() >= least, "{target} has only {} inputs", inputs.len());
    for (name, bytes) in inputs {
        println!("{target}/{name}");
        body(&bytes);
    }
}

/// Compares generated inputs with the committed ones. With `WRITE_SEEDS=1` in the environment it
/// writes them instead.
///
/// # Panics
/// When a committed input differs or is missing.
pub fn seeds<N: AsRef<Path>>(target: &str, seeds: impl IntoIterator<Item = (N, Vec<u8>)>) {
    let directory = directory(target);
    let write = std::env::var_os("WRITE_SEEDS").is_some();
    for (name, bytes) in seeds {
        let path = directory.join(name);
        if write {
            fs::create_dir_all(&directory).expect("the directory is created");
            fs::write(&path, &bytes).expect("the input is written");
        }
        let is_same = fs::read(&path).is_ok_and(|committed| committed == bytes);
        assert!(
            is_same,
            "{} differs from the generated input: run with WRITE_SEEDS=1",
            path.display()
        );
    }
}
