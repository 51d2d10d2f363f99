//! One route -> its elements. Pure data: no names of the kernel's, no bytes.

use sluice_model::fact::Protocol;
use sluice_model::route::{
    At, Backend, Frontend, Masquerade, Path, PoolChoice, Refusal, Route, Scope,
};

use super::element::{ChainId, Class, Entry, Key, LOCAL_SLOTS, SetId, Value};

/// An element with the set it belongs to.
pub type Element = ((SetId, Key), Value);

/// A route's endpoints in kernel slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// The cluster pool, slot 0 first.
    pub cluster: Box<[Backend]>,
    /// The local pool, slot [`LOCAL_SLOTS`] first.
    pub local: Box<[Backend]>,
}

impl Slots {
    fn of(&self, pool: PoolChoice) -> (&[Backend], u32) {
        match pool {
            PoolChoice::Cluster => (&self.cluster, 0),
            PoolChoice::Local => (&self.local, LOCAL_SLOTS),
        }
    }
}

/// What a route needs in the kernel.
#[derive(Debug, Default)]
pub struct Compiled {
    /// Elements that are this route's alone.
    pub elements: Vec<Element>,
    /// Members of sets that other routes may need too.
    pub shared: Vec<(SetId, Key)>,
    /// Class chains, successors included.
    pub chains: Vec<ChainId>,
    /// Affinity time-out.
    pub timeout: Option<u32>,
}

/// Everything a route needs in the kernel, given its slots.
pub fn compile(route: &Route, slots: &Slots) -> Compiled {
    let mut out = Compiled {
        timeout: route.affinity,
        ..Compiled::default()
    };
    for frontend in &route.frontends {
        let mut place = Place {
            route,
            at: frontend.at,
            out: &mut out,
        };
        place.frontend(frontend, slots);
    }
    for backend in slots.cluster.iter().chain(&slots.local).filter(|b| b.local) {
        let hairpin = (SetId::Hairpin, Key::Hairpin(backend.ip));
        if !out.shared.contains(&hairpin) {
            out.shared.push(hairpin);
        }
    }
    out
}

struct Place<'a> {
    route: &'a Route,
    at: At,
    out: &'a mut Compiled,
}

impl Place<'_> {
    fn frontend(&mut self, frontend: &Frontend, slots: &Slots) {
        match frontend.path {
            Path::Uniform(pool, masquerade) => {
                let class = match masquerade {
                    Masquerade::Never => Class::Plain,
                    Masquerade::NotPods => Class::NotPods,
                    Masquerade::Always => Class::Masquerade,
                };
                // A uniform frontend has one pool; it sits at slot 0 whichever it is.
                self.pick(Lookup::First, class, slots.of(pool).0, 0);
            }
            Path::Split => {
                self.pick(Lookup::First, Class::Split, &slots.cluster, 0);
                self.pick(Lookup::Local, Class::Local, &slots.local, LOCAL_SLOTS);
            }
        }
        self.guards(frontend);
    }

    fn pick(&mut self, lookup: Lookup, class: Class, backends: &[Backend], first: u32) {
        if backends.is_empty() {
            return;
        }
        let proto = self.proto();
        let entry = match self.at {
            At::Vip(..) => Entry::Vip,
            At::NodePort(_) => Entry::NodePort,
        };
        let sticky = self.route.affinity.unwrap_or(0);
        let chain = ChainId {
            entry,
            class,
            slots: backends.len() as u32,
            sticky,
        };
        self.out.chains.extend(chain.successor());
        self.out.chains.push(chain);
        let set = match (lookup, entry) {
            (Lookup::First, Entry::Vip) => SetId::ServiceIps,
            (Lookup::First, Entry::NodePort) => SetId::ServiceNodePorts,
            (Lookup::Local, Entry::Vip) => SetId::LocalIps,
            (Lookup::Local, Entry::NodePort) => SetId::LocalNodePorts,
        };
        self.push(set, self.key(), Value::Goto(chain));
        for (slot, backend) in (first..).zip(backends) {
            let (set, key) = match self.at {
                At::Vip(ip, port) => (SetId::Endpoints, Key::VipSlot(ip, proto, port, slot)),
                At::NodePort(port) => (
                    SetId::NodePortEndpoints,
                    Key::NodePortSlot(proto, port, slot),
                ),
            };
            self.push(set, key, Value::Endpoint(backend.ip, backend.port));
        }
    }

    fn guards(&mut self, frontend: &Frontend) {
        let proto = self.proto();
        if let (Some(nets), At::Vip(ip, port)) = (&frontend.allow, self.at) {
            self.push(SetId::FirewallIps, self.key(), Value::Member);
            for net in nets {
                self.push(
                    SetId::FirewallAllow,
                    Key::Allow(ip, proto, port, *net),
                    Value::Member,
                );
            }
        }
        if let (Scope::Cluster, At::Vip(ip, _)) = (frontend.scope, self.at) {
            self.out.shared.push((SetId::ClusterIps, Key::Ip(ip)));
        }
        if let Some(refusal) = frontend.refusal {
            let set = match self.at {
                At::Vip(..) => SetId::NoEndpointServices,
                At::NodePort(_) => SetId::NoEndpointNodePorts,
            };
            let value = match refusal {
                Refusal::Reject => Value::Reject,
                Refusal::Drop => Value::Drop,
            };
            self.push(set, self.key(), value);
        }
        if let Some(seconds) = self.route.affinity {
            let set = match self.at {
                At::Vip(..) => SetId::StickyIps,
                At::NodePort(_) => SetId::StickyNodePorts,
            };
            self.push(set, self.key(), Value::Record(seconds));
        }
    }

    fn push(&mut self, set: SetId, key: Key, value: Value) {
        self.out.elements.push(((set, key), value));
    }

    fn proto(&self) -> Protocol {
        self.route.key.protocol
    }

    fn key(&self) -> Key {
        match self.at {
            At::Vip(ip, port) => Key::Vip(ip, self.proto(), port),
            At::NodePort(port) => Key::NodePort(self.proto(), port),
        }
    }
}

#[derive(Clone, Copy)]
enum Lookup {
    First,
    Local,
}
