//! Replays the committed corpus of every fuzz target, and keeps the seeds in it up to date.

use std::fs;
use std::path::{Path, PathBuf};

use fastlane_wire::fuzz;

use crate::seeds;

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn replay(target: &str, body: fn(&[u8])) {
    let directory = directory(target);
    let entries = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("no corpus {}: {error}", directory.display()));
    let mut inputs = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let data = fs::read(&path).unwrap();
        // A failing input is named by its path, or by being the one that was read last.
        println!("{}", path.display());
        body(&data);
        inputs += 1;
    }
    assert!(inputs >= 20, "{} holds {inputs} inputs only", directory.display());
}

#[test]
fn the_corpus_of_layers_holds() {
    replay("layers", fuzz::layers);
}

#[test]
fn the_corpus_of_checksum_holds() {
    replay("checksum", fuzz::checksum);
}

#[test]
fn the_corpus_of_gtpu_holds() {
    replay("gtpu", fuzz::gtpu);
}

/// With `WRITE_SEEDS=1` in the environment it writes the seeds instead of comparing them.
#[test]
fn the_seeds_are_committed() {
    let write = std::env::var_os("WRITE_SEEDS").is_some();
    for (target, seeds) in seeds::all() {
        let directory = directory(target);
        for (name, bytes) in seeds {
            let path = directory.join(&name);
            if write {
                fs::create_dir_all(&directory).unwrap();
                fs::write(&path, &bytes).unwrap();
            }
            let committed = fs::read(&path).ok();
            assert!(
                committed.as_ref() == Some(&bytes),
                "{} is not what seeds.rs makes: run the tests with WRITE_SEEDS=1",
                path.display()
            );
        }
    }
}
