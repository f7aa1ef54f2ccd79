//! The loops that are compared with rivals and whose instructions are counted: table lookups and
//! the user plane.

pub mod lookup;
pub mod user_plane;
