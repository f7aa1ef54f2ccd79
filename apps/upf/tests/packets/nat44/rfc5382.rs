//! TCP (RFC 5382): the two timers, connections one after another from one port, and resets.

use super::*;

const SYN: u8 = 2;
const ACK: u8 = 0x10;
const FIN: u8 = 0x11;
const RST: u8 = 4;

/// Sends a segment of the user; returns the external port.
fn up(world: &mut NatLane, control: u8, data: &[u8]) -> u16 {
    let packet = transport(Flow::of_user(TCP, 4000, SERVER), control, data);
    flow_of(&world.up(&packet).expect("a packet")).from.1
}

/// Passes a segment of the server; returns true if it reaches the user.
fn down(world: &mut NatLane, control: u8, data: &[u8], port: u16) -> bool {
    let flow = Flow { protocol: TCP, from: (SERVER, 53), to: (EXTERNAL, port) };
    world.down(&transport(flow, control, data)).is_some()
}

/// Establishes a connection; returns the external port.
fn connect(world: &mut NatLane) -> u16 {
    let port = up(world, SYN, b"");
    assert!(down(world, SYN | ACK, b"", port));
    assert_eq!(up(world, ACK, b""), port);
    port
}

/// Returns true if the mapping still exists some seconds after the last packet of the user.
fn lives(world: &mut NatLane, seconds: u32, port: u16) -> bool {
    world.age(seconds);
    down(world, ACK, b"", port)
}

#[test]
fn req_5_an_established_connection_may_be_idle_for_two_hours() {
    let mut world = NatLane::new();
    let port = connect(&mut world);
    assert!(lives(&mut world, 7438, port));
    assert!(!lives(&mut world, 6, port));
    world.lane.check();
}

#[test]
fn req_5_others_end_after_four_minutes() {
    type Step = fn(&mut NatLane, u16);
    let steps: [(&str, Step); 4] = [
        ("no answer", |_, _| {}),
        ("not confirmed", |world, port| assert!(down(world, SYN | ACK, b"", port))),
        ("closed by both", |world, port| {
            assert!(down(world, SYN | ACK, b"", port));
            up(world, ACK, b"");
            up(world, FIN, b"");
            assert!(down(world, FIN, b"", port));
            up(world, ACK, b"");
        }),
        ("reset", |world, port| {
            assert!(down(world, SYN | ACK, b"", port));
            up(world, ACK, b"");
            assert!(down(world, RST, b"", port));
        }),
    ];
    for (name, step) in steps {
        let mut world = NatLane::new();
        let port = up(&mut world, SYN, b"");
        step(&mut world, port);
        assert!(lives(&mut world, 238, port), "{name}");
        assert!(!lives(&mut world, 6, port), "{name}");
        world.lane.check();
    }
}

#[test]
fn a_connection_closed_by_one_side_lives_on() {
    let mut world = NatLane::new();
    let port = connect(&mut world);
    up(&mut world, FIN, b"");
    assert!(lives(&mut world, 7000, port));
    world.lane.check();
}

/// A reset may be forged (RFC 7857 clause 2.2): data afterwards show that the connection exists.
#[test]
fn a_connection_whose_data_go_on_after_a_reset_lives_on() {
    let mut world = NatLane::new();
    let port = connect(&mut world);
    assert!(down(&mut world, RST, b"", port));
    up(&mut world, ACK, b"data");
    assert!(lives(&mut world, 7000, port));
    world.lane.check();
}

#[test]
fn the_next_connection_of_a_port_begins_anew() {
    let mut world = NatLane::new();
    let port = connect(&mut world);
    up(&mut world, FIN, b"");
    assert!(down(&mut world, FIN, b"", port));
    assert_eq!(up(&mut world, SYN, b""), port);
    assert!(!lives(&mut world, 246, port), "it is not established");
    world.lane.check();
}
