//! The words after `kube-proxy demo`.

use std::ffi::OsString;

use anyhow::Context as _;

use super::DemoOptions;
use crate::config::Mode;

/// What the words may be.
pub(super) const USAGE: &str = "\
Shows the proxy at work: a node, its pods and its clients in network namespaces of this process.
Needs neither a cluster nor root, and leaves nothing behind.

Usage: kube-proxy demo [--mode MODE] [--services N]

  --mode MODE     how services are carried out; nftables is the default
  --services N    add N services of three endpoints each, and say how long they take to load
  --help          this text";

const MODES: [Mode; 4] = [Mode::Nftables, Mode::Iptables, Mode::Ipvs, Mode::Userspace];

/// `None` where help was asked for. A value follows its flag as the next word or after `=`.
pub(super) fn parse(words: impl Iterator<Item = OsString>) -> anyhow::Result<Option<DemoOptions>> {
    let mut options = DemoOptions {
        mode: Mode::Nftables,
        services: None,
    };
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = words.next() {
        let (flag, mut value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || {
            let value = value.take().or_else(|| words.next());
            value.with_context(|| format!("{flag} needs a value"))
        };
        match flag {
            "--help" | "-h" => return Ok(None),
            "--mode" | "--proxy-mode" => options.mode = mode(&value()?)?,
            "--services" => {
                let text = value()?;
                let number = text.parse().with_context(|| {
                    format!("--services {text:?}: give a whole number, as --services 10000")
                })?;
                options.services = Some(number);
            }
            _ => anyhow::bail!("unknown argument {word:?}\n\n{USAGE}"),
        }
    }
    Ok(Some(options))
}

fn mode(text: &str) -> anyhow::Result<Mode> {
    let found = MODES.into_iter().find(|mode| mode.to_string() == text);
    found.with_context(|| {
        format!("--mode {text:?}: give one of nftables, iptables, ipvs and userspace")
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::parse;
    use crate::config::Mode;

    fn words(text: &str) -> impl Iterator<Item = OsString> {
        text.split_whitespace().map(OsString::from)
    }

    #[test]
    fn values_follow_as_a_word_or_after_an_equals_sign() {
        let options = parse(words("--services 10 --mode=ipvs")).unwrap().unwrap();
        assert_eq!((options.services, options.mode), (Some(10), Mode::Ipvs));
        let options = parse(words("")).unwrap().unwrap();
        assert_eq!((options.services, options.mode), (None, Mode::Nftables));
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text| parse(words(text)).unwrap_err().to_string();
        assert_eq!(error("--services"), "--services needs a value");
        assert_eq!(
            error("--services many"),
            "--services \"many\": give a whole number, as --services 10000"
        );
        assert_eq!(
            error("--mode fast"),
            "--mode \"fast\": give one of nftables, iptables, ipvs and userspace"
        );
        assert!(error("--loud").starts_with("unknown argument \"--loud\"\n\nShows the proxy"));
    }

    #[test]
    fn help_is_no_demonstration() {
        assert!(parse(words("--services 3 --help")).unwrap().is_none());
    }
}
