//! Fuzz target, here so that the tests replay the corpus the same way.

use crate::test_lane::TestLane;

/// Maximum length of a frame.
const LONGEST: usize = 2000;

/// Builds an input of one frame: port, length, content.
pub(crate) fn input(port: u16, frame: &[u8]) -> Vec<u8> {
    let length = (frame.len() as u16).to_be_bytes();
    [&[port as u8], &length[..], frame].concat()
}

/// Passes frames to a user plane one by one. Each must have one outcome.
pub(crate) fn show(world: &mut TestLane, mut input: &[u8]) {
    while let [port, high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()).min(LONGEST);
        let (frame, behind) = rest.split_at(length);
        if !frame.is_empty() {
            world.show(u16::from(port & 1), &[frame.to_vec()]);
        }
        input = behind;
    }
    // Between UEs, and no further.
    assert!(
        world.pass() == 0 || world.pass() == 0,
        "a packet goes round: {:?}",
        world.drop_reasons()
    );
    for port in [0, 1] {
        let left = world.left(port);
        for frame in left {
            assert!(is_whole(port, &frame), "by port {port}: {frame:x?}");
        }
    }
    world.linux();
    world.check_causes();
}

/// Passes frames to a user plane one by one, those to its GTP-U address as UDP with a correct IPv4
/// header checksum: so mutated fragments reach the reassembly.
pub(crate) fn show_fragments(world: &mut TestLane, mut input: &[u8]) {
    let mut repaired = Vec::new();
    while let [port, high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()).min(LONGEST);
        let (frame, behind) = rest.split_at(length);
        let mut frame = frame.to_vec();
        let header = frame.get(14).map_or(0, |first| usize::from(first & 15) * 4);
        if frame.get(12) == Some(&8) && header >= 20 && frame.len() >= 14 + header {
            frame[23] = 17;
            crate::frames::fill(&mut frame[14..14 + header]);
        }
        repaired.extend(self::input(u16::from(*port), &frame));
        input = behind;
    }
    show(world, &repaired);
}

/// Checks frames that leave: by the tunnel port the whole frame, to the data network the IP packet.
/// A UE's payload is arbitrary.
fn is_whole(port: u16, frame: &[u8]) -> bool {
    if port == 0 {
        return fastlane_wire::Layers::parse(frame).is_ok_and(|layers| !layers.truncated);
    }
    let packet = frame.get(14..).unwrap_or_default();
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let length = match packet.first().map(|octet| octet >> 4) {
        Some(4) => word(2),
        Some(6) => word(4).map(|payload| payload + 40),
        _ => None,
    };
    length == Some(packet.len())
}
