//! Reflects packets, but one of its lanes does not return from a turn before a file exists: the
//! application of the story `threading`.

use std::path::PathBuf;
use std::time::Duration;

use fastlane::wire::Ethernet;
use fastlane::{Packet, Verdict};

fn main() -> std::process::ExitCode {
    fastlane::main(|lane| {
        let (stuck, until): (usize, PathBuf) = lane.settings()?;
        let mut waits = lane.index() == stuck;
        Ok(move |packet: &mut Packet| {
            while waits && !until.exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            waits = false;
            let Some(ethernet) = packet.header::<Ethernet>() else { return Verdict::Drop };
            std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
            Verdict::Reflect
        })
    })
}
