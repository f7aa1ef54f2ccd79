//! Labs whose wire is made of the two devices of the guest, and traffic on it.

use fastlane_tests::{Application, Lab, Nic, Report, Side, measure};
use serde_json::{Value, json};

/// Returns a lab whose right `wire0` is the second device, and the first device.
pub(crate) fn lab() -> (Lab, Nic) {
    let lab = Lab::new("lab", 1).expect("the guest allows everything");
    Nic::at(Nic::SECOND).replace_wire(&lab, Side::Right);
    (lab, Nic::at(Nic::FIRST))
}

/// Returns a lab whose `wire0` are the two devices, left and right.
pub(crate) fn wired_lab() -> (Lab, Nic) {
    let (lab, first) = lab();
    first.replace_wire(&lab, Side::Left);
    (lab, first)
}

/// Exchanges packets of 16 flows with the application on the left. All must return.
#[track_caller]
pub(crate) fn exchange(lab: &Lab, packets: u32) -> Report {
    let driver = json!({"af-packet": {"interface": "wire0", "ring": 16_384}});
    let app = json!({
        "outstanding-packets": 64,
        "count-packets": packets,
        "answer-timeout-ms": 20_000,
        "linger-ms": 5000,
        "flows": {"count": 16},
    });
    let (report, _) = measure(lab, &lab.right, &driver, app);
    report.assert_intact();
    report
}

/// Runs macswap with a driver on the left, exchanges packets, and stops it: none is lost. Returns
/// the mode of the mechanism.
#[track_caller]
pub(crate) fn carries(lab: &Lab, driver: &Value, packets: u32) -> String {
    runs(lab, Application::steered(driver), packets)
}

/// Does the same with a configuration.
#[track_caller]
pub(crate) fn runs(lab: &Lab, configuration: Value, packets: u32) -> String {
    let macswap = Application::macswap(lab, configuration);
    exchange(lab, packets);
    let mode = macswap.totals().mode("wire");
    let ended = macswap.stop();
    // Linux on the other side looks for neighbours. Without a kernel peer these packets end here.
    let drops = ended.drops() - ended.counter("drop_no_kernel_peer");
    assert_eq!(drops, 0, "{}", ended.stderr);
    mode
}
