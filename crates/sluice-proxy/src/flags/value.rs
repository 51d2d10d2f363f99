//! Values of flags: text to what it means, or what it must be.

use std::collections::BTreeMap;

use crate::config::Span;

/// Go's spellings of a boolean.
pub(super) fn boolean(value: &str) -> Result<bool, &'static str> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false"),
    }
}

/// A whole number of 32 bits.
pub(super) fn int(value: &str) -> Result<i64, &'static str> {
    let number: Result<i32, _> = value.parse();
    number
        .map(i64::from)
        .map_err(|_| "must be a whole number of 32 bits")
}

/// A duration in Go's spelling.
pub(super) fn span(value: &str) -> Result<Span, &'static str> {
    Span::parse(value).ok_or("must be a duration such as 30s, 5m or 1h30m")
}

/// Parts between commas, empty ones left out.
pub(super) fn list(value: &str) -> Vec<String> {
    value
        .split(',')
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `GateA=true,GateB=false`.
pub(super) fn gates(value: &str) -> Result<BTreeMap<String, bool>, &'static str> {
    let why = "must be a list such as GateA=true,GateB=false";
    let parts = list(value).into_iter();
    parts
        .map(|part| {
            let (name, on) = part.split_once('=').ok_or(why)?;
            Ok((name.trim().to_owned(), boolean(on.trim())?))
        })
        .collect()
}

/// `pattern=level,pattern=level`.
pub(super) fn vmodule(value: &str) -> Result<Vec<(String, i64)>, &'static str> {
    let why = "must be a list such as proxier=4,endpoints*=2";
    let parts = list(value).into_iter();
    parts
        .map(|part| {
            let (pattern, level) = part.split_once('=').ok_or(why)?;
            Ok((
                pattern.to_owned(),
                level.parse::<u32>().map_err(|_| why)?.into(),
            ))
        })
        .collect()
}

/// A port, 0 included.
pub(super) fn port(value: &str) -> Result<u16, &'static str> {
    value.parse().map_err(|_| "must be a port from 0 to 65535")
}
