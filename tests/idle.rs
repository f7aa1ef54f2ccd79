//! Idle policies, judged by turns and sleeps: CPU time is no measure on a shared machine.

use std::time::{Duration, Instant};

use fastlane_tests::{Application, Echo, Lab, Mechanism};
use serde_json::json;

/// Returns turns per second, sleeps per second and the share of time slept of a lane without
/// traffic.
fn at_rest(macswap: &Application) -> (f64, f64, f64) {
    // The way down to the longest wait.
    std::thread::sleep(Duration::from_millis(200));
    // The question itself may take long, and is no part of the time that is looked at.
    let before = macswap.totals();
    let started = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let (after, seconds) = (macswap.totals(), started.elapsed().as_secs_f64());
    let grown = |counter| (after.lane(0, counter) - before.lane(0, counter)) as f64 / seconds;
    (grown("turn"), grown("sleeps"), grown("slept_nanoseconds") / 1e9)
}

fn start(lab: &Lab, mechanism: Mechanism, idle: &str) -> Application {
    let mut configuration = Application::steered(&mechanism.on("wire0"));
    configuration["lanes"] = json!({"idle": idle});
    Application::macswap(lab, configuration)
}

#[test]
fn adaptive_and_interrupt_sleep_and_busy_does_not() {
    for mechanism in Mechanism::ALL {
        for idle in ["adaptive", "interrupt", "busy"] {
            let Some(lab) = Lab::new("idle-policies", 1) else { return };
            // Nothing of Linux's own, which would wake the lane.
            lab.right.run(&["ip", "-6", "address", "flush", "dev", "wire0"]);
            let macswap = start(&lab, mechanism, idle);
            let mut echo = Echo::new(&lab.right, "wire0");
            echo.once();
            let (turns, sleeps, slept) = at_rest(&macswap);
            let message =
                format!("{mechanism:?} {idle}: {turns} turns/s, {sleeps} sleeps/s, {slept}");
            if idle == "busy" {
                assert!(sleeps == 0.0 && turns > 1000.0, "{message}");
            } else {
                // Ten waits of 100 ms, and what goes on besides.
                assert!(turns < 100.0 && sleeps > 1.0 && slept > 0.5, "{message}");
            }
            // Out of the deepest sleep, one frame alone.
            (0..5).for_each(|_| {
                std::thread::sleep(Duration::from_millis(150));
                echo.once();
            });
            macswap.stop();
        }
    }
}

#[test]
fn a_process_at_rest_uses_hardly_any_cpu_time() {
    let Some(lab) = Lab::new("idle-process", 1) else { return };
    lab.right.run(&["ip", "-6", "address", "flush", "dev", "wire0"]);
    let macswap = start(&lab, Mechanism::Packet, "interrupt");
    Echo::new(&lab.right, "wire0").once();
    std::thread::sleep(Duration::from_millis(500));
    let before = macswap.process.cpu_ticks();
    std::thread::sleep(Duration::from_secs(2));
    // 5 %. A thread that polls without waiting takes more even beside other load.
    let used = macswap.process.cpu_ticks() - before;
    assert!(used <= 10, "{used} ticks of 10 ms in 2 s");
    macswap.stop();
}

#[test]
fn an_adaptive_lane_does_not_poll_between_frames_that_are_far_apart() {
    const FRAMES: u64 = 640;
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("idle-far-apart", 1) else { return };
        lab.right.run(&["ip", "-6", "address", "flush", "dev", "wire0"]);
        let macswap = start(&lab, mechanism, "adaptive");
        let mut echo = Echo::new(&lab.right, "wire0");
        // The lane has learned by then what the start brought.
        for _ in 0..64 {
            echo.once();
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = macswap.totals();
        for _ in 0..FRAMES {
            echo.once();
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = macswap.totals();
        let turns = (after.lane(0, "turn") - before.lane(0, "turn")) / FRAMES;
        // With work, without, and a poll in one idle period of 32. Other load makes them fewer:
        // a lane that is not running does not poll.
        assert!(turns < 8, "{mechanism:?}: {turns} turns for each frame");
        macswap.stop();
    }
}

#[test]
fn no_frame_waits_for_the_next_one() {
    for mechanism in Mechanism::ALL {
        let Some(lab) = Lab::new("idle-one-by-one", 1) else { return };
        let macswap = start(&lab, mechanism, "adaptive");
        let mut echo = Echo::new(&lab.right, "wire0");
        // About 1,000 a second; the next one is not sent before the last one is back, so that a
        // frame which waits for its successor never comes.
        for _ in 0..1000 {
            echo.once();
            std::thread::sleep(Duration::from_micros(900));
        }
        let ended = macswap.stop();
        assert_eq!(ended.counter("received_packets"), 1000);
    }
}
