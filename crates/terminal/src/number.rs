//! Parsing of intervals and formatting of numbers.

use std::time::Duration;

/// Parses an interval such as `1s`, `500ms`, `2.5s` or `1m`, from 100 ms to one hour.
///
/// # Errors
/// The reason why it is none.
pub fn interval(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let amount = text[..text.len() - unit.len()].parse::<f64>();
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("write a number and `ms`, `s` or `m`, such as `500ms`".to_owned()),
    };
    let seconds = amount.map_err(|_| "there is no number before the unit".to_owned())? * factor;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("at least 100ms and at most 1h".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Formats three digits with a decimal prefix: `0`, `12.3`, `456 k`, `7.89 M`.
#[must_use]
pub fn short(value: f64) -> String {
    const PREFIXES: [&str; 5] = ["", " k", " M", " G", " T"];
    let mut scaled = value;
    let mut prefix = 0;
    // 999.5 would be rounded to 1000.
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let decimals = match scaled {
        0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.decimals$}");
    // Rates are often whole numbers: print `7`, not `7.00`.
    let whole = match prefix {
        0 => text.strip_suffix(".00").or_else(|| text.strip_suffix(".0")),
        _ => None,
    };
    format!("{}{}", whole.unwrap_or(&text), PREFIXES[prefix])
}

/// Formats a share as a percentage; a non-zero share is never shown as 0 %.
#[must_use]
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent > 0.0 && percent < 0.1 => "<0.1 %".to_owned(),
        percent if percent > 0.0 && percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read() {
        for (text, milliseconds) in [("1s", 1000), ("500ms", 500), ("2.5s", 2500), ("1m", 60_000)] {
            assert_eq!(interval(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "1", "s", "-1s", "99ms", "2h", "1.2.3s", "1 s", "infs", "1e9s"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.50"),
            (9.996, "10"),
            (12.34, "12.3"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1.00 k"),
            (123_456.0, "123 k"),
            (7_894_000.0, "7.89 M"),
            (999_600_000.0, "1.00 G"),
            (5e15, "5000 T"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn a_small_share_is_not_none() {
        let texts = [0.0, 0.000_01, 0.034, 0.25, 1.0].map(percent);
        assert_eq!(texts, ["0 %", "<0.1 %", "3.4 %", "25 %", "100 %"]);
    }
}
