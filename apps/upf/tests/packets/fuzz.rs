//! What the fuzzer does with its input, here so that the tests replay the corpus the same way.

use crate::support::World;

/// The longest frame.
const LONGEST: usize = 2000;

/// An input of one frame: the port, its length, itself.
pub(crate) fn input(port: u16, frame: &[u8]) -> Vec<u8> {
    let length = (frame.len() as u16).to_be_bytes();
    [&[port as u8], &length[..], frame].concat()
}

/// Shows frames to a user plane, one after the other. Each must have one fate.
pub(crate) fn show(world: &mut World, mut input: &[u8]) {
    while let [port, high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()).min(LONGEST);
        let (frame, behind) = rest.split_at(length);
        if !frame.is_empty() {
            world.show(u16::from(port & 1), &[frame.to_vec()]);
        }
        input = behind;
    }
    for port in [0, 1] {
        let left = world.left(port);
        // What leaves by a tunnel port is a whole packet.
        for frame in left {
            assert!(fastlane_wire::Layers::parse(&frame).is_ok_and(|layers| !layers.truncated));
        }
    }
    world.linux();
    world.check_causes();
}
