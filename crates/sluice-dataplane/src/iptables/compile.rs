//! One route -> its chains and its lines in the chains that all routes share. Pure.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use sluice_model::fact::Family;
use sluice_model::route::{
    At, Backend, Frontend, Masquerade, Path, Pool, PoolChoice, Refusal, Route, Scope,
};

use super::ground::{COUNT_LOCALHOST, Counter, Detail, Ground, LocalhostNodePorts};
use super::name::{Fixed, Namer, Role, ServiceChain, Table};
use super::rule::{Comment, Match, Rule, Sense, Target, to};

/// A chain of a route with its rules.
pub type Block = (ServiceChain, Vec<Rule>);

/// A chain that routes share.
pub type Place = (Table, Fixed);

/// What a route needs.
#[derive(Debug, Default, PartialEq)]
pub struct Compiled {
    /// Its own chains, those that are jumped to before those that jump.
    pub blocks: Vec<Block>,
    /// Its lines in shared chains.
    pub lines: Vec<(Place, Rule)>,
}

/// Everything a route needs.
pub fn compile(route: &Route, ground: &Ground) -> Compiled {
    let text = route.key.to_string();
    let work = Work {
        route,
        ground,
        namer: Namer::new(&route.key),
        text,
    };
    let mut out = Compiled::default();
    work.endpoints(&mut out);
    work.pool(PoolChoice::Cluster, Role::Cluster, &mut out);
    work.pool(PoolChoice::Local, Role::Local, &mut out);
    work.external(&mut out);
    work.firewall(&mut out);
    for frontend in &route.frontends {
        work.lines(frontend, &mut out);
    }
    out
}

struct Work<'a> {
    route: &'a Route,
    ground: &'a Ground,
    namer: Namer,
    /// The service port as comments have it.
    text: String,
}

