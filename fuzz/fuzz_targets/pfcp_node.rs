//! Gives a PFCP node with real tables any datagrams from some peers, any messages of lanes, and
//! time; now and then its process is followed by another one.
#![no_main]

use std::cell::RefCell;

#[path = "../../apps/upf/tests/node/node_fuzzer.rs"]
mod node_fuzzer;

thread_local! {
    /// One for all inputs: a process can make 65,534 shared memories.
    static WORLD: RefCell<node_fuzzer::NodeFuzzer> = RefCell::new(node_fuzzer::NodeFuzzer::new());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    WORLD.with_borrow_mut(|world| world.show(data));
});
