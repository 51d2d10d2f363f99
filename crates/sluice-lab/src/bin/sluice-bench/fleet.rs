//! A synthetic cluster of any size: services of one port, each with one slice.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Kind, Protocol, Service, ServicePort, Slice, SlicePort,
};
use sluice_model::name::{Names, ObjectKey};
use sluice_model::settings::{DetectLocal, Settings};

/// The first cluster IP, in kubeadm's default range.
const SERVICES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The first endpoint: 100.64.0.0/10 has room for four million, and nobody routes it.
const PODS: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
/// Endpoints are spread over so many nodes; the proxy's own is the first.
const NODES: u32 = 100;
/// Most services and most endpoints that the address ranges hold.
const MOST: [u32; 2] = [1 << 18, 1 << 21];

/// So many services with so many endpoints each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    pub(crate) services: u32,
    pub(crate) endpoints: u32,
}

impl FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Size> {
        let (services, endpoints) = text
            .split_once('x')
            .context("a size is SERVICESxENDPOINTS, as 10000x10")?;
        let number = |text: &str| text.parse().with_context(|| format!("{text:?} in a size"));
        let (services, endpoints): (u32, u32) = (number(services)?, number(endpoints)?);
        let total = u64::from(services) * u64::from(endpoints);
        anyhow::ensure!(services > 0 && endpoints > 1, "{text}: at least 1x2");
        anyhow::ensure!(
            services <= MOST[0] && total <= u64::from(MOST[1]),
            "{text}: at most {} services and {} endpoints in all",
            MOST[0],
            MOST[1]
        );
        Ok(Size {
            services,
            endpoints,
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.services, self.endpoints)
    }
}

/// Makes the facts of a cluster, sharing names as a source does.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) size: Size,
    names: Names,
}

impl Fleet {
    pub(crate) fn new(size: Size) -> Fleet {
        Fleet {
            size,
            names: Names::default(),
        }
    }

    /// The proxy's configuration: the pods of all nodes are inside the cluster's range.
    pub(crate) fn settings() -> Settings {
        let pods = "100.64.0.0/10".parse().expect("a literal prefix");
        Settings {
            detect_local: DetectLocal::ClusterCidr(vec![pods]),
            ..Settings::for_node("node-0")
        }
    }

    /// What a source reports first: complete lists of everything.
    pub(crate) fn listing(&mut self) -> Vec<Fact> {
        let mut facts = vec![Fact::Begin(Kind::Services), Fact::Begin(Kind::Slices)];
        for number in 0..self.size.services {
            facts.extend(self.pair(number));
        }
        facts.extend(Fleet::end_of_listing());
        facts
    }

    /// What closes a listing.
    pub(crate) fn end_of_listing() -> [Fact; 2] {
        [Fact::Synced(Kind::Services), Fact::Synced(Kind::Slices)]
    }

    /// A service and its slice.
    pub(crate) fn pair(&mut self, number: u32) -> [Fact; 2] {
        let service = Fact::Service(
            self.service_key(number),
            Some(Box::new(self.service(number))),
        );
        [service, self.slice(number, 0, self.size.endpoints)]
    }

    /// Everything deleted.
    pub(crate) fn removal(&mut self) -> Vec<Fact> {
        let mut facts = Vec::with_capacity(2 * self.size.services as usize);
        for number in 0..self.size.services {
            facts.push(Fact::Service(self.service_key(number), None));
            facts.push(Fact::Slice(self.slice_key(number), None));
        }
        facts
    }

    /// A service's slice with `count` endpoints. The first one has been replaced `generation`
    /// times: somewhere in the sorted order, as pods come.
    pub(crate) fn slice(&mut self, number: u32, generation: u32, count: u32) -> Fact {
        let first = number * (self.size.endpoints + 1);
        let endpoints = (0..count).map(|index| Endpoint {
            ip: if index == 0 && generation > 0 {
                // The upper half of the range, where no first generation is.
                nth(PODS, (1 << 21) + (first + generation) % (1 << 20))
            } else {
                nth(PODS, first + index)
            },
            conditions: Conditions::new(None, None, None),
            node: Some(
                self.names
                    .intern(&format!("node-{}", (first + index) % NODES)),
            ),
            hints: None,
        });
        let endpoints = endpoints.collect();
        let slice = Slice {
            service: Some(self.names.intern(&format!("service-{number}"))),
            family: Some(Family::V4),
            ports: vec![SlicePort {
                name: Some(self.names.intern("http")),
                protocol: Protocol::Tcp,
                port: Some(8080),
            }],
            endpoints,
            ..Slice::default()
        };
        Fact::Slice(self.slice_key(number), Some(Box::new(slice)))
    }

    fn service(&mut self, number: u32) -> Service {
        Service {
            created: Some(i64::from(number)),
            families: vec![Family::V4],
            cluster_ips: vec![nth(SERVICES, number)],
            ports: vec![ServicePort {
                name: self.names.intern("http"),
                protocol: Protocol::Tcp,
                port: 80,
                node_port: 0,
            }],
            ..Service::default()
        }
    }

    fn service_key(&mut self, number: u32) -> ObjectKey {
        self.key(&format!("service-{number}"))
    }

    fn slice_key(&mut self, number: u32) -> ObjectKey {
        self.key(&format!("service-{number}-x7k2p"))
    }

    fn key(&mut self, name: &str) -> ObjectKey {
        ObjectKey {
            namespace: self.names.intern("default"),
            name: self.names.intern(name),
        }
    }
}

fn nth(first: Ipv4Addr, number: u32) -> IpAddr {
    Ipv4Addr::from_bits(first.to_bits() + number).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(fact: &Fact) -> Vec<String> {
        let Fact::Slice(_, Some(slice)) = fact else {
            panic!("{fact:?} is no slice");
        };
        slice.endpoints.iter().map(|e| e.ip.to_string()).collect()
    }

    #[test]
    fn a_swap_replaces_exactly_one_endpoint() {
        let mut fleet = Fleet::new("1000x3".parse().unwrap());
        assert_eq!(
            addresses(&fleet.slice(7, 0, 3)),
            ["100.64.0.29", "100.64.0.30", "100.64.0.31"]
        );
        assert_eq!(
            addresses(&fleet.slice(7, 2, 3)),
            ["100.96.0.31", "100.64.0.30", "100.64.0.31"]
        );
    }

    #[test]
    fn services_share_no_endpoint_even_after_growing_by_one() {
        let mut fleet = Fleet::new("1000x3".parse().unwrap());
        let grown = addresses(&fleet.slice(7, 0, 4));
        assert_eq!(grown[3], "100.64.0.32");
        assert_eq!(addresses(&fleet.slice(8, 0, 3))[0], "100.64.0.33");
    }

    #[test]
    fn sizes_that_do_not_fit_the_ranges_are_refused() {
        for text in ["10000", "0x10", "10x1", "300000x2", "100000x100"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
