//! Forwards between the ports `a` and `b`: the application of the story `between`.

use fastlane::{Error, Packet, Verdict};

fn main() -> std::process::ExitCode {
    fastlane::main(|lane| {
        let (Some(a), Some(b)) = (lane.port("a"), lane.port("b")) else {
            return Err(Error::application("the ports must be called `a` and `b`"));
        };
        Ok(move |packet: &mut Packet| Verdict::Forward(if packet.port() == a { b } else { a }))
    })
}
