//! `upf check`: whether this machine can do what the configuration says.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use super::pools;
use crate::config::Settings;

/// What will probably not work as wished, besides what Fastlane says: a sentence each. Touches
/// nothing.
#[must_use]
pub fn warnings(settings: &Settings) -> Vec<String> {
    let n4 = settings.n4.addresses.iter().filter_map(|address| missing(*address));
    let pools = pools::examine(settings);
    let api = settings.api.filter(|address| !address.ip().is_loopback()).map(|address| {
        format!(
            "app.api: {address} is not of this host alone, and the API asks nobody who he is; \
             write 127.0.0.1, or guard it"
        )
    });
    n4.chain(pools).chain(api).collect()
}

fn missing(address: IpAddr) -> Option<String> {
    let error = UdpSocket::bind(SocketAddr::new(address, 0)).err()?;
    Some(format!(
        "app.n4.addresses: {address} is no address of this host ({error}); add it, as by `ip \
         address add {address}/24 dev eth0`"
    ))
}
