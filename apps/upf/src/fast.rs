//! The application on the lanes.

pub mod decide;
