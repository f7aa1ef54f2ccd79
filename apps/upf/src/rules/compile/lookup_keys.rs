//! Lookup keys by which packets find a session.

use std::net::IpAddr;

use super::{Context, FramedRoute};
use crate::rules::layout::key::{TunnelKey, UeKey};
use crate::session::{InstanceId, Pdr, Session, Source};

/// Lookup keys of a session, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupKeys {
    /// UE addresses.
    pub users: Vec<UeKey>,
    /// Tunnels whose TEID does not contain the session index.
    pub tunnels: Vec<TunnelKey>,
    /// Networks behind the UE.
    pub framed: Vec<FramedRoute>,
}

fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// Returns the lookup keys of a session.
#[must_use]
pub fn keys(session: &Session, context: &Context) -> LookupKeys {
    let mut keys = LookupKeys::default();
    for pdr in &session.pdrs {
        if let Some(tunnel) = pdr.tunnel {
            if tunnel.teid != 0 && context.shape.session(tunnel.teid) != session.id {
                add(&mut keys.tunnels, TunnelKey { teid: tunnel.teid });
            }
        } else if matches!(pdr.source, Source::Core | Source::SgiLan) {
            let named = pdr.instance.as_slice();
            let instances = if named.is_empty() { &context.core } else { named };
            instances.iter().for_each(|instance| keys.of_user(pdr, *instance));
        }
    }
    keys
}

impl LookupKeys {
    /// Returns the keys that are not among `others`.
    #[must_use]
    pub fn without(mut self, others: &Self) -> Self {
        self.users.retain(|key| !others.users.contains(key));
        self.tunnels.retain(|key| !others.tunnels.contains(key));
        self.framed.retain(|route| !others.framed.contains(route));
        self
    }

    fn of_user(&mut self, pdr: &Pdr, instance: InstanceId) {
        if let Some(v4) = pdr.user.and_then(|user| user.v4) {
            add(&mut self.users, UeKey::v4(instance, v4));
        }
        match pdr.user.and_then(|user| user.v6) {
            Some((v6, 64)) => add(&mut self.users, UeKey::v6(instance, v6)),
            Some((v6, length)) => self.route(instance, v6.into(), length),
            None => {}
        }
        for prefix in &pdr.framed {
            self.route(instance, prefix.address, prefix.length);
        }
    }

    fn route(&mut self, instance: InstanceId, address: IpAddr, length: u8) {
        let Some(prefix) = crate::session::Prefix::new(address, length) else { return };
        let (address, length) = (prefix.address, prefix.length);
        add(&mut self.framed, FramedRoute { instance, address, length });
    }
}