impl Work<'_> {
    fn comment(&self, rest: &str) -> Match {
        Match::Comment(Comment::new(format!("{}{rest}", self.text)))
    }

    /// Comment of a rule of an endpoint, left out where there are too many.
    fn detail(&self, rest: impl FnOnce() -> String) -> Option<Match> {
        match self.ground.detail {
            Detail::Full => Some(self.comment(&rest())),
            Detail::Lean => None,
        }
    }

    fn jump(&self, role: Role) -> Target {
        Target::Service(self.namer.own(role))
    }

    fn protocol(&self) -> Match {
        Match::Protocol(self.route.key.protocol)
    }

    fn has(&self, choice: PoolChoice) -> bool {
        !self.route.pool(choice).is_empty()
    }

    /// Whether any packet to the frontend finds an endpoint.
    fn served(&self, frontend: &Frontend) -> bool {
        match frontend.path {
            Path::Uniform(choice, _) => self.has(choice),
            Path::Split => self.has(PoolChoice::Cluster) || self.has(PoolChoice::Local),
        }
    }

    fn uses(&self, choice: PoolChoice) -> bool {
        self.has(choice)
            && self
                .route
                .frontends
                .iter()
                .any(|frontend| match frontend.path {
                    Path::Uniform(own, _) => own == choice,
                    Path::Split => true,
                })
    }

    /// Frontends other than the cluster IP that lead to endpoints. The model gives all of a
    /// route's the same path, and all guarded ones the same ranges.
    fn outside(&self) -> impl Iterator<Item = &Frontend> {
        let all = self.route.frontends.iter();
        all.filter(|f| f.scope != Scope::Cluster && self.served(f))
    }

    fn endpoints(&self, out: &mut Compiled) {
        let pool = |choice| -> &[_] {
            if self.uses(choice) {
                self.route.pool(choice)
            } else {
                &[]
            }
        };
        let (cluster, local) = (pool(PoolChoice::Cluster), pool(PoolChoice::Local));
        // Both are sorted by address and port; an endpoint in both has one chain.
        let known = |b: &Backend| {
            cluster
                .binary_search_by_key(&(b.ip, b.port), |c| (c.ip, c.port))
                .is_ok()
        };
        for backend in cluster.iter().chain(local.iter().filter(|b| !known(b))) {
            let chain = self.namer.endpoint(backend);
            let owner = || self.detail(String::new);
            let own = Match::Source(Sense::Is, IpNet::from(backend.ip));
            let hairpin = owner().into_iter().chain([own]);
            let remember = self.route.affinity.map(|_| Match::Remember(chain));
            let all = owner().into_iter().chain(remember).chain([self.protocol()]);
            let address = SocketAddr::new(backend.ip, backend.port);
            let rules = vec![
                Rule::new(hairpin, Target::Jump(Fixed::MarkMasq)),
                Rule::new(all, Target::Dnat(address)),
            ];
            out.blocks.push((chain, rules));
        }
    }

    fn pool(&self, choice: PoolChoice, role: Role, out: &mut Compiled) {
        if !self.uses(choice) {
            return;
        }
        let inside = self
            .route
            .frontends
            .iter()
            .filter(|f| f.scope == Scope::Cluster);
        let mut rules: Vec<Rule> = inside.filter_map(|f| self.mark_inside(f, choice)).collect();
        self.pick(self.route.pool(choice), &mut rules);
        out.blocks.push((self.namer.own(role), rules));
    }

    /// The rule that masquerades connections to a cluster IP. It stands in the chain of the pool,
    /// where other connections pass as well, and therefore names the address.
    fn mark_inside(&self, frontend: &Frontend, choice: PoolChoice) -> Option<Rule> {
        let (Path::Uniform(own, masquerade), At::Vip(ip, port)) = (frontend.path, frontend.at)
        else {
            return None;
        };
        let sources = self.masqueraded(masquerade).filter(|_| own == choice)?;
        let place = [
            self.comment(" cluster IP"),
            self.protocol(),
            to(ip),
            Match::Port(port),
        ];
        let matches = place.into_iter().chain(sources);
        Some(Rule::new(matches, Target::Jump(Fixed::MarkMasq)))
    }

    /// Matches for the sources that are hidden; `None` where none is.
    fn masqueraded(&self, masquerade: Masquerade) -> Option<Option<Match>> {
        match masquerade {
            Masquerade::Never => None,
            Masquerade::Always => Some(None),
            Masquerade::NotPods => self.ground.pods(Sense::IsNot).map(Some),
        }
    }

    fn pick(&self, pool: &Pool, rules: &mut Vec<Rule>) {
        let named = |b: &Backend| self.detail(|| format!(" -> {}", SocketAddr::new(b.ip, b.port)));
        if let Some(seconds) = self.route.affinity {
            for backend in pool.iter() {
                let chain = self.namer.endpoint(backend);
                let matches = named(backend)
                    .into_iter()
                    .chain([Match::Remembered(chain, seconds)]);
                rules.push(Rule::new(matches, Target::Service(chain)));
            }
        }
        for (index, backend) in pool.iter().enumerate() {
            let left = pool.len() - index;
            let chance = (left > 1).then_some(Match::OneIn(left));
            let matches = named(backend).into_iter().chain(chance);
            rules.push(Rule::new(
                matches,
                Target::Service(self.namer.endpoint(backend)),
            ));
        }
    }

    fn external(&self, out: &mut Compiled) {
        let Some(path) = self.outside().next().map(|frontend| frontend.path) else {
            return;
        };
        let says = |before: &str, after: &str| {
            Match::Comment(Comment::new(format!("{before} {}{after}", self.text)))
        };
        let mark = Target::Jump(Fixed::MarkMasq);
        let mut rules = Vec::new();
        match path {
            Path::Uniform(choice, masquerade) => {
                if let Some(sources) = self.masqueraded(masquerade) {
                    let comment = says("masquerade traffic for", " external destinations");
                    rules.push(Rule::new([comment].into_iter().chain(sources), mark));
                }
                rules.push(Rule::new([], self.jump(role(choice))));
            }
            Path::Split => {
                let all = self
                    .has(PoolChoice::Cluster)
                    .then(|| self.jump(Role::Cluster));
                if let (Some(pods), Some(all)) = (self.ground.pods(Sense::Is), all.clone()) {
                    let comment = says("pod traffic for", " external destinations");
                    rules.push(Rule::new([comment, pods], all));
                }
                if let Some(all) = all {
                    let comment = says("masquerade LOCAL traffic for", " external destinations");
                    rules.push(Rule::new([comment, Match::SourceIsLocal], mark));
                    let comment = says("route LOCAL traffic for", " external destinations");
                    rules.push(Rule::new([comment, Match::SourceIsLocal], all));
                }
                if self.has(PoolChoice::Local) {
                    rules.push(Rule::new([], self.jump(Role::Local)));
                }
            }
        }
        out.blocks.push((self.namer.own(Role::External), rules));
    }

    fn firewall(&self, out: &mut Compiled) {
        let Some(allow) = self.outside().find_map(|frontend| frontend.allow.as_ref()) else {
            return;
        };
        let allowed = |net: &IpNet| {
            let matches = [
                self.comment(" loadbalancer IP"),
                Match::Source(Sense::Is, *net),
            ];
            Rule::new(matches, self.jump(Role::External))
        };
        let mut rules: Vec<Rule> = allow.iter().map(allowed).collect();
        let rest = format!(
            "other traffic to {} will be dropped by KUBE-PROXY-FIREWALL",
            self.text
        );
        rules.push(Rule {
            matches: vec![Match::Comment(Comment::new(rest))],
            target: None,
        });
        out.blocks.push((self.namer.own(Role::Firewall), rules));
    }

    fn lines(&self, frontend: &Frontend, out: &mut Compiled) {
        match frontend.at {
            At::Vip(ip, port) => self.address_lines(frontend, (ip, port), out),
            At::NodePort(port) => self.node_port_lines(frontend, port, out),
        }
    }

    fn address_lines(&self, frontend: &Frontend, at: (IpAddr, u16), out: &mut Compiled) {
        let place = || [self.protocol(), to(at.0), Match::Port(at.1)];
        let mut push = |place, matches: Vec<Match>, target| {
            out.lines.push((place, Rule::new(matches, target)));
        };
        let with = |comment: &str| -> Vec<Match> {
            [self.comment(comment)].into_iter().chain(place()).collect()
        };
        let (name, refusals) = match frontend.scope {
            Scope::Cluster => (" cluster IP", Fixed::Services),
            Scope::ExternalIp => (" external IP", Fixed::ExternalServices),
            Scope::LoadBalancer => (" loadbalancer IP", Fixed::ExternalServices),
            // The model gives node ports no address.
            Scope::NodePort => ("", Fixed::ExternalServices),
        };
        if self.served(frontend) {
            let target = match (frontend.scope, &frontend.allow, frontend.path) {
                (Scope::Cluster, _, Path::Uniform(choice, _)) => self.jump(role(choice)),
                (_, Some(_), _) => self.jump(Role::Firewall),
                (_, None, _) => self.jump(Role::External),
            };
            push((Table::Nat, Fixed::Services), with(name), target);
            if frontend.allow.is_some() {
                let comment = format!(
                    " traffic not accepted by {}",
                    self.namer.own(Role::Firewall)
                );
                push(
                    (Table::Filter, Fixed::ProxyFirewall),
                    with(&comment),
                    Target::Drop,
                );
            }
        }
        let Some(refusal) = frontend.refusal else {
            return;
        };
        let (comment, target) = refused(refusal, self.ground.family);
        let place = (Table::Filter, refusals);
        match (&frontend.allow, refusal) {
            // Others get silence, as they do while there are endpoints.
            (Some(allow), Refusal::Reject) => {
                for net in allow {
                    let mut matches = with(comment);
                    matches.push(Match::Source(Sense::Is, *net));
                    push(place, matches, target.clone());
                }
                push(place, with(comment), Target::Drop);
            }
            (None, _) | (Some(_), Refusal::Drop) => push(place, with(comment), target),
        }
    }

    fn node_port_lines(&self, frontend: &Frontend, port: u16, out: &mut Compiled) {
        if self.served(frontend) {
            let mut push = |extra: Vec<Match>, last: Option<Match>| {
                let matches = [self.comment(""), self.protocol()].into_iter().chain(extra);
                let matches = matches.chain([Match::Port(port)]).chain(last);
                let rule = Rule::new(matches, self.jump(Role::External));
                out.lines.push(((Table::Nat, Fixed::NodePorts), rule));
            };
            if self.ground.localhost() == LocalhostNodePorts::Open
                && self.ground.options.count_localhost == Counter::Present
            {
                let loopback = Match::Destination(Sense::Is, self.ground.loopback());
                push(vec![loopback], Some(Match::Count(COUNT_LOCALHOST)));
            }
            push(Vec::new(), None);
        }
        let Some(refusal) = frontend.refusal else {
            return;
        };
        let (comment, target) = refused(refusal, self.ground.family);
        for destination in self.ground.node_port_destinations() {
            let matches = [self.comment(comment)].into_iter().chain(destination);
            let matches = matches.chain([self.protocol(), Match::Port(port)]);
            let place = (Table::Filter, Fixed::ExternalServices);
            out.lines.push((place, Rule::new(matches, target.clone())));
        }
    }
}

fn role(choice: PoolChoice) -> Role {
    match choice {
        PoolChoice::Cluster => Role::Cluster,
        PoolChoice::Local => Role::Local,
    }
}

fn refused(refusal: Refusal, family: Family) -> (&'static str, Target) {
    match refusal {
        Refusal::Reject => (" has no endpoints", Target::Reject(family)),
        Refusal::Drop => (" has no local endpoints", Target::Drop),
    }
}

/// The line that refuses connections to other ports of a cluster IP. Where it stands depends on
/// whether a service range leads to the chain of all such addresses.
pub fn unused_port(ip: IpAddr, ground: &Ground) -> (Place, Rule) {
    if ground
        .node
        .service_cidrs
        .iter()
        .any(|net| net.contains(&ip))
    {
        return (
            (Table::Filter, Fixed::ClusterIps),
            Rule::new([to(ip)], Target::Reject(ground.family)),
        );
    }
    let comment = Match::Comment(Comment::new("port not in use on this cluster IP"));
    let matches = [comment, to(ip), Match::DestinationIsLocal(Sense::IsNot)];
    (
        (Table::Filter, Fixed::Services),
        Rule::new(matches, Target::Reject(ground.family)),
    )
}
