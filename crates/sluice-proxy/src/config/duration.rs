//! Durations as Go spells them: `1h30m`, `250ms`, `0s`.

use std::time::Duration;

const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A span of time that may be negative, in nanoseconds: what a configuration can spell. That it
/// must not be negative is a matter of validation, which names the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);

impl Span {
    /// Whole seconds.
    pub const fn seconds(seconds: i64) -> Span {
        Span(seconds * 1_000_000_000)
    }

    /// The same as a duration; negative becomes zero.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads Go's spelling: an optional sign, then numbers with units, or a bare `0`. `None` where
    /// it is none or does not fit 64 bits of nanoseconds.
    pub fn parse(text: &str) -> Option<Span> {
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Some(Span(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, tail) = rest.split_at(number);
            let unit = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit);
            let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
            total = total.checked_add(scaled(number, *scale)?)?;
            rest = tail;
        }
        i64::try_from(sign * total).ok().map(Span)
    }
}

fn scaled(number: &str, scale: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 19 {
        return None;
    }
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let fraction = fraction.get(..fraction.len().min(15))?;
    let parts: i128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let ten = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    whole.checked_mul(scale)?.checked_add(parts * scale / ten)
}

impl std::fmt::Display for Span {
    /// As Go prints it: `1h0m0s`, `1.5s`, `250ms`, `0s`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = i128::from(self.0);
        if nanos < 0 {
            f.write_str("-")?;
        }
        let nanos = nanos.abs();
        if nanos < 1_000_000_000 {
            let (scale, unit) = match nanos {
                0 => return f.write_str("0s"),
                1..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "\u{b5}s"),
                _ => (1_000_000, "ms"),
            };
            return write!(f, "{}{unit}", decimal(nanos, scale));
        }
        let (hours, minutes) = (nanos / UNITS[7].1, nanos / UNITS[6].1 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write!(f, "{}s", decimal(nanos % UNITS[6].1, UNITS[5].1))
    }
}

fn decimal(value: i128, scale: i128) -> String {
    let width = scale.to_string().len() - 1;
    let text = format!("{}.{:0width$}", value / scale, value % scale);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_go_are_read_and_printed_its_way() {
        let table = [
            ("0", "0s"),
            ("0s", "0s"),
            ("30s", "30s"),
            ("15m", "15m0s"),
            ("24h", "24h0m0s"),
            ("1h15m30.918s", "1h15m30.918s"),
            ("250ms", "250ms"),
            ("1.5h", "1h30m0s"),
            (".5s", "500ms"),
            ("1us", "1\u{b5}s"),
            ("-10s", "-10s"),
        ];
        for (text, printed) in table {
            let span = Span::parse(text).expect(text);
            assert_eq!(span.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "-",
            "5",
            "s",
            "5 s",
            "5d",
            "1.2.3s",
            ".s",
            "99999999999h",
        ] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
