//! Sessions that stand in the way of a reload, because they use what it would remove.
//!
//! A session belongs to its SMF, and without the feature EPFAR of TS 29.244 a UPF cannot report
//! that it has ended one. So the reload is refused while there are such sessions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::sessions::Sessions;
use crate::config::Settings;
use crate::config::addresses::contains;
use crate::config::running::RunningConfig;
use crate::rules::compile::keys;
use crate::rules::layout::UeKey;
use crate::session::{Forwarding, InstanceId, Network, Prefix, Session};

/// Something that a reload removes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Removed {
    Instance(String),
    Pool(String),
    Address(IpAddr),
    Predefined(String),
}

impl Removed {
    /// Returns the reason against the removal if this number of sessions uses it.
    fn refusal(&self, sessions: usize) -> String {
        let (place, what) = match self {
            Self::Instance(name) => ("app.interfaces", format!("the network instance `{name}`")),
            Self::Pool(prefix) => ("app.pools", format!("addresses of {prefix}")),
            Self::Address(address) => ("app.interfaces", format!("tunnels at {address}")),
            Self::Predefined(name) => ("app.predefined", format!("the predefined rule `{name}`")),
        };
        format!(
            "{place}: {sessions} sessions use {what}, which the file does not have; let the SMF \
             delete them first (`upf sessions` lists them)"
        )
    }
}

/// Returns a reason for each thing that sessions use and the new configuration does not have.
pub(super) fn sessions_in_the_way(
    sessions: &Sessions,
    before: &RunningConfig,
    after: &RunningConfig,
) -> Vec<String> {
    let mut reasons = Vec::new();
    let (live, most) = (sessions.len(), after.settings.sessions);
    if live > most {
        reasons.push(format!(
            "app.sessions: there are {live} sessions, {most} are configured; write at least \
             {live}, or let the SMF delete some first"
        ));
    }
    let removal = Removal::new(&before.settings, &after.settings);
    if removal.is_empty() {
        return reasons;
    }
    let mut counts: BTreeMap<Removed, usize> = BTreeMap::new();
    for session in sessions.iter() {
        let users = keys(&session, sessions.published().context()).users;
        for removed in removal.used_by(&session, &users) {
            *counts.entry(removed).or_default() += 1;
        }
    }
    reasons.extend(counts.iter().map(|(removed, count)| removed.refusal(*count)));
    reasons
}

/// UE address pool with what stands for its network instance in lookup keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolOf {
    domain: Option<InstanceId>,
    prefix: Prefix,
}

/// All that a reload removes.
#[derive(Debug, Default)]
struct Removal {
    instances: Vec<(InstanceId, String)>,
    pools: Vec<PoolOf>,
    /// Pools of the new configuration, which may contain removed ones.
    pools_left: Vec<PoolOf>,
    addresses: Vec<IpAddr>,
    predefined: Vec<String>,
}

fn pools(settings: &Settings, network: &Network) -> Vec<PoolOf> {
    let of = |pool: &crate::config::Pool| {
        let id = settings.instance(&pool.network_instance)?;
        Some(PoolOf { domain: network.domain(id), prefix: pool.parsed()? })
    };
    settings.pools.iter().filter_map(of).collect()
}

