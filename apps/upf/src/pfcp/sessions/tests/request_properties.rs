//! Properties of any sequence of requests: no two sessions share a tunnel or an address, lanes see
//! what the records say, and a successor finds the same.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::kill::is_whole;
use super::*;

#[derive(Clone, Debug)]
enum Ask {
    Establish { user: u8, tunnels: u8, dynamic: bool, restores: bool },
    Modify { which: u8, pdr: u8, remove: bool, far: u8, query: bool },
    Delete { which: u8 },
    Wait,
    Restart,
}

fn asks() -> impl Strategy<Value = Ask> {
    prop_oneof![
        4 => any::<(u8, u8, bool, bool)>().prop_map(|(user, tunnels, dynamic, restores)| {
            Ask::Establish { user: user % 12, tunnels: tunnels % 4, dynamic, restores }
        }),
        4 => any::<(u8, u8, bool, u8, bool)>().prop_map(|(which, pdr, remove, far, query)| {
            Ask::Modify { which, pdr: pdr % 6, remove, far: far % 4, query }
        }),
        2 => any::<u8>().prop_map(|which| Ask::Delete { which }),
        1 => Just(Ask::Wait),
        1 => Just(Ask::Restart),
    ]
}

fn request(world: &SessionTestbed, sequence: u32, ask: &Ask) -> Option<Vec<u8>> {
    let seid = |which: u8| {
        let seids: Vec<u64> = world.sessions.iter().map(|it| it.seid).collect();
        seids.get(usize::from(which) % seids.len().max(1)).copied().unwrap_or(5)
    };
    Some(match *ask {
        Ask::Establish { user, tunnels, dynamic, restores } => establishment(sequence, 77, &|w| {
            let user = match dynamic {
                true => UeIpAddress { choose_v4: true, choose_v6: user % 2 == 0, ..<_>::default() },
                false => address(Ipv4Addr::new(10, 45, 0, user)),
            };
            for tunnel in 0..tunnels {
                let teid = FTeid { teid: u32::from(tunnel) << 9, v4: Some(N3), ..<_>::default() };
                let teid = if restores { teid } else { choose(Some(tunnel / 2)) };
                pdr(w, 10 + u16::from(tunnel), 1, &|w| access(w, &teid), &|_| {});
            }
            usual(w, &user);
            if restores {
                w.put(&ie::PfcpsereqFlags::RESTI);
            }
        }),
        Ask::Modify { which, pdr: id, remove, far, query } => {
            modification(sequence, seid(which), &|w| {
                if remove {
                    w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(id.into())));
                } else {
                    let more: Body<'_> = &|w| w.put(&ie::UrrId(far.into()));
                    pdr(w, id.into(), far.into(), &|w| access(w, &choose(None)), more);
                    urr(w, far.into());
                }
                if query {
                    w.put(&ie::PfcpsmreqFlags::QAURR);
                }
            })
        }
        Ask::Delete { which } => deletion(sequence, seid(which)),
        Ask::Wait | Ask::Restart => return None,
    })
}

fn check(world: &SessionTestbed) {
    is_whole(world);
    let (mut teids, mut users) = (BTreeSet::new(), BTreeSet::new());
    for session in world.sessions.iter() {
        let own: BTreeSet<u32> =
            session.pdrs.iter().filter_map(|pdr| pdr.tunnel).map(|tunnel| tunnel.teid).collect();
        for teid in own {
            assert!(teid != 0 && teid != u32::MAX && teids.insert(teid), "{teid:#x} twice");
            assert_eq!(world.sessions.find_tunnel(teid), Some(session.id));
        }
        let own: BTreeSet<_> = session
            .pdrs
            .iter()
            .filter(|pdr| pdr.source == crate::session::Source::Core)
            .filter_map(|pdr| pdr.user)
            .flat_map(|user| [user.v4.map(IpAddr::from), user.v6.map(|it| it.0.into())])
            .flatten()
            .collect();
        own.into_iter().for_each(|user| assert!(users.insert(user), "{user} twice"));
    }
}

/// Returns a configuration with few cases, because each one creates all tables.
fn cases() -> ProptestConfig {
    let is_soak = std::env::var_os("FASTLANE_SOAK").is_some();
    ProptestConfig { cases: if is_soak { 500 } else { 12 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn any_requests_keep_what_must_hold(all in prop::collection::vec(asks(), 1..40)) {
        let mut world = SessionTestbed::new();
        for (number, ask) in all.iter().enumerate() {
            match (request(&world, number as u32, ask), ask) {
                (Some(request), _) => {
                    let before: Vec<Session> = world.sessions.iter().collect();
                    let answered = world.ask(&request);
                    if answered.cause != 1 {
                        let after: Vec<Session> = world.sessions.iter().collect();
                        prop_assert_eq!(after, before, "refused: {:?}", answered.why());
                    }
                }
                (None, Ask::Wait) => world.now = world.now.after(12 * SECOND),
                _ => {
                    let before: Vec<Session> = world.sessions.iter().collect();
                    let used: Vec<_> = world.sessions.addresses().usage().collect();
                    world.restart();
                    prop_assert_eq!(world.sessions.iter().collect::<Vec<_>>(), before);
                    prop_assert_eq!(world.sessions.addresses().usage().collect::<Vec<_>>(), used);
                }
            }
            check(&world);
        }
    }

    #[test]
    fn mutated_requests_do_no_harm(
        ask in asks(),
        flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..6),
    ) {
        let mut world = SessionTestbed::new();
        world.ask(&establishment(1, 77, &|w| usual(w, &address(Ipv4Addr::new(10, 45, 0, 3)))));
        let request = request(&world, 2, &ask).filter(|request| request.len() > 16);
        let Some(mut request) = request else { return Ok(()) };
        for (at, value) in flips {
            let at = at.index(request.len() - 16);
            request[16 + at] ^= value;
        }
        if Message::parse(&request).is_ok() {
            world.handle(&request);
        }
        check(&world);
    }
}
