//! Tests of interface properties against a known setup.

mod support;

use fastlane_kernel::Interface;
use support::{DEVICE_MAC, Hosts, interface, run};

#[test]
fn a_veth_is_as_it_was_made() {
    let Some(_hosts) = Hosts::new("mtu 3000 numrxqueues 4 numtxqueues 4") else { return };
    run("ethtool -L d0 rx 3 tx 2");
    run("ethtool -K d0 gro on tso off");
    let found = interface("d0");
    assert_eq!((found.name.as_str(), found.mac, found.mtu), ("d0", DEVICE_MAC, 3000));
    assert_eq!((found.receive_queues, found.transmit_queues), (3, 2));
    assert!(found.up && found.ethernet && found.is_virtual);
    assert_eq!(found.driver, "veth");
    assert!(found.has_offload("tx-checksumming") && found.has_offload("generic-receive-offload"));
    assert!(!found.has_offload("tcp-segmentation-offload") && !found.has_offload("no-such-thing"));

    run("ip link set d0 down");
    run("ethtool -K d0 gro off tso on tx off");
    let changed = interface("d0");
    assert!(!changed.up);
    assert!(!changed.has_offload("tx-checksumming"));
    assert!(!changed.has_offload("generic-receive-offload"));
}

#[test]
fn all_interfaces_are_found_and_others_refused() {
    let Some(_hosts) = Hosts::new("") else { return };
    let all = Interface::all().unwrap();
    let names: Vec<_> = all.iter().map(|interface| interface.name.as_str()).collect();
    assert!(names[0] == "lo" && names.contains(&"d0"), "{names:?}");
    assert!(all.iter().all(|one| *one == interface(&one.name)));
    let listed = names.join(", ");
    let message = Interface::query("eth9").unwrap_err().to_string();
    let expected = "no interface eth9 in this network namespace; there are ".to_owned();
    assert!(message.starts_with(&expected), "{message}");
    assert!(names.len() > 12 || message.ends_with(&listed), "{message}");
}

#[test]
fn many_interfaces_are_read_in_several_answers() {
    let Some(_hosts) = Hosts::new("") else { return };
    for number in 0..40 {
        run(&format!("ip link add a{number} type veth peer name b{number}"));
    }
    assert!(Interface::all().unwrap().len() > 80);
    assert!(interface("b39").is_virtual);
    assert!(Interface::query("b40").unwrap_err().to_string().ends_with(" more"));
}
