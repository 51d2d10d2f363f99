//! What a scenario expects against what a backend saw.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::backend::{Aim, Answers, Seen};
use crate::scenario::{Expect, Served, Source, Spread};

/// How many tries an expectation needs, and what for. With 20 for each of n endpoints, one that
/// is picked fairly stays unseen once in e^20 series; with 60 for each, a third of the fair share
/// is more than four standard deviations away.
pub fn tries(expect: &Expect) -> (u32, Aim) {
    let served = match expect {
        Expect::Refused | Expect::Dropped | Expect::Untouched => return (2, Aim::Reach),
        Expect::Served(served) => served,
    };
    let endpoints = u32::try_from(served.endpoints.len()).unwrap_or(u32::MAX);
    let each = match (served.spread, endpoints) {
        (Some(Spread::Even), _) => 60,
        (None, 1) => 2,
        (None, _) => 20,
    };
    let aim = if served.sticky {
        Aim::Stick
    } else {
        Aim::Reach
    };
    (endpoints.saturating_mul(each), aim)
}

/// Whether a backend saw what is expected. `node` holds the node's own addresses.
pub fn as_expected(expect: &Expect, seen: &Seen, client: IpAddr, node: &[IpAddr]) -> bool {
    match (expect, seen) {
        (Expect::Refused, Seen::Refused)
        | (Expect::Dropped, Seen::Dropped)
        | (Expect::Untouched, Seen::Untouched) => true,
        (Expect::Served(served), Seen::Served(answers)) => {
            let peer = |at: &SocketAddr, seen: IpAddr| match served
                .except
                .get(at)
                .copied()
                .unwrap_or(served.source)
            {
                Source::Kept => seen == client,
                Source::Node => node.contains(&seen),
                Source::Address(address) => seen == address,
            };
            let known = |(at, answers): (&SocketAddr, &Answers)| {
                served.endpoints.contains(at) && answers.peers.iter().all(|ip| peer(at, *ip))
            };
            reached(served, answers) && answers.iter().all(known)
        }
        (Expect::Refused | Expect::Dropped | Expect::Untouched | Expect::Served(_), _) => false,
    }
}

/// Whether as many endpoints answered as often as they should.
fn reached(served: &Served, answers: &BTreeMap<SocketAddr, Answers>) -> bool {
    if served.sticky {
        return answers.len() == 1;
    }
    let tries: u32 = answers.values().map(|a| a.count).sum();
    let least = match (served.spread, u32::try_from(served.endpoints.len())) {
        (Some(Spread::Even), Ok(endpoints)) => tries / endpoints / 3,
        (Some(Spread::Even), Err(_)) | (None, _) => 1,
    };
    let count = |at| answers.get(at).map_or(0, |a| a.count);
    served.endpoints.iter().all(|at| count(at) >= least)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Kept => f.write_str("the client"),
            Source::Node => f.write_str("the node"),
            Source::Address(ip) => write!(f, "{ip}"),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = match self {
            Expect::Refused => return f.write_str("refused"),
            Expect::Dropped => return f.write_str("dropped"),
            Expect::Untouched => return f.write_str("untouched"),
            Expect::Served(served) => served,
        };
        f.write_str(match (served.sticky, served.spread) {
            (true, _) => "always the same of ",
            (false, Some(Spread::Even)) => "evenly ",
            (false, None) => "",
        })?;
        for (index, at) in served.endpoints.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let source = served.except.get(at).unwrap_or(&served.source);
            write!(f, "{comma}{at} from {source}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = "198.51.100.10";
    const NODE: &str = "192.0.2.11";
    const ONE: &str = "198.51.100.21:8080";
    const TWO: &str = "198.51.100.22:8080";

    fn expect(spread: Option<Spread>, sticky: bool) -> Expect {
        Expect::Served(Served {
            endpoints: [ONE, TWO].map(|at| at.parse().unwrap()).to_vec(),
            source: Source::Kept,
            except: BTreeMap::from([(TWO.parse().unwrap(), Source::Node)]),
            spread,
            sticky,
        })
    }

    fn answers(list: &[(&str, u32, &str)]) -> Seen {
        let answer = |&(at, count, peer): &(&str, u32, &str)| {
            let peers = [peer.parse().unwrap()].into();
            (at.parse().unwrap(), Answers { count, peers })
        };
        Seen::Served(list.iter().map(answer).collect())
    }

    fn fits(expect: &Expect, seen: &Seen) -> bool {
        as_expected(
            expect,
            seen,
            CLIENT.parse().unwrap(),
            &[NODE.parse().unwrap()],
        )
    }

    #[test]
    fn every_endpoint_must_answer_and_no_other() {
        let expect = expect(None, false);
        assert!(fits(&expect, &answers(&[(ONE, 9, CLIENT), (TWO, 1, NODE)])));
        assert!(!fits(&expect, &answers(&[(ONE, 10, CLIENT)])));
        let third = ("198.51.100.23:8080", 1, CLIENT);
        assert!(!fits(
            &expect,
            &answers(&[(ONE, 9, CLIENT), (TWO, 1, NODE), third])
        ));
        assert!(!fits(&expect, &Seen::Refused));
    }

    #[test]
    fn every_endpoint_must_see_the_expected_peer() {
        let expect = expect(None, false);
        assert!(!fits(&expect, &answers(&[(ONE, 9, NODE), (TWO, 1, NODE)])));
        assert!(!fits(
            &expect,
            &answers(&[(ONE, 9, CLIENT), (TWO, 1, CLIENT)])
        ));
    }

    #[test]
    fn an_even_spread_gives_each_a_third_of_its_share() {
        let expect = expect(Some(Spread::Even), false);
        assert!(fits(
            &expect,
            &answers(&[(ONE, 100, CLIENT), (TWO, 20, NODE)])
        ));
        assert!(!fits(
            &expect,
            &answers(&[(ONE, 101, CLIENT), (TWO, 19, NODE)])
        ));
        assert_eq!(tries(&expect), (120, Aim::Reach));
    }

    #[test]
    fn sticky_means_one_endpoint() {
        let expect = expect(None, true);
        assert!(fits(&expect, &answers(&[(TWO, 40, NODE)])));
        assert!(!fits(
            &expect,
            &answers(&[(ONE, 39, CLIENT), (TWO, 1, NODE)])
        ));
    }

    #[test]
    fn refused_dropped_and_untouched_are_three_things() {
        let expects = [Expect::Refused, Expect::Dropped, Expect::Untouched];
        let sights = [Seen::Refused, Seen::Dropped, Seen::Untouched];
        for (row, expect) in expects.iter().enumerate() {
            for (column, seen) in sights.iter().enumerate() {
                assert_eq!(fits(expect, seen), row == column, "{expect} {seen}");
            }
        }
    }
}
