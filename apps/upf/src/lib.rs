//! A 5G User Plane Function whose fast path runs on any mechanism and whose slow path stays on
//! Linux.
//!
//! [`model`] is a PFCP session as the control plane means it; [`shared`] is what both halves share:
//! the tables, their keys and values; [`compile`] makes the latter of the former. [`fast`] is the
//! application on the lanes, [`slow`] the PFCP server beside it. [`settings`] is the configuration,
//! [`api`] what operators see, [`program`] who starts what.

#![forbid(unsafe_code)]

pub mod api;
pub mod compile;
pub mod fast;
pub mod model;
pub mod program;
pub mod settings;
pub mod shared;
pub mod slow;
