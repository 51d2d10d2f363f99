//! Time stamps of the API (RFC 3339) as Unix time.

/// Reads `2026-01-31T10:20:30.5Z` or with an offset, as Unix nanoseconds. `None` where it is no
/// such time or lies outside the years 1678 to 2261, which 64 bits of nanoseconds can hold.
pub fn parse_rfc3339_nanos(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !valid_day(year, month, day) {
        return None;
    }
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let seconds = clock_seconds(clock)?;
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: i64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    (days_since_epoch(year, month, day) * 86_400 + seconds - offset_seconds(zone)?)
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

/// The same in whole Unix seconds.
pub fn parse_rfc3339_seconds(text: &str) -> Option<i64> {
    parse_rfc3339_nanos(text).map(|nanos| nanos.div_euclid(1_000_000_000))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let good = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    good.then(|| text.parse().ok()).flatten()
}

fn valid_day(year: i64, month: i64, day: i64) -> bool {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    (1..=last).contains(&day)
}

fn clock_seconds(clock: &str) -> Option<i64> {
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = digits(parts.next()?, 2)?;
    let good = parts.next().is_none() && hour < 24 && minute < 60 && second <= 60;
    good.then_some(hour * 3600 + minute * 60 + second)
}

fn offset_seconds(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    Some(sign * (digits(hours, 2)? * 3600 + digits(minutes, 2)? * 60))
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar, by counting 400-year eras that begin
/// on 1 March, so that the leap day is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_api_become_unix_time() {
        assert_eq!(parse_rfc3339_seconds("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(
            parse_rfc3339_seconds("2024-02-29T12:30:00Z"),
            Some(1_709_209_800)
        );
        assert_eq!(
            parse_rfc3339_seconds("2024-02-29T14:30:00+02:00"),
            Some(1_709_209_800)
        );
        assert_eq!(
            parse_rfc3339_nanos("2024-02-29T12:30:00.25Z"),
            Some(1_709_209_800_250_000_000)
        );
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "yesterday",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "9999-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_rfc3339_nanos(text), None, "{text}");
        }
    }
}
