//! Kills between any two table operations of a request; a successor continues, and the peer
//! retransmits.

use super::*;
use crate::tests::stop_after;

/// Returns request `step` of a history with two sessions. `seids` are the UP SEIDs so far.
fn request(step: usize, seids: &[u64]) -> Vec<u8> {
    let sequence = step as u32 + 1;
    let dynamic = UeIpAddress { choose_v4: true, choose_v6: true, ..UeIpAddress::default() };
    let more = |w: &mut Writer<'_>| {
        for id in 10..16 {
            pdr(w, id, 1, &|w| access(w, &choose(Some(id as u8 % 3))), &|w| w.put(&ie::UrrId(2)));
        }
        urr(w, 2);
    };
    match step {
        0 => establishment(sequence, 77, &|w| usual(w, &dynamic)),
        1 => establishment(sequence, 78, &|w| {
            usual(w, &dynamic);
            (3..6).for_each(|id| urr(w, id));
        }),
        2 => modification(sequence, seids[0], &more),
        3 => modification(sequence, seids[0], &|w| {
            w.group(IeType::REMOVE_URR, |w| w.put(&ie::UrrId(2)));
            w.group(IeType::REMOVE_PDR, |w| w.put(&ie::PdrId(10)));
            w.put(&ie::PfcpsmreqFlags::QAURR);
        }),
        4 => deletion(sequence, seids[0]),
        _ => deletion(sequence, seids[1]),
    }
}

const STEPS: usize = 6;

/// Returns the state that kills must not change, without random values.
fn seen(world: &SessionTestbed) -> Vec<(u64, u64, usize, usize, Vec<u32>)> {
    let seen = |it: Session| {
        let sequences = it.urrs.iter().map(|urr| urr.progress.sequence).collect();
        (it.cp_fseid.seid, it.seid & 0xFFFF_FFFF, it.pdrs.len(), it.urrs.len(), sequences)
    };
    world.sessions.iter().map(seen).collect()
}

/// Checks that lanes see exactly what the records say.
pub(super) fn is_whole(world: &SessionTestbed) {
    let sessions: Vec<Session> = world.sessions.iter().collect();
    assert_eq!(world.sessions.len() as usize, sessions.len());
    let tables = world.sessions.published().tables();
    assert_eq!(tables.rules.iter().count(), sessions.len());
    let mut users = 0;
    for session in &sessions {
        let rules = world.sessions.published().rules(session.id).unwrap();
        assert_eq!(rules.uplink.common.version, session.version as u32);
        let keys = crate::rules::compile::keys(session, world.sessions.published().context());
        users += keys.users.len();
        for key in keys.users {
            assert_eq!(world.sessions.published().user(key), Some(session.id));
        }
    }
    assert_eq!(tables.users.iter().count(), users);
}

fn count_all(world: &SessionTestbed) {
    for session in world.sessions.iter() {
        session.urrs.iter().for_each(|urr| world.count(urr.progress.line, 100));
    }
}

/// Runs a step and adds its usage reports, once per new response.
fn step(world: &mut SessionTestbed, number: usize, seids: &mut Vec<u64>) -> Answered {
    let answered = world.ask(&request(number, seids));
    assert_eq!(answered.cause, 1, "{number}: {answered:?}");
    if number < 2 && seids.len() == number {
        seids.push(answered.up.unwrap().seid);
    }
    answered
}

fn sum(answered: &Answered) -> u64 {
    answered.usage.iter().filter_map(|it| it.3).sum()
}

#[test]
fn exactly_once_wherever_the_process_is_killed() {
    let mut expected = Vec::new();
    let (mut undisturbed, mut seids, mut total) = (SessionTestbed::new(), Vec::new(), 0);
    for number in 0..STEPS {
        count_all(&undisturbed);
        total += sum(&step(&mut undisturbed, number, &mut seids));
        expected.push(seen(&undisturbed));
        is_whole(&undisturbed);
    }
    // Expected counts: one URR in step 1, five in step 2, the same in steps 3 and 4.
    assert!(total > 1000, "{total}");
    let mut stops = 0;
    for (stopped, after) in expected.iter().enumerate() {
        for operations in 0.. {
            let (mut world, mut seids, mut reported) = (SessionTestbed::new(), Vec::new(), 0);
            for number in 0..stopped {
                count_all(&world);
                reported += sum(&step(&mut world, number, &mut seids));
            }
            count_all(&world);
            let asked = request(stopped, &seids);
            let first = stop_after(operations, || world.handle(&asked));
            world.restart();
            is_whole(&world);
            let answered = step(&mut world, stopped, &mut seids);
            if let Some(first) = &first {
                assert_eq!(&answered.bytes, first, "{stopped}");
            }
            let again = world.handle(&asked);
            assert_eq!(again, answered.bytes, "{stopped} {operations}");
            reported += sum(&answered);
            assert_eq!(&seen(&world), after, "{stopped} {operations}");
            for number in stopped + 1..STEPS {
                count_all(&world);
                reported += sum(&step(&mut world, number, &mut seids));
            }
            assert_eq!(reported, total, "{stopped} {operations}: not an octet twice, none lost");
            is_whole(&world);
            assert!(world.sessions.addresses().usage().all(|(.., used, _)| used == 0));
            stops += 1;
            if first.is_some() {
                break;
            }
        }
    }
    assert!(stops > 40, "{stops}");
}
