//! Counters by slice and DNN, and limits of held packets that sessions have in common.

use std::collections::BTreeMap;

use proptest::prelude::*;
use upf::rules::layout::drop_reason::{DROP_REASONS, DropReason};
use upf::rules::layout::session_rules::{Direction, Rules, flag};
use upf::rules::layout::slices::{
    HoldBudget, SliceGroup, forwarded_words, outcome_word, smf_entry,
};
use upf::session::SessionIndex;

use crate::frames::{ethernet, from_gnb, g_pdu, ue4};
use crate::test_lane::*;

/// Number of users, and of groups that they are in. The last group is that of the last index.
const USERS: u8 = 6;
const GROUPS: [usize; 3] = [0, 9, 127];

fn group(of: u8) -> SliceGroup {
    let index = GROUPS[usize::from(of) % GROUPS.len()];
    SliceGroup::all().nth(index).expect("a group")
}

fn session(of: u8) -> SessionIndex {
    SessionIndex(300 + u32::from(of))
}

fn address(of: u8) -> [u8; 4] {
    [10, 45, 7, of]
}

/// Publishes rules of a user, who is in a group and belongs to SMF number `of`.
fn publish(world: &mut TestLane, of: u8, change: impl Fn(&mut Rules)) {
    let mut rules = simple(1);
    rules.uplink.ue4 = u32::from_be_bytes(address(of));
    rules.uplink.common.tunnel = teid(session(of));
    change(&mut rules);
    rules.set_owner(group(of), of.into());
    world.publish_other(session(of), address(of), &rules);
}

fn uplink(of: u8, data: usize) -> Vec<u8> {
    from_gnb(&g_pdu(teid(session(of)), 1, 1, &ue4(address(of), SERVER, 64, data)))
}

fn downlink(of: u8, data: usize) -> Vec<u8> {
    ethernet(N6, &ue4(SERVER, address(of), 64, data))
}

fn forwarded(world: &TestLane, group: SliceGroup, direction: Direction) -> [u64; 2] {
    let words = world.tables.slice_counters.read(group.entry());
    forwarded_words(direction as usize).map(|word| words[word])
}

fn counted(world: &TestLane, group: SliceGroup, reason: DropReason) -> u64 {
    world.tables.slice_counters.read(group.entry())[outcome_word(reason)]
}

#[test]
fn packets_count_for_the_slice_of_their_session_only() {
    let mut world = TestLane::new(TestRoutes::new(), settings());
    publish(&mut world, 1, |_| ());
    publish(&mut world, 2, |rules| rules.downlink.common.flags |= flag::CLOSED);
    let frames = [uplink(1, 10), uplink(1, 30), uplink(2, 20)];
    let octets = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
    world.show(N3, &frames);
    let spoofed = from_gnb(&g_pdu(teid(session(1)), 1, 1, &ue4([10, 45, 9, 9], SERVER, 64, 8)));
    world.show(N3, &[spoofed, from_gnb(&g_pdu(teid(session(5)), 1, 1, &[0x45; 40]))]);
    world.show(N6, &[downlink(1, 40), downlink(2, 50), downlink(2, 60), downlink(5, 9)]);
    let (one, two) = (group(1), group(2));
    assert_eq!(forwarded(&world, one, Direction::Uplink), [2, octets(&frames[..2])]);
    assert_eq!(forwarded(&world, two, Direction::Uplink), [1, octets(&frames[2..])]);
    assert_eq!(forwarded(&world, one, Direction::Downlink), [1, octets(&[downlink(1, 40)])]);
    assert_eq!(forwarded(&world, two, Direction::Downlink), [0, 0]);
    assert_eq!(counted(&world, two, DropReason::GateClosed), 2);
    assert_eq!(counted(&world, one, DropReason::GateClosed), 0);
    assert_eq!(counted(&world, one, DropReason::ForeignSource), 1);
    // A packet without a session is in no slice.
    assert_eq!(world.count(DropReason::UnknownUser), 1);
    for reason in [DropReason::UnknownUser, DropReason::UnknownTunnel] {
        assert!(SliceGroup::all().all(|group| counted(&world, group, reason) == 0));
    }
    world.check();
}

/// Publishes users whose packets are held.
fn publish_holding(world: &mut TestLane, users: &[u8]) {
    for of in users {
        publish(world, *of, |rules| {
            rules.downlink.common.flags |= flag::HOLD;
            (rules.cold.hold_packets, rules.cold.hold_ms) = (20, 60_000);
        });
    }
}

fn held(world: &mut TestLane, of: u8, count: usize) -> usize {
    let before = world.count(DropReason::Held);
    world.show(N6, &vec![downlink(of, 8); count]);
    (world.count(DropReason::Held) - before) as usize
}

