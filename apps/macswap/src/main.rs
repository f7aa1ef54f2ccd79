//! Swaps the Ethernet addresses and sends every packet back.
use fastlane::{Packet, Verdict, wire::Ethernet};

fn macswap(packet: &mut Packet) -> Verdict {
    let Some(ethernet) = packet.header::<Ethernet>() else {
        return Verdict::Drop; // a runt
    };
    std::mem::swap(&mut ethernet.source, &mut ethernet.destination);
    Verdict::Reflect
}

fn main() -> std::process::ExitCode {
    fastlane::main(|_lane| Ok(macswap))
}
