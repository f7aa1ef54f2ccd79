//! Meters do what RFC 2697 and RFC 2698 say, token by token, and what rte_meter of DPDK does.

use fastlane_table::{Colour, EntryId, MAX_BURST, MeterProfile, MeterState, Spec, State};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// Meter as the RFCs define it: tokens are added one by one.
#[derive(Debug)]
struct Definition {
    two_rates: bool,
    /// Time between two tokens of each bucket, in nanoseconds.
    periods: [u64; 2],
    bursts: [u64; 2],
    tokens: [u64; 2],
    time: u64,
}

impl Definition {
    fn meter(&mut self, now: u64, octets: u64, colour: Colour) -> Colour {
        while self.time < now {
            self.time += 1;
            let [committed, peak] = self.periods.map(|period| self.time.is_multiple_of(period));
            if self.two_rates {
                // RFC 2698: "Tc is incremented by one CIR times per second up to CBS", likewise Tp.
                self.tokens[0] += u64::from(committed && self.tokens[0] < self.bursts[0]);
                self.tokens[1] += u64::from(peak && self.tokens[1] < self.bursts[1]);
            } else if committed {
                // RFC 2697: "If Tc is less than CBS, Tc is incremented by one, else if Te is less
                // than EBS, Te is incremented by one, else neither".
                match self.tokens {
                    [tc, _] if tc < self.bursts[0] => self.tokens[0] += 1,
                    [_, te] if te < self.bursts[1] => self.tokens[1] += 1,
                    _ => {}
                }
            }
        }
        let [first, second] = self.tokens.map(|tokens| tokens >= octets);
        let (colour, taken) = if self.two_rates {
            match (colour, first, second) {
                (Colour::Red, ..) | (_, _, false) => (Colour::Red, [0, 0]),
                (Colour::Yellow, ..) | (_, false, _) => (Colour::Yellow, [0, octets]),
                _ => (Colour::Green, [octets, octets]),
            }
        } else {
            match (colour, first, second) {
                (Colour::Green, true, _) => (Colour::Green, [octets, 0]),
                (Colour::Green | Colour::Yellow, _, true) => (Colour::Yellow, [0, octets]),
                _ => (Colour::Red, [0, 0]),
            }
        };
        self.tokens.iter_mut().zip(taken).for_each(|(tokens, taken)| *tokens -= taken);
        colour
    }
}

/// Tokens of a bucket as fractions of a billionth, for any rate: RFC 2697 and 2698 with a clock of
/// nanoseconds.
#[derive(Debug)]
struct Exact {
    two_rates: bool,
    rates: [u64; 2],
    bursts: [u128; 2],
    tokens: [u128; 2],
    time: u64,
}

impl Exact {
    fn meter(&mut self, now: u64, octets: u64, colour: Colour) -> Colour {
        let added = self.rates.map(|rate| u128::from(rate) * u128::from(now - self.time));
        self.time = now;
        let [tc, te] = &mut self.tokens;
        if self.two_rates {
            *tc = (*tc + added[0]).min(self.bursts[0]);
            *te = (*te + added[1]).min(self.bursts[1]);
        } else {
            let beyond = (*tc + added[0]).saturating_sub(self.bursts[0]);
            *tc = (*tc + added[0]).min(self.bursts[0]);
            *te = (*te + beyond).min(self.bursts[1]);
        }
        let octets = u128::from(octets) * u128::from(SECOND);
        let (green, yellow) = (*tc >= octets, *te >= octets);
        match colour {
            Colour::Red => Colour::Red,
            _ if self.two_rates && !yellow => Colour::Red,
            Colour::Green if green => {
                *tc -= octets;
                *te -= if self.two_rates { octets } else { 0 };
                Colour::Green
            }
            _ if yellow => {
                *te -= octets;
                Colour::Yellow
            }
            _ => Colour::Red,
        }
    }
}

fn profile(two_rates: bool, rates: [u64; 2], bursts: [u64; 2]) -> MeterProfile {
    let profile = if two_rates {
        MeterProfile::two_rate([rates[0], bursts[0]], [rates[1], bursts[1]])
    } else {
        MeterProfile::single_rate(rates[0], bursts[0], bursts[1])
    };
    profile.unwrap()
}

fn colour(number: u8) -> Colour {
    [Colour::Green, Colour::Yellow, Colour::Red][usize::from(number % 3)]
}

