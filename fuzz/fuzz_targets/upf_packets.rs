//! Fuzzes the UPF's lanes with arbitrary frames: GTP-U from base stations, IP from the data
//! network.
#![no_main]

use std::cell::RefCell;

#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/fuzz_input.rs"]
mod fuzz_input;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/test_lane.rs"]
mod test_lane;

/// Maximum number of sessions.
const SESSIONS: usize = 1024;

thread_local! {
    /// Environment shared by all inputs: a process can create 65,534 shared memories at most.
    static WORLD: RefCell<test_lane::TestLane> = RefCell::new(test_lane::TestLane::with_user());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    WORLD.with(|world| fuzz_input::show(&mut world.borrow_mut(), data));
});
