//! The loops that are compared with rivals and whose instructions are counted: table lookups, flows
//! with NAT and the user plane.

pub mod flow_lane;
pub mod flow_memif;
pub mod lookup;
pub mod user_plane;
