//! Fuzzes NAT on N6: packets of users and of the data network in any order, compared with a
//! reference that remembers all mappings.
#![no_main]

use std::cell::RefCell;

#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/frames.rs"]
mod frames;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/nat44/mapping_model.rs"]
mod mapping_model;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/nat44/nat_events.rs"]
mod nat_events;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/nat44/nat_headers.rs"]
mod nat_headers;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/nat44/nat_input.rs"]
mod nat_input;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/nat44/nat_lane.rs"]
mod nat_lane;
#[allow(dead_code)]
#[path = "../../apps/upf/tests/packets/test_lane.rs"]
mod test_lane;

/// Maximum number of sessions.
const SESSIONS: usize = 1024;

thread_local! {
    /// Lane of all inputs: a process can create 65,534 shared memories at most.
    static LANE: RefCell<nat_lane::NatLane> = RefCell::new(nat_lane::NatLane::new());
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    LANE.with(|lane| nat_input::play_input(&mut lane.borrow_mut(), data));
});
