//! A 5G User Plane Function.

fn main() {}
