//! Settings of a card that change under traffic: queues, rings, the spreading of flows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastlane_tests::{Application, DropFlag, Echo, Guest, Kernel, Lab, eventually, load_modules};
use serde_json::json;

use crate::support::{exchange, wired_lab};

/// Changes a setting of the left `wire0` while frames arrive. Returns the kernel's refusal, if it
/// has one. Traffic passes afterwards in both cases.
#[track_caller]
fn change(lab: &Lab, words: &[&str]) -> Option<String> {
    let over = AtomicBool::new(false);
    let refusal = std::thread::scope(|scope| {
        let _end = DropFlag(&over);
        scope.spawn(|| {
            let mut echo = Echo::new(&lab.right, "wire0");
            while !over.load(Ordering::Relaxed) {
                // Some are lost while the driver starts again.
                echo.try_once(Duration::from_millis(20));
            }
        });
        let done = lab.left.attempt(&[&["ethtool"], words].concat());
        std::thread::sleep(Duration::from_millis(200));
        (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
    });
    let mut echo = Echo::new(&lab.right, "wire0");
    eventually(&format!("{words:?}: frames return"), || echo.try_once(Duration::from_millis(200)));
    (0..50).for_each(|_| echo.once());
    refusal
}

fn survives_changes(module: &str, mode: &str) {
    load_modules(&[module]);
    let (lab, _) = wired_lab();
    let driver = json!({"af-xdp": {"interface": "wire0", "mode": mode}});
    let macswap = Application::macswap(&lab, Application::steered(&driver));
    exchange(&lab, 500);
    let mode = macswap.totals().mode("wire");
    for words in [
        &["-G", "wire0", "rx", "512", "tx", "512"][..],
        &["-L", "wire0", "combined", "1"],
        &["-L", "wire0", "combined", "2"],
        &["-X", "wire0", "weight", "0", "1"],
        &["-X", "wire0", "default"],
        &["-G", "wire0", "rx", "256", "tx", "256"],
    ] {
        let refusal = change(&lab, words);
        eprintln!("{mode}: ethtool {}: {refusal:?}", words.join(" "));
    }
    exchange(&lab, 500);
    // Exit status 0 says that all frames are back in their pools.
    macswap.stop();
}

#[test]
fn queues_and_rings_of_igb_change_under_traffic_with_zero_copy() {
    Guest::new(Kernel::Newest).nics("igb").run(|| survives_changes("igb", "zero-copy"));
}

#[test]
fn queues_and_rings_of_igb_change_under_traffic_with_native_copy() {
    Guest::new(Kernel::V6_12).nics("igb").run(|| survives_changes("igb", "native-copy"));
}
