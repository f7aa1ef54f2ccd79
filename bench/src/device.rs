//! Devices under test, the clients that send to them, and the network interfaces that both need.

pub mod application;
pub mod connection_router;
pub mod cpu_time;
pub mod echo_lane;
pub mod frame_generator;
pub mod lane_thread;
pub mod load;
pub mod measured_program;
pub mod memif_server;
pub mod memory_lane;
pub mod napi_thread;
pub mod nat_router;
pub mod router_lane;
pub mod router_links;
pub mod running_lane;
pub mod translated_flows;
pub mod veth_pair;
