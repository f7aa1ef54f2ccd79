use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::*;

fn pool(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix { address: address.parse().unwrap(), length: length.parse().unwrap() }
}

#[test]
fn all_addresses_are_given_out_but_the_first_and_the_last() {
    let mut addresses = Addresses::resting(0);
    addresses.add(1, pool("10.0.0.0/24"), true);
    let given: BTreeSet<Ipv4Addr> = std::iter::from_fn(|| addresses.take_v4(1, 0)).collect();
    assert_eq!(given.len(), 254);
    assert!(!given.contains(&Ipv4Addr::new(10, 0, 0, 0)));
    assert!(!given.contains(&Ipv4Addr::new(10, 0, 0, 255)));
    assert_eq!(addresses.usage().collect::<Vec<_>>(), [(1, Family::V4, 254, 0)]);
}

#[test]
fn one_that_comes_back_is_the_last_to_be_given_again() {
    let mut addresses = Addresses::resting(0);
    addresses.add(1, pool("10.0.0.0/25"), true);
    let first = addresses.take_v4(1, 0).unwrap();
    addresses.give_back(&UeKey::v4(1, first));
    let given: Vec<_> = std::iter::from_fn(|| addresses.take_v4(1, 0)).collect();
    assert_eq!((given.len(), given.last()), (126, Some(&first)));
}

#[test]
fn instances_have_pools_of_their_own_and_one_may_have_several() {
    let mut addresses = Addresses::resting(0);
    addresses.add(1, pool("10.0.0.0/31"), true);
    addresses.add(2, pool("10.0.0.0/31"), true);
    addresses.add(2, pool("10.1.0.0/32"), true);
    addresses.add(3, pool("10.2.0.0/16"), false);
    addresses.add(2, pool("2001:db8::/63"), true);
    let count = |addresses: &mut Addresses, instance| {
        std::iter::from_fn(|| addresses.take_v4(instance, 0)).count()
    };
    assert_eq!([1, 2, 3, 4].map(|instance| count(&mut addresses, instance)), [2, 3, 0, 0]);
    assert_eq!(addresses.take_v6(2, 0), Some("2001:db8::".parse().unwrap()));
    assert_eq!(addresses.take_v6(2, 0), Some("2001:db8:0:1::".parse().unwrap()));
    assert_eq!(addresses.take_v6(2, 0), None);
    assert!(addresses.has(2, Family::V6) && !addresses.has(3, Family::V4));
    assert_eq!(addresses.only_instance(Family::V6), Some(2));
    assert_eq!(addresses.only_instance(Family::V4), None);
}

#[test]
fn an_address_that_somebody_else_chose_is_not_given_out() {
    let mut addresses = Addresses::resting(0);
    addresses.add(1, pool("10.0.0.0/30"), true);
    addresses.claim(&UeKey::v4(1, Ipv4Addr::new(10, 0, 0, 1)));
    addresses.claim(&UeKey::v4(1, Ipv4Addr::new(10, 0, 0, 1)));
    addresses.claim(&UeKey::v4(1, Ipv4Addr::new(10, 9, 0, 1)));
    addresses.claim(&UeKey::v4(2, Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(addresses.take_v4(1, 0), Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(addresses.take_v4(1, 0), None);
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn one_that_a_user_had_rests_and_others_are_given_meanwhile() {
    let mut addresses = Addresses::resting(11 * SECOND);
    addresses.add(1, pool("10.0.0.0/29"), true);
    let key = |address| UeKey::v4(1, address);
    let given: Vec<_> = (0..6).filter_map(|_| addresses.take_v4(1, SECOND)).collect();
    assert_eq!(given.len(), 6);
    addresses.put_to_rest(&key(given[4]), 20 * SECOND);
    addresses.put_to_rest(&key(given[4]), 29 * SECOND);
    addresses.put_to_rest(&key(given[1]), 21 * SECOND);
    assert_eq!(addresses.usage().next(), Some((1, Family::V4, 4, 2)));
    assert_eq!(addresses.take_v4(1, 31 * SECOND), None);
    assert_eq!(addresses.take_v4(1, 31 * SECOND + SECOND / 10), Some(given[4]));
    assert_eq!(addresses.take_v4(1, 31 * SECOND + SECOND / 10), None);
    // The control plane may reuse an address at once. It enters quarantine again afterwards.
    addresses.claim(&key(given[1]));
    assert_eq!(addresses.take_v4(1, 40 * SECOND), None);
    addresses.put_to_rest(&key(given[1]), 50 * SECOND);
    assert_eq!(addresses.take_v4(1, 61 * SECOND), None);
    assert_eq!(addresses.take_v4(1, 62 * SECOND), Some(given[1]));
    assert_eq!(addresses.usage().next(), Some((1, Family::V4, 6, 0)));
    // An address that no UE used needs no quarantine.
    addresses.give_back(&key(given[1]));
    assert_eq!(addresses.take_v4(1, 62 * SECOND), Some(given[1]));
}

#[test]
fn a_huge_pool_takes_little() {
    let mut addresses = Addresses::resting(0);
    addresses.add(1, pool("::/0"), true);
    addresses.add(1, pool("0.0.0.0/0"), true);
    assert!(addresses.take_v4(1, 0).is_some() && addresses.take_v6(1, 0).is_some());
    assert!(addresses.pools.iter().all(|pool| pool.used.len() <= 1 << 18));
}

proptest! {
    #[test]
    fn each_is_given_to_one(steps in prop::collection::vec(any::<(bool, u8)>(), 1..400)) {
        let mut addresses = Addresses::resting(0);
        addresses.add(0, pool("10.0.0.0/25"), true);
        let mut taken = Vec::new();
        for (gives, which) in steps {
            if gives && !taken.is_empty() {
                let address = taken.swap_remove(usize::from(which) % taken.len());
                addresses.give_back(&UeKey::v4(0, address));
            } else if let Some(address) = addresses.take_v4(0, 0) {
                prop_assert!(!taken.contains(&address));
                taken.push(address);
            } else {
                prop_assert_eq!(taken.len(), 126);
            }
        }
        let used = addresses.usage().next().unwrap().2;
        prop_assert_eq!(used as usize, taken.len());
    }
}
