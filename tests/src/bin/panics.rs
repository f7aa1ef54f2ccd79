//! Reflects packets, and panics in one of its lanes once a file exists: the application of the
//! story `lifecycle`, and part of the program that counts instructions, which is built as a
//! release.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

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

/// Runs the application with the configuration named on the command line and returns the exit
/// status.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    fastlane::main_from(arguments, &Arc::default(), |lane| {
        let (index, once): (usize, PathBuf) = lane.settings()?;
        Ok(Panics { once: (lane.index() == index).then_some(once) })
    })
}

fn main() -> ExitCode {
    fastlane::abort_on_panic();
    run(std::env::args_os()).into()
}
