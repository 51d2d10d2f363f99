//! Log lines as kube-proxy's users know them: klog text, or one JSON object a line.

use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// logging.format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `I1201 13:31:00.123456    4711 reactor.rs:42] message key=value`.
    Text,
    /// `{"ts":1764595860123.4,"caller":"reactor.rs:42","msg":"...","v":0}`.
    Json,
}

/// Starts logging to standard error. `verbosity` is klog's `-v`: 0 is the normal amount, 4 and
/// more shows each step.
pub fn init(format: Format, verbosity: u32) {
    let level = match verbosity {
        0..=1 => Level::INFO,
        2..=5 => Level::DEBUG,
        6.. => Level::TRACE,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .event_format(Lines {
            format,
            pid: std::process::id(),
        })
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging was set up before");
    }
}

struct Lines {
    format: Format,
    pid: u32,
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Vec<(&'static str, serde_json::Value)>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.rest.push((field.name(), text.into()));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.rest.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.rest.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.rest.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.rest.push((field.name(), value.into()));
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let file = meta
            .file()
            .and_then(|f| f.rsplit('/').next())
            .unwrap_or("unknown");
        let caller = format!("{file}:{}", meta.line().unwrap_or(0));
        let now = now();
        let line = match self.format {
            Format::Text => self.text(*meta.level(), now, &caller, &fields)?,
            Format::Json => json(*meta.level(), now, &caller, fields),
        };
        writeln!(out, "{line}")
    }
}

impl Lines {
    fn text(
        &self,
        level: Level,
        now: SystemTime,
        caller: &str,
        fields: &Fields,
    ) -> Result<String, fmt::Error> {
        let severity = match level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            Level::INFO | Level::DEBUG | Level::TRACE => 'I',
        };
        let t = Civil::of(now);
        let mut line = format!(
            "{severity}{:02}{:02} {:02}:{:02}:{:02}.{:06} {:7} {caller}] {}",
            t.month,
            t.day,
            t.hour,
            t.minute,
            t.second,
            t.nanos / 1000,
            self.pid,
            // A line break in a name or a kernel's text must not forge a log line.
            fields.message.replace('\n', "\\n")
        );
        for (key, value) in &fields.rest {
            write!(line, " {key}={value}")?;
        }
        Ok(line)
    }
}

fn json(level: Level, now: SystemTime, caller: &str, fields: Fields) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut object = serde_json::Map::new();
    object.insert("ts".into(), (since.as_micros() as f64 / 1000.0).into());
    object.insert("caller".into(), caller.into());
    object.insert("msg".into(), fields.message.into());
    match level {
        Level::ERROR | Level::WARN => {}
        Level::INFO => drop(object.insert("v".into(), 0.into())),
        Level::DEBUG => drop(object.insert("v".into(), 4.into())),
        Level::TRACE => drop(object.insert("v".into(), 6.into())),
    }
    object.extend(
        fields
            .rest
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value)),
    );
    serde_json::Value::from(object).to_string()
}

#[expect(clippy::disallowed_methods, reason = "log lines carry the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// UTC in RFC 3339 with nanoseconds, as Go prints times in JSON.
pub fn rfc3339(time: SystemTime) -> String {
    let t = Civil::of(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z",
        t.year, t.month, t.day, t.hour, t.minute, t.second, t.nanos
    )
}

struct Civil {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
}

impl Civil {
    /// Gregorian date of a time at or after 1970, by counting 400-year cycles from 1 March 0000.
    fn of(time: SystemTime) -> Civil {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs();
        let (days, rest) = ((seconds / 86_400) as i64, (seconds % 86_400) as u32);
        let days = days + 719_468;
        let (cycle, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        Civil {
            year: cycle * 400 + year + i64::from(month >= 10),
            month: if month < 10 { month + 3 } else { month - 9 } as u32,
            day: (day - (153 * month + 2) / 5 + 1) as u32,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            nanos: since.subsec_nanos(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_gregorian() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::new(seconds, 7));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.000000007Z");
        assert_eq!(at(1_764_595_860), "2025-12-01T13:31:00.000000007Z");
    }
}