impl Removal {
    fn new(before: &Settings, after: &Settings) -> Self {
        let is_left = |name: &&str| !name.is_empty() && after.instance(name).is_none();
        let instances = before.instances().into_iter().filter(is_left);
        let instances =
            instances.filter_map(|name| Some((before.instance(name)?, name.to_owned())));
        let pools_left = pools(after, &after.network());
        let mut pools = pools(before, &before.network());
        pools.retain(|pool| !pools_left.contains(pool));
        let addresses = before.interfaces.values().flat_map(|it| &it.addresses).copied();
        let predefined = before.predefined.keys().cloned();
        Self {
            instances: instances.collect(),
            pools,
            pools_left,
            addresses: addresses.filter(|it| !after.is_tunnel_address(*it)).collect(),
            predefined: predefined.filter(|it| !after.predefined.contains_key(it)).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        let Self { instances, pools, addresses, predefined, .. } = self;
        instances.is_empty() && pools.is_empty() && addresses.is_empty() && predefined.is_empty()
    }

    /// Returns what a session with the lookup keys `users` uses.
    fn used_by(&self, session: &Session, users: &[UeKey]) -> Vec<Removed> {
        let mut used = Vec::new();
        let fars = session.fars.iter();
        let forwarding = fars.flat_map(|far| far.forwarding.iter().chain(&far.duplicating));
        let exits = forwarding.filter_map(|it: &Forwarding| it.instance);
        let named: Vec<InstanceId> =
            session.pdrs.iter().filter_map(|pdr| pdr.instance).chain(exits).collect();
        let instances = self.instances.iter().filter(|(id, _)| named.contains(id));
        used.extend(instances.map(|(_, name)| Removed::Instance(name.clone())));
        for pool in &self.pools {
            if self.is_user_of(session, users, pool) {
                let Prefix { address, length } = pool.prefix;
                used.push(Removed::Pool(format!("{address}/{length}")));
            }
        }
        let tunnels = session.pdrs.iter().filter_map(|pdr| pdr.tunnel);
        let ends: Vec<IpAddr> = tunnels
            .flat_map(|it| [it.v4.map(IpAddr::V4), it.v6.map(IpAddr::V6)])
            .flatten()
            .collect();
        let addresses = self.addresses.iter().filter(|it| ends.contains(it));
        used.extend(addresses.map(|address| Removed::Address(*address)));
        let active = |name: &&String| session.pdrs.iter().any(|pdr| pdr.predefined.contains(name));
        used.extend(self.predefined.iter().filter(active).cloned().map(Removed::Predefined));
        used.dedup();
        used
    }

    /// Returns true if a session has an address of a removed pool that no other one contains. A
    /// session without lookup keys has its addresses in any network instance.
    fn is_user_of(&self, session: &Session, users: &[UeKey], pool: &PoolOf) -> bool {
        let of_pdrs = session.pdrs.iter().filter_map(|pdr| pdr.user).flat_map(|user| {
            let v6 = user.v6.map(|(address, _)| IpAddr::V6(address));
            [user.v4.map(IpAddr::V4), v6]
        });
        let is_here = users.is_empty() || users.iter().any(|key| Some(key.instance) == pool.domain);
        let is_left = |address: IpAddr| {
            let mut same = self.pools_left.iter().filter(|it| it.domain == pool.domain);
            same.any(|it| contains(it.prefix, address))
        };
        let mut addresses = of_pdrs.flatten();
        is_here && addresses.any(|it| contains(pool.prefix, it) && !is_left(it))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::{Value, json};

    use super::*;
    use crate::session::{Source, UserAddress};
    use crate::store::typical;

    fn settings(change: impl Fn(&mut Value)) -> Settings {
        let mut settings = json!({
            "node-id": "192.0.2.1",
            "n4": { "addresses": ["192.0.2.1"] },
            "interfaces": {
                "n3": { "port": "n3", "role": "n3", "network-instances": ["access"],
                        "addresses": ["10.3.0.1", "10.3.0.2"] },
                "n6": { "port": "n6", "role": "n6", "network-instances": ["internet"] },
                "n6b": { "port": "n6b", "role": "n6", "network-instances": ["ims"] },
            },
            "pools": [
                { "network-instance": "internet", "prefix": "10.45.0.0/16" },
                { "network-instance": "ims", "prefix": "10.45.0.0/16" },
            ],
            "predefined": { "web": { "precedence": 1, "flows": [] } },
        });
        change(&mut settings);
        let mut settings: Settings = serde_json::from_value(settings).unwrap();
        settings.numbering = ["access", "ims", "internet"].map(str::to_owned).to_vec();
        settings
    }

    /// Returns a session with a tunnel at 10.3.0.1 and the address 10.45.0.5 of `internet`.
    fn session(predefined: &[&str]) -> (Session, Vec<UeKey>) {
        let mut session = typical(0);
        let address = Ipv4Addr::new(10, 45, 0, 5);
        let user = UserAddress { v4: Some(address), v6: None, is_ours: true };
        for pdr in &mut session.pdrs {
            pdr.user = Some(user);
            pdr.instance = Some(if pdr.source == Source::Access { 0 } else { 2 });
            pdr.predefined = predefined.iter().map(|name| (*name).to_owned()).collect();
            if let Some(tunnel) = &mut pdr.tunnel {
                (tunnel.v4, tunnel.v6) = (Some(Ipv4Addr::new(10, 3, 0, 1)), None);
            }
        }
        for far in &mut session.fars {
            far.forwarding.iter_mut().for_each(|it| it.instance = None);
            far.duplicating.clear();
        }
        (session, vec![UeKey::v4(2, address)])
    }

    /// Returns what the session uses of that which a change removes.
    fn used(change: impl Fn(&mut Value)) -> Vec<Removed> {
        let removal = Removal::new(&settings(|_| ()), &settings(change));
        let (session, users) = session(&["web"]);
        removal.used_by(&session, &users)
    }

    #[test]
    fn what_a_session_uses_is_found() {
        let internet = Removed::Instance("internet".to_owned());
        let pool = Removed::Pool("10.45.0.0/16".to_owned());
        let without_internet = |it: &mut Value| {
            it["interfaces"]["n6"]["network-instances"] = json!(["other"]);
            it["pools"] = json!([{ "network-instance": "ims", "prefix": "10.45.0.0/16" }]);
        };
        assert_eq!(used(without_internet), [internet, pool.clone()]);
        let without_pools = |it: &mut Value| it["pools"] = json!([]);
        assert_eq!(used(without_pools), [pool]);
        let without_address =
            |it: &mut Value| it["interfaces"]["n3"]["addresses"] = json!(["10.3.0.2"]);
        assert_eq!(used(without_address), [Removed::Address([10, 3, 0, 1].into())]);
        let without_rules = |it: &mut Value| it["predefined"] = json!({});
        assert_eq!(used(without_rules), [Removed::Predefined("web".to_owned())]);
    }

    #[test]
    fn what_no_session_uses_can_go() {
        let without_ims = |it: &mut Value| {
            it["interfaces"].as_object_mut().unwrap().remove("n6b");
            it["pools"] = json!([{ "network-instance": "internet", "prefix": "10.45.0.0/16" }]);
        };
        assert_eq!(used(without_ims), []);
        let without_address =
            |it: &mut Value| it["interfaces"]["n3"]["addresses"] = json!(["10.3.0.1"]);
        assert_eq!(used(without_address), []);
        // A larger pool has the addresses of the former one, a smaller one those in use.
        for prefix in ["10.44.0.0/15", "10.45.0.0/24"] {
            let resized = |it: &mut Value| it["pools"][0]["prefix"] = json!(prefix);
            assert_eq!(used(resized), []);
        }
        let elsewhere = |it: &mut Value| it["pools"][0]["prefix"] = json!("10.45.1.0/24");
        assert_eq!(used(elsewhere).len(), 1);
    }
}
