//! Shows any frames to the UPF's lanes: GTP-U from base stations, IP from the data network.
#![no_main]

use std::cell::RefCell;

#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/frames.rs"]
mod frames;
#[path = "../../apps/upf/tests/packets/fuzz_input.rs"]
mod fuzz_input;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/test_lane.rs"]
mod test_lane;

/// The most sessions.
const SESSIONS: usize = 1024;

thread_local! {
    /// One for all inputs: a process can make 65,534 shared memories.
    static WORLD: RefCell<test_lane::TestLane> = RefCell::new(test_lane::TestLane::with_user());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    WORLD.with(|world| fuzz_input::show(&mut world.borrow_mut(), data));
});