proptest! {
    #[test]
    fn tokens_are_those_of_the_rfcs(
        [two_rates, aware] in any::<[bool; 2]>(),
        // Divisors of a second: a rate is then a whole number of octets per second.
        periods in [0_usize..5, 0_usize..5],
        bursts in [1_u64..60, 1_u64..60],
        packets in proptest::collection::vec((0_u64..30, 1_u64..40, any::<u8>()), 1..100),
    ) {
        let mut periods = periods.map(|pick| [1_u64, 2, 4, 5, 8][pick]);
        periods[1] = periods[1].min(periods[0]); // PIR is not below CIR
        let mut definition = Definition { two_rates, periods, bursts, tokens: bursts, time: 0 };
        let profile = profile(two_rates, periods.map(|period| SECOND / period), bursts);
        let (mut state, mut now) = (MeterState::default(), 0);
        for (after, octets, before) in packets {
            // Between two tokens ours has a part of one, which the RFCs do not have. Multiples of
            // both periods have none.
            now += 40 * (after / 10) + 40;
            let before = if aware { colour(before) } else { Colour::Green };
            let expected = definition.meter(now, octets, before);
            prop_assert_eq!(profile.meter(&mut state, now, octets, before), expected);
        }
    }

    #[test]
    fn no_error_accumulates_at_any_rate(
        two_rates in any::<bool>(),
        rates in [0_u64..1 << 40, 0_u64..1 << 40],
        bursts in [1..=MAX_BURST, 1..=MAX_BURST],
        small in any::<bool>(),
        packets in proptest::collection::vec((0_u64..1 << 34, 0_u64..1 << 16, any::<u8>()), 1..200),
    ) {
        let rates = if small { rates.map(|rate| rate >> 24) } else { rates };
        let rates = [rates[0].min(rates[1]), rates[0].max(rates[1])];
        let bursts = if small { bursts.map(|burst| 1 + burst % 5000) } else { bursts };
        let whole = bursts.map(|burst| u128::from(burst) * u128::from(SECOND));
        let mut exact = Exact { two_rates, rates, bursts: whole, tokens: whole, time: 0 };
        let profile = profile(two_rates, rates, bursts);
        let memory = Spec::state::<4>("meters", 2, 1).create().unwrap();
        let lane = State::<4>::attach(&memory).unwrap().lane(0);
        let mut now = 0;
        for (after, octets, before) in packets {
            now += after >> (before % 34);
            let words = lane.at(EntryId(1));
            let mut state = MeterState::load(words, 1);
            let found = profile.meter(&mut state, now, octets, colour(before));
            state.store(words, 1);
            prop_assert_eq!(found, exact.meter(now, octets, colour(before)));
            prop_assert!(found >= colour(before), "a packet got better");
        }
    }
}

#[test]
fn rte_meter_says_the_same() {
    let vectors = include_str!("rte_meter/vectors.txt");
    let mut meter = None;
    let (mut packets, mut colours) = (0, [0; 3]);
    for line in vectors.lines() {
        if let Some(words) = line.strip_prefix("meter ") {
            let numbers: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
            let &[kind, committed_rate, committed, peak_rate, burst] = &numbers[..] else {
                panic!()
            };
            let rates = [committed_rate, peak_rate];
            let profile = profile(kind == 2, rates, [committed, burst]);
            meter = Some((profile, MeterState::default()));
            continue;
        }
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let &[time, octets, before, after] = &numbers[..] else { panic!("{line}") };
        let (profile, state) = meter.as_mut().unwrap();
        let found = profile.meter(state, time, octets, colour(before as u8));
        assert_eq!(found, colour(after as u8), "{profile:?}: {line}");
        packets += 1;
        colours[after as usize] += 1;
    }
    assert_eq!(packets, 2400);
    assert!(colours.iter().all(|count| *count > 300), "{colours:?}");
}

#[test]
fn what_no_meter_can_be_is_refused() {
    assert_eq!(MeterProfile::single_rate(1, 0, 0), None);
    assert_eq!(MeterProfile::single_rate(1, MAX_BURST + 1, 0), None);
    assert!(MeterProfile::single_rate(1, 0, MAX_BURST).is_some());
    assert_eq!(MeterProfile::two_rate([1, 0], [1, 1]), None);
    assert_eq!(MeterProfile::two_rate([2, 1], [1, 1]), None);
    assert_eq!(MeterProfile::two_rate([1, 1], [1, MAX_BURST + 1]), None);
    // Time that goes back adds nothing, and a table's zeros let nothing pass.
    let profile = MeterProfile::single_rate(SECOND, 10, 0).unwrap();
    let mut state = MeterState::default();
    assert_eq!(profile.meter(&mut state, 100, 10, Colour::Green), Colour::Green);
    assert_eq!(profile.meter(&mut state, 50, 1, Colour::Green), Colour::Red);
    assert_eq!(profile.meter(&mut state, 110, 10, Colour::Green), Colour::Green);
    let nothing = MeterProfile::default();
    assert_eq!(nothing.meter(&mut MeterState::default(), 1, 1, Colour::Green), Colour::Red);
}
