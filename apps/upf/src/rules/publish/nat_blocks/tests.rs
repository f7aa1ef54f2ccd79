use std::collections::BTreeMap;

use fastlane_testing::sleeping_lane;
use serde_json::{Value, json};

use super::super::{Published, Tables};
use super::*;
use crate::config::Settings;
use crate::rules::compile::Context;
use crate::rules::{Capacities, Private};
use crate::store::typical;
use crate::tests::stop_after;

/// Sessions in the tables.
const SESSIONS: u32 = 64;

fn settings(nat: &Value) -> Settings {
    let mut all =
        json!({ "addresses": ["198.51.100.0/30"], "ports-per-user": 16_384, "rest-s": 0 });
    for (key, value) in nat.as_object().unwrap() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({
        "node-id": "192.0.2.1",
        "n4": { "addresses": ["192.0.2.1"] },
        "interfaces": {
            "n3": { "port": "a", "role": "n3", "addresses": ["192.0.2.2"] },
            "n6": { "port": "c", "role": "n6", "nat": all },
        },
        "sessions": SESSIONS,
    }))
    .unwrap()
}

fn memory(settings: &Settings) -> Private {
    Private::new(Capacities::of(settings).with_answers(16), sleeping_lane())
}

fn open(settings: &Settings, memory: &Private) -> Published {
    let context = Context::new(settings).map_err(|(name, _)| name).unwrap();
    Published::open(Tables::private(memory).unwrap(), context)
}

/// Returns a session with an IPv4 address that NAT translates.
fn session(index: u32) -> Session {
    let mut session = typical(index);
    (session.id, session.version) = (SessionIndex(index), u64::from(index) + 1);
    session.supi = Some(format!("00101000000{index:04}"));
    for pdr in &mut session.pdrs {
        pdr.instance = None;
        if let Some(tunnel) = &mut pdr.tunnel {
            tunnel.teid = 0x100 + index;
        }
        if let Some(user) = &mut pdr.user {
            user.v4 = Some(Ipv4Addr::new(10, 45, 0, index as u8));
            user.v6 = None;
        }
    }
    session
}

/// Returns the block of each session, and checks that owners and users agree.
fn blocks(published: &Published) -> BTreeMap<u32, u32> {
    let tables = published.tables();
    let owned = tables.nat_blocks.iter().filter_map(|(number, block)| {
        let owner = block.owner()?;
        let user = tables.nat_users.get(owner.0 as usize).expect("a user");
        assert_eq!((user.block as usize, user.generation), (number, block.generation));
        assert_eq!(user.inside, block.inside);
        Some((owner.0, number as u32))
    });
    let owned: BTreeMap<u32, u32> = owned.collect();
    assert_eq!(owned.len(), tables.nat_users.iter().count());
    assert_eq!(owned.len() as u64, published.nat_counts().used);
    owned
}

#[test]
fn users_get_blocks_of_different_addresses_and_keep_them() {
    let settings = settings(&json!({}));
    let mut published = open(&settings, &memory(&settings));
    for index in 1..5 {
        published.publish(None, &session(index)).unwrap();
    }
    let given = blocks(&published);
    let addresses: std::collections::BTreeSet<u32> =
        published.tables().nat_users.iter().map(|(_, user)| user.external).collect();
    assert_eq!((given.len(), addresses.len()), (4, 4));
    let mut changed = session(2);
    changed.version = 99;
    published.publish(Some(&session(2)), &changed).unwrap();
    assert_eq!(blocks(&published), given);
    // Users without an address that is translated have none.
    let mut other = session(7);
    for user in other.pdrs.iter_mut().filter_map(|pdr| pdr.user.as_mut()) {
        user.v4 = Some([203, 0, 113, 9].into());
    }
    published.publish(None, &other).unwrap();
    assert_eq!(blocks(&published), given);
}

#[test]
fn without_a_free_block_a_session_is_refused_before_anything_changes() {
    let settings = settings(&json!({ "addresses": ["198.51.100.7"] }));
    let mut published = open(&settings, &memory(&settings));
    for index in 1..4 {
        published.check(&session(index)).unwrap();
        published.publish(None, &session(index)).unwrap();
    }
    let refused = published.check(&session(4)).unwrap_err();
    assert!(matches!(refused, super::super::PublishError::NatExhausted), "{refused}");
    assert!(published.check(&session(2)).is_ok(), "it has one");
    assert_eq!(blocks(&published).len(), 3);
    published.withdraw(&session(2));
    assert!(published.check(&session(4)).is_ok());
}