#[test]
fn a_slice_that_holds_too_much_takes_nothing_from_others() {
    let mut world = TestLane::new(TestRoutes::new(), settings());
    let budget = HoldBudget { number: 3, packets: 7 };
    world.tables.hold_budgets.set(group(1).index(), &budget).expect("there is room");
    publish_holding(&mut world, &[1, 2, 4]);
    assert_eq!(group(1), group(4), "two users in the same slice");
    assert_eq!(held(&mut world, 1, 5), 5);
    assert_eq!(held(&mut world, 4, 5), 2, "the rest of the slice's 7");
    assert_eq!(held(&mut world, 2, 15), 15, "another slice has no limit");
    assert_eq!(counted(&world, group(1), DropReason::HoldLimit), 3);
    assert_eq!(counted(&world, group(1), DropReason::Held), 7);
    assert_eq!(counted(&world, group(2), DropReason::HoldLimit), 0);
    // What is released makes room.
    publish(&mut world, 1, |rules| {
        (rules.uplink.common.version, rules.downlink.common.version) = (2, 2);
    });
    world.show(N6, &[]);
    assert_eq!(world.left(N3).len(), 5);
    assert_eq!(held(&mut world, 4, 15), 5);
    assert_eq!(counted(&world, group(1), DropReason::HoldLimit), 13);
}

#[test]
fn an_smf_has_a_limit_beside_that_of_the_slice() {
    let mut world = TestLane::new(TestRoutes::new(), settings());
    let of_slice = HoldBudget { number: 1, packets: 10 };
    world.tables.hold_budgets.set(group(1).index(), &of_slice).expect("there is room");
    for (smf, packets) in [(1, 4), (2, 6)] {
        let budget = HoldBudget { number: 65 + u32::from(smf), packets };
        world.tables.hold_budgets.set(smf_entry(smf), &budget).expect("there is room");
    }
    publish_holding(&mut world, &[1, 2, 4]);
    assert_eq!(held(&mut world, 1, 9), 4, "the limit of its SMF");
    assert_eq!(held(&mut world, 2, 9), 6, "that of another SMF");
    assert_eq!(held(&mut world, 4, 9), 6, "its SMF has none, the slice has 6 left");
    // A limit that is taken back counts from the next packet on.
    world.tables.hold_budgets.clear(smf_entry(1));
    world.tables.hold_budgets.clear(group(1).index());
    assert_eq!(held(&mut world, 1, 9), 9);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The counters of all groups are those of a model, and their sums those of the lane.
    #[test]
    fn any_mixture_of_slices_adds_up(
        bursts in prop::collection::vec(
            prop::collection::vec((0..USERS, any::<bool>(), 0..40_usize), 0..40), 1..5),
        closed in 0..USERS,
    ) {
        let mut world = TestLane::new(TestRoutes::new(), settings());
        for of in 0..USERS {
            let is_closed = of == closed;
            publish(&mut world, of, |rules| {
                rules.downlink.common.flags |= if is_closed { flag::CLOSED } else { 0 };
            });
        }
        let mut expected: BTreeMap<SliceGroup, [u64; 5]> = BTreeMap::new();
        for burst in &bursts {
            let mut frames = [vec![], vec![]];
            for &(of, is_uplink, data) in burst {
                let frame = if is_uplink { uplink(of, data) } else { downlink(of, data) };
                let counts = expected.entry(group(of)).or_default();
                match (is_uplink, of == closed) {
                    (true, _) => {
                        (counts[0], counts[1]) = (counts[0] + 1, counts[1] + frame.len() as u64);
                    }
                    (false, false) => {
                        (counts[2], counts[3]) = (counts[2] + 1, counts[3] + frame.len() as u64);
                    }
                    (false, true) => counts[4] += 1,
                }
                frames[usize::from(!is_uplink)].push(frame);
            }
            world.show(N3, &frames[0]);
            world.show(N6, &frames[1]);
        }
        let mut sums = [0; 3];
        for group in SliceGroup::all() {
            let [up, down] = [Direction::Uplink, Direction::Downlink]
                .map(|direction| forwarded(&world, group, direction));
            let closed = counted(&world, group, DropReason::GateClosed);
            let all = [up[0], up[1], down[0], down[1], closed];
            prop_assert_eq!(all, expected.get(&group).copied().unwrap_or_default());
            let others = DROP_REASONS.iter().filter(|it| **it != DropReason::GateClosed);
            prop_assert_eq!(others.map(|it| counted(&world, group, *it)).sum::<u64>(), 0);
            sums = [sums[0] + up[0], sums[1] + down[0], sums[2] + closed];
        }
        let counts = [
            DropReason::ForwardedUplink,
            DropReason::ForwardedDownlink,
            DropReason::GateClosed,
        ];
        prop_assert_eq!(sums, counts.map(|reason| world.count(reason)));
        world.check();
    }
}
