//! The committed corpus of the fuzzer of the PFCP node goes through as it goes there.

use std::fs;
use std::path::Path;

mod fuzz;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pfcp_node");
    let mut world = fuzz::World::new();
    let mut inputs = 0;
    for entry in fs::read_dir(folder).expect("there is a corpus") {
        let path = entry.expect("a file").path();
        // A failing input is named by being the one that was read last.
        println!("{}", path.display());
        world.show(&fs::read(&path).expect("it can be read"));
        inputs += 1;
    }
    assert!(inputs >= 15, "there are {inputs} inputs only");
}