#[test]
fn a_block_rests_before_another_user_gets_it() {
    fn later() -> Now {
        Now::read().after(121 * SECOND)
    }
    let settings = settings(&json!({ "addresses": ["198.51.100.7"], "rest-s": 120 }));
    let mut published = open(&settings, &memory(&settings));
    (1..4).for_each(|index| published.publish(None, &session(index)).unwrap());
    let before = blocks(&published);
    published.withdraw(&session(2));
    assert!(published.check(&session(4)).is_err(), "it rests");
    assert_eq!((published.nat_counts().resting, published.nat_counts().used), (1, 2));
    published.nat.clock = later;
    assert_eq!(published.nat_counts().resting, 0);
    published.publish(None, &session(4)).unwrap();
    assert_eq!(blocks(&published)[&4], before[&2]);
    let user = *published.tables().nat_users.get(4).unwrap();
    assert_eq!(user.generation, 2, "mappings of the former user are void");
}

#[test]
fn a_successor_has_the_same_blocks_and_knows_which_rest() {
    let settings = settings(&json!({ "addresses": ["198.51.100.7"], "rest-s": 120 }));
    let memory = memory(&settings);
    let mut published = open(&settings, &memory);
    (1..4).for_each(|index| published.publish(None, &session(index)).unwrap());
    published.withdraw(&session(2));
    let before = blocks(&published);
    let mut published = open(&settings, &memory);
    published.recover(|id| [1, 3].contains(&id.0).then(|| session(id.0)));
    assert_eq!(blocks(&published), before);
    assert!(published.check(&session(4)).is_err(), "it still rests");
    assert_eq!(published.nat_counts().resting, 1);
}

/// SIGKILL between any two changes of a table, also of the successor while it recovers.
#[test]
fn whoever_is_killed_anywhere_no_block_is_lost_or_given_twice() {
    let settings = settings(&json!({ "addresses": ["198.51.100.7"] }));
    for is_removal in [false, true] {
        for operations in 0.. {
            let memory = memory(&settings);
            let mut published = open(&settings, &memory);
            published.publish(None, &session(1)).unwrap();
            published.publish(None, &session(2)).unwrap();
            let kept = blocks(&published)[&1];
            let done = stop_after(operations, || match is_removal {
                true => published.withdraw(&session(2)),
                false => published.publish(None, &session(3)).unwrap(),
            });
            // The record was committed before a publication, and removed before a withdrawal.
            let left: &[u32] = if is_removal { &[1] } else { &[1, 2, 3] };
            for again in 0..4 {
                published = open(&settings, &memory);
                let mut recover =
                    || published.recover(|id| left.contains(&id.0).then(|| session(id.0)));
                if again < 3 {
                    stop_after(again, &mut recover);
                } else {
                    assert!(recover().failed.is_empty());
                }
            }
            let owned = blocks(&published);
            assert_eq!(owned.keys().copied().collect::<Vec<_>>(), left, "{operations}");
            assert_eq!(owned[&1], kept);
            // All that nobody owns can be given.
            for index in 10..13 - left.len() as u32 {
                published.publish(None, &session(index)).unwrap();
                assert!(blocks(&published).contains_key(&index), "{operations}");
            }
            if done.is_some() {
                assert!(operations >= 4, "{operations}");
                break;
            }
        }
    }
}

#[test]
fn the_log_has_a_line_per_allocation_and_release() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nat.log");
    let settings = settings(&json!({ "log": path }));
    let mut published = open(&settings, &memory(&settings));
    published.publish(None, &session(5)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let (time, rest) = text.split_once(' ').unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    let seid = session(5).seid;
    assert_eq!(
        rest,
        format!(
            "nat-block allocated user=imsi-001010000000005 seid={seid:#x} inside=10.45.0.5 \
             external=198.51.100.0 ports=1024-17407\n"
        )
    );
    published.publish(Some(&session(5)), &session(5)).unwrap();
    // The file is rotated.
    std::fs::rename(&path, folder.path().join("nat.log.1")).unwrap();
    published.withdraw(&session(5));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("nat-block released user=imsi-001010000000005").count(), 1, "{text}");
    assert_eq!(text.lines().count(), 1);
    // A log that cannot be written is counted, and does not stop anybody.
    drop(folder);
    published.publish(None, &session(6)).unwrap();
    assert_eq!(published.nat_counts().log_failed, 1);
    assert_eq!(blocks(&published).len(), 1);
}
