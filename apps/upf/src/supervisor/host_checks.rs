//! `upf check`: checks if this machine can do what the configuration requires.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::blackhole_routes;
use crate::config::Settings;

/// Returns warnings about what will probably fail, in addition to Fastlane's, one sentence each.
/// Changes nothing.
#[must_use]
pub fn warnings(settings: &Settings) -> Vec<String> {
    let n4 = settings.n4.addresses.iter().filter_map(|address| missing(*address));
    let pools = blackhole_routes::examine(settings);
    let api = settings.api.filter(|address| !address.ip().is_loopback()).map(|address| {
        format!(
            "app.api: {address} is reachable from other hosts and the API has no authentication; \
             use 127.0.0.1, or protect it"
        )
    });
    n4.chain(pools).chain(api).collect()
}

fn missing(address: IpAddr) -> Option<String> {
    let error = UdpSocket::bind(SocketAddr::new(address, 0)).err()?;
    Some(format!(
        "app.n4.addresses: {address} is no address of this host ({error}); add it, e.g. by `ip \
         address add {address}/24 dev eth0`"
    ))
}
