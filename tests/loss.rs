#[test] fn later() {}
