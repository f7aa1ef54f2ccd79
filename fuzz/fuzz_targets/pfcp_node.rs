//! Fuzzes a PFCP node with real tables: arbitrary datagrams from some peers, arbitrary messages
//! from lanes, and time steps. At times a new process takes over.
#![no_main]

use std::cell::RefCell;

#[path = "../../apps/upf/tests/node/node_fuzzer.rs"]
mod node_fuzzer;

thread_local! {
    /// Environment shared by all inputs: a process can create 65,534 shared memories at most.
    static WORLD: RefCell<node_fuzzer::NodeFuzzer> = RefCell::new(node_fuzzer::NodeFuzzer::new());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    WORLD.with_borrow_mut(|world| world.show(data));
});
