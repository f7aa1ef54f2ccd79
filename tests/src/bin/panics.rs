//! Reflects packets, and panics in one of its lanes once a file exists: the application of the
//! story `lifecycle`.

use std::path::PathBuf;

use fastlane::wire::Ethernet;
use fastlane::{App, Packet, Turn, Verdict};

struct Panics {
    once: Option<PathBuf>,
}

impl App for Panics {
    fn process(&mut self, packets: &mut [Packet], _: &mut Turn) {
        for packet in packets {
            let Some(ethernet) = packet.header::<Ethernet>() else { continue };
            std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
            packet.set_verdict(Verdict::Reflect);
        }
    }

    fn turn(&mut self, _: &mut Turn) {
        let exists = self.once.as_ref().is_some_and(|file| file.exists());
        assert!(!exists, "on purpose");
    }
}

fn main() -> std::process::ExitCode {
    fastlane::main(|lane| {
        let (index, once): (usize, PathBuf) = lane.settings()?;
        Ok(Panics { once: (lane.index() == index).then_some(once) })
    })
}
