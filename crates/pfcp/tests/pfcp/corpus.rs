//! Replays the committed corpus of the fuzz target, and keeps the seeds in it up to date.

use std::fs;
use std::path::{Path, PathBuf};

use fastlane_pfcp::fuzz;

use crate::samples;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pfcp")
}

#[test]
fn the_corpus_holds() {
    let mut inputs = 0;
    for entry in fs::read_dir(directory()).expect("there is a corpus") {
        let path = entry.unwrap().path();
        // A failing input is named by being the one that was read last.
        println!("{}", path.display());
        fuzz::datagram(&fs::read(&path).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 25, "there are {inputs} inputs only");
}

/// With `WRITE_SEEDS=1` in the environment it writes the seeds instead of comparing them.
#[test]
fn the_seeds_are_committed() {
    let write = std::env::var_os("WRITE_SEEDS").is_some();
    for (name, bytes) in samples::all().into_iter().chain(samples::broken()) {
        let path = directory().join(name);
        if write {
            fs::create_dir_all(directory()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert!(
            fs::read(&path).ok().as_ref() == Some(&bytes),
            "{} is not what samples.rs makes: run the tests with WRITE_SEEDS=1",
            path.display()
        );
    }
}
