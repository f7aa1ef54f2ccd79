//! An interface that carries VLANs and is removed: the VLANs are down with it, and carry traffic
//! again when it is back.

use fastlane_tests::eventually;

use crate::trunk::{FAR, Mechanism, Trunk, try_ping};

fn story(mechanism: Mechanism) {
    let Some(mut trunk) = Trunk::new("removal", mechanism) else { return };
    let cross = trunk.start("cross", &trunk.ports());
    trunk.ping(FAR);
    trunk.lab.left.run(&["ip", "link", "delete", "trunk"]);
    cross.process.wait_for("port `wire`: the interface trunk was removed");
    let reasons = || ["wire", "a", "b"].map(|port| cross.totals().port(port, "down_reason"));
    eventually("the VLANs are down too", || reasons() == [1, 1, 1]);

    trunk.lab.wire("trunk");
    trunk.join();
    cross.process.wait_for("port `wire`: reopened on trunk after");
    eventually("the VLANs are joined again", || try_ping(&trunk.lab.right, FAR).status.success());
    trunk.ping(FAR);
    eventually("the VLANs are up too", || reasons() == [0, 0, 0]);
    trunk.stop(cross);
}

#[test]
fn vlans_return_with_their_interface() {
    Mechanism::SHARED.into_iter().for_each(story);
}
