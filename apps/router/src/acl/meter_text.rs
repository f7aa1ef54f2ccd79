//! Text form of a meter: rates as of tc(8), bursts in octets.

use fastlane::table::{MAX_BURST, MeterProfile};

/// Units of rates, in bits per second; the largest first.
const UNITS: [(&str, u64); 4] =
    [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// Parses the meter of a rule: its profile, 1 if it is colour-aware, and the words that follow.
///
/// # Errors
/// What is wrong, and what is right.
pub(super) fn read_meter<'w>(
    words: &'w [&'w str],
) -> Result<(MeterProfile, u8, &'w [&'w str]), String> {
    const FORM: &str = "a meter is a rate and a burst in octets, as in `police 10mbit 32000`";
    let [committed_rate, committed, rest @ ..] = words else { return Err(FORM.to_owned()) };
    let first = [rate(committed_rate)?, burst(committed)?];
    let (profile, rest) = match rest {
        ["excess", excess, rest @ ..] => {
            (MeterProfile::single_rate(first[0], first[1], burst(excess)?), rest)
        }
        ["peak", peak_rate, peak, rest @ ..] => {
            (MeterProfile::two_rate(first, [rate(peak_rate)?, burst(peak)?]), rest)
        }
        _ => (MeterProfile::single_rate(first[0], first[1], 0), rest),
    };
    let profile = profile.ok_or(
        "no such meter: bursts are not 0, and the peak rate is not below the committed one",
    )?;
    match rest {
        ["aware", rest @ ..] => Ok((profile, 1, rest)),
        _ => Ok((profile, 0, rest)),
    }
}

/// Formats a meter so that [`read_meter`] parses it.
pub(super) fn write_meter(profile: &MeterProfile, is_aware: bool) -> String {
    let [[committed_rate, committed], [peak_rate, second]] =
        [profile.committed(), profile.second()];
    let second = match (profile.has_two_rates(), second) {
        (true, _) => format!(" peak {} {second}", write_rate(peak_rate)),
        (false, 0) => String::new(),
        (false, _) => format!(" excess {second}"),
    };
    let aware = if is_aware { " aware" } else { "" };
    format!("{} {committed}{second}{aware}", write_rate(committed_rate))
}

/// Parses a rate; returns octets per second.
fn rate(word: &str) -> Result<u64, String> {
    let unit = UNITS.iter().find_map(|(name, bits)| Some((word.strip_suffix(name)?, *bits)));
    let bits = unit.and_then(|(number, bits)| number.parse::<u64>().ok()?.checked_mul(bits));
    bits.map(|bits| bits / 8).filter(|octets| *octets > 0).ok_or_else(|| {
        format!("`{word}` is no rate of a byte a second or more; write 500kbit, 10mbit or 1gbit")
    })
}

fn burst(word: &str) -> Result<u64, String> {
    word.parse().ok().filter(|octets| *octets <= MAX_BURST).ok_or_else(|| {
        format!("`{word}` is no burst; write its octets, at most {MAX_BURST}, as in 32000")
    })
}

fn write_rate(octets: u64) -> String {
    let bits = octets.saturating_mul(8);
    let unit = UNITS.iter().find(|(_, unit)| bits.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(&("bit", 1));
    format!("{}{name}", bits / unit)
}
