use super::*;

const SECOND: u64 = 1_000_000_000;

/// Returns the octets that pass a meter of a rate in kbit/s during a time, with packets of `octets`
/// every `gap` ns.
fn passed(price: MeterRate, word: &mut u64, octets: u32, gap: u64, from: u64, until: u64) -> u64 {
    let mut sum = 0;
    let mut now = from;
    while now < until {
        if let Some(new) = price.charge(*word, octets, now) {
            *word = new;
            sum += u64::from(octets);
        }
        now += gap;
    }
    sum
}

/// Returns the parameters that the rule compiler produces.
fn price(kilobits: u64, burst: u16) -> MeterRate {
    let exact = ((8 * 1_000_000 * u128::from(UNITS)) << 60) / u128::from(kilobits);
    let surplus = (128 - exact.leading_zeros()).saturating_sub(32);
    MeterRate { cost: (exact >> surplus) as u32, shift: (60 - surplus) as u8, burst }
}

#[test]
fn the_rate_holds_within_5_percent_over_10_seconds_and_the_burst_is_bounded() {
    let start = 1_000_000 * SECOND;
    for kilobits in [64, 1000, 10_000, 1_000_000, 100_000_000] {
        for octets in [64, 1400] {
            let price = price(kilobits, 100);
            let allowed = kilobits * 1000 / 8 * 10;
            // Three times the rate.
            let gap = (u64::from(octets) * 8 * 1_000_000 / kilobits / 3).max(1);
            let (packets, mut word) = (10 * SECOND / gap, 0);
            let seconds = if packets > 4_000_000 { 1 } else { 10 };
            let until = start + seconds * SECOND;
            let sum = passed(price, &mut word, octets, gap, start, until);
            let share = sum as f64 / (allowed / 10 * seconds) as f64;
            let most = 1.0 + 0.101 / seconds as f64 + 0.02;
            let most = most + f64::from(octets) / (allowed / 10 * seconds) as f64;
            assert!((0.95..most).contains(&share), "{kilobits} kbit/s, {octets}: {share}");
            // All at once: at most the burst and one packet pass.
            let mut word = 0;
            let at_once = (0..100_000)
                .take_while(|_| price.charge(word, octets, start).map(|new| word = new).is_some());
            let sum = at_once.count() as u64 * u64::from(octets);
            assert!(sum <= kilobits * 1000 / 8 / 10 + 2 * u64::from(octets), "{kilobits}: {sum}");
        }
    }
}

#[test]
fn a_faster_rate_is_not_kept_waiting_by_what_a_slower_one_put_off() {
    let (slow, fast) = (price(1, 100), price(1_000_000, 100));
    let now = 5 * SECOND;
    let word = slow.charge(0, 65_000, now).unwrap();
    assert!(word > (now + 500 * SECOND) * UNITS);
    assert!(slow.charge(word, 100, now + SECOND).is_none());
    let word = fast.charge(word, 1400, now + SECOND).unwrap();
    assert!(word < (now + SECOND + SECOND / 5) * UNITS);
}

#[test]
fn the_greatest_numbers_do_not_wrap() {
    let price = MeterRate { cost: u32::MAX, shift: 0, burst: u16::MAX };
    assert_eq!(price.charge(0, u32::MAX, u64::MAX), Some(u64::MAX));
    assert!(price.charge(u64::MAX, 1, 0).is_some(), "nothing waits for ever");
}
