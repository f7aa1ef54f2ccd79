use super::*;
use crate::Tag;

const SOON: Duration = Duration::from_secs(2);
const NEVER: Duration = Duration::from_millis(50);

fn tag(sequence: u32) -> Tag {
    Tag { test: 1, sequence }
}

#[test]
fn frames_cross_a_veth_pair_once_and_nothing_else_does() {
    if !private("testing-namespace") {
        return;
    }
    let addresses = veth("wire0", "wire1", 1);
    let (mut here, mut there) = (Wire::open("wire0").unwrap(), Wire::open("wire1").unwrap());
    for (sequence, length) in [(0, 60), (1, 1514), (2, 100)] {
        let frame = tag(sequence).frame(addresses, length);
        assert!(there.send(&frame));
        assert_eq!(here.receive(SOON), Some(frame));
    }
    assert!(!there.send(&[0; 1600]), "longer than the MTU");
    assert_eq!(here.receive(NEVER), None, "Linux sent something on its own");
    assert_eq!(there.receive(NEVER), None, "a sent frame came back");
}

#[test]
fn vlan_tags_stay_in_the_frame() {
    if !private("testing-namespace") {
        return;
    }
    let addresses = veth("wire0", "wire1", 1);
    let (mut here, mut there) = (Wire::open("wire0").unwrap(), Wire::open("wire1").unwrap());
    for protocol in [[0x81, 0x00], [0x88, 0xa8]] {
        let mut frame = tag(3).frame(addresses, 200);
        frame.splice(12..12, [protocol, [0x20, 0x2a]].concat());
        assert!(there.send(&frame));
        assert_eq!(here.receive(SOON), Some(frame));
    }
}

#[test]
fn linux_receives_on_the_interface_and_a_socket_sends_to_it() {
    if !private("testing-namespace") {
        return;
    }
    let addresses = veth("wire0", "wire1", 1);
    let mut linux = linux("wire0");
    let mut there = Wire::open("wire1").unwrap();
    assert!(there.send(&tag(4).frame(addresses, 100)));
    let payload = linux.receive(SOON).unwrap();
    assert_eq!(Tag::find(&payload).unwrap().0, tag(4));
    assert_eq!(linux.receive(NEVER), None);
    ip("link delete wire0");

    veth("wire2", "wire3", 4);
    let mut here = Wire::open("wire2").unwrap();
    let socket = socket("wire3", addresses);
    socket.send(&tag(5).payload(50)).unwrap();
    let frame = here.receive(SOON).unwrap();
    assert_eq!(Tag::find(&frame).unwrap().0, tag(5));
    set_link("wire3", false);
    assert!(!Wire::open("wire3").unwrap().send(&frame), "the link is down");
}
