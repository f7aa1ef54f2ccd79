//! The process is killed between any two operations on tables while it handles a request, another
//! goes on, and the peer repeats what was not answered.

use super::*;
use crate::store::fuse::stop_after;

/// A history of requests about two sessions. `seids` are those that were given out.
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

/// What must be the same however often the process was killed: but for what is random.
fn seen(world: &World) -> Vec<(u64, u64, usize, usize, Vec<u32>)> {
    let seen = |it: Session| {
        let sequences = it.urrs.iter().map(|urr| urr.progress.sequence).collect();
        (it.control.seid, it.seid & 0xFFFF_FFFF, it.pdrs.len(), it.urrs.len(), sequences)
    };
    world.sessions.iter().map(seen).collect()
}

/// Everything that lanes see is what the records say.
pub(super) fn is_whole(world: &World) {
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

fn count_all(world: &World) {
    for session in world.sessions.iter() {
        session.urrs.iter().for_each(|urr| world.count(urr.progress.line, 100));
    }
}

/// Does a step and adds what its reports say, once for each answer that is new.
fn step(world: &mut World, number: usize, seids: &mut Vec<u64>) -> Answered {
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
    let (mut undisturbed, mut seids, mut total) = (World::new(), Vec::new(), 0);
    for number in 0..STEPS {
        count_all(&undisturbed);
        total += sum(&step(&mut undisturbed, number, &mut seids));
        expected.push(seen(&undisturbed));
        is_whole(&undisturbed);
    }
    // What was counted: of step 1 one URR, of 2 five, of 3 and 4 .. as they were.
    assert!(total > 1000, "{total}");
    let mut stops = 0;
    for (stopped, after) in expected.iter().enumerate() {
        for operations in 0.. {
            let (mut world, mut seids, mut reported) = (World::new(), Vec::new(), 0);
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
