//! A link of the router that is removed and created again has another index: the fast path follows.

use fastlane_tests::Host;
use fastlane_tests::routed::{FAR, Routed};

use super::{MECHANISMS, wait_until_fast};

/// Returns the index of an interface.
fn index_of(host: &Host, interface: &str) -> u64 {
    let text = host.run(&["ip", "-j", "link", "show", "dev", interface]);
    let links: serde_json::Value = serde_json::from_str(&text).expect("JSON from ip");
    links[0]["ifindex"].as_u64().expect("an index")
}

#[test]
fn a_link_that_is_created_again_is_routed_by_the_fast_path_again() {
    for mechanism in MECHANISMS {
        let Some(routed) = Routed::new("router-removal") else { return };
        let router = routed.start(mechanism, &[]);
        let near = &routed.lab.right;
        wait_until_fast(&router, near, FAR);
        let before = index_of(routed.router(), "wire1");
        routed.ip("link delete wire1");
        router.process.wait_for("port `wire1`: the interface wire1 was removed");
        routed.join("wire1", 1);
        assert_ne!(index_of(routed.router(), "wire1"), before);
        router.process.wait_for("port `wire1`: reopened on wire1");
        wait_until_fast(&router, near, FAR);
        wait_until_fast(&router, near, "fd78::2");
        // The other end too: packets from the new link leave by an old one.
        wait_until_fast(&router, &routed.far, "10.77.0.2");
        router.stop();
    }
}
