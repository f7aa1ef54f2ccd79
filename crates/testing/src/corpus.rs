//! The corpora of the fuzz targets, as they are committed: `fuzz/corpus/TARGET/NAME`.

use std::fs;
use std::path::{Path, PathBuf};

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// The inputs of a target, by name.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory(target);
    let entries = fs::read_dir(&directory);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let read = |entry: Result<fs::DirEntry, _>| {
        let entry = entry.expect("an entry");
        let bytes = fs::read(entry.path()).expect("it can be read");
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    };
    let mut inputs: Vec<_> = entries.map(read).collect();
    inputs.sort();
    inputs
}

/// Shows a target's inputs to its body, one after the other. One that fails is the one that was
/// named last.
///
/// # Panics
/// When there are fewer than `least`.
pub fn replay(target: &str, least: usize, mut body: impl FnMut(&[u8])) {
    let inputs = inputs(target);
    assert!(inputs.len() >= least, "{target} has {} inputs only", inputs.len());
    for (name, bytes) in inputs {
        println!("{target}/{name}");
        body(&bytes);
    }
}

/// Holds the inputs that a test makes against those that are committed. With `WRITE_SEEDS=1` in the
/// environment it writes them instead.
///
/// # Panics
/// When one of them is another or missing.
pub fn seeds<N: AsRef<Path>>(target: &str, seeds: impl IntoIterator<Item = (N, Vec<u8>)>) {
    let directory = directory(target);
    let write = std::env::var_os("WRITE_SEEDS").is_some();
    for (name, bytes) in seeds {
        let path = directory.join(name);
        if write {
            fs::create_dir_all(&directory).expect("the directory is made");
            fs::write(&path, &bytes).expect("it is written");
        }
        let is_same = fs::read(&path).is_ok_and(|committed| committed == bytes);
        assert!(is_same, "{} is not what is made: use WRITE_SEEDS=1", path.display());
    }
}
