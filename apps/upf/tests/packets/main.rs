//! Packet tests of the lanes, without Linux. Numbers in names are those of the test cases in the
//! README.

mod frames;
mod fuzz_input;
mod test_lane;

mod buffering;
mod charging;
mod compiled_rules;
mod counted_slices;
mod downlink;
mod fixed_next_hop;
mod golden;
mod gtpu_messages;
mod lane_messages;
mod mtu_page;
mod nat44;
mod outer_fragments;
mod packet_properties;
mod packets_of_smf;
mod ue_to_ue;
mod uplink;

/// Maximum number of sessions of a test.
const SESSIONS: usize = 1024;
