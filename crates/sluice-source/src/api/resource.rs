//! What is followed: where each resource is served and which part of it is asked for.

use std::fmt;

use sluice_model::fact::Kind;

/// A resource of the API that the source follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Services.
    Services,
    /// EndpointSlices.
    Slices,
    /// Endpoints, where no EndpointSlices are served.
    Endpoints,
    /// The Node this proxy runs on.
    Node,
    /// ServiceCIDRs.
    Cidrs,
    /// ServiceCIDRs of servers that serve them in beta only.
    CidrsBeta,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 6] = [
        Resource::Services,
        Resource::Slices,
        Resource::Endpoints,
        Resource::Node,
        Resource::Cidrs,
        Resource::CidrsBeta,
    ];

    /// The path below the server's root.
    pub fn path(self) -> &'static str {
        match self {
            Resource::Services => "/api/v1/services",
            Resource::Slices => "/apis/discovery.k8s.io/v1/endpointslices",
            Resource::Endpoints => "/api/v1/endpoints",
            Resource::Node => "/api/v1/nodes",
            Resource::Cidrs => "/apis/networking.k8s.io/v1/servicecidrs",
            Resource::CidrsBeta => "/apis/networking.k8s.io/v1beta1/servicecidrs",
        }
    }

    /// The kind of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            Resource::Services => "Service",
            Resource::Slices => "EndpointSlice",
            Resource::Endpoints => "Endpoints",
            Resource::Node => "Node",
            Resource::Cidrs | Resource::CidrsBeta => "ServiceCIDR",
        }
    }

    /// The kind of facts it yields.
    pub fn facts(self) -> Kind {
        match self {
            Resource::Services => Kind::Services,
            Resource::Slices => Kind::Slices,
            Resource::Endpoints => Kind::Endpoints,
            Resource::Node => Kind::Nodes,
            Resource::Cidrs | Resource::CidrsBeta => Kind::Cidrs,
        }
    }

    /// The selectors, as a query part. What no proxy needs never crosses the wire: services of
    /// other proxies and headless ones, headless slices, other Nodes.
    pub(crate) fn selector(self, node: &str) -> String {
        match self {
            Resource::Services => "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
                 &fieldSelector=spec.clusterIP%21%3DNone"
                .to_owned(),
            Resource::Slices => "labelSelector=%21service.kubernetes.io%2Fheadless".to_owned(),
            Resource::Endpoints => "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
                 %2C%21service.kubernetes.io%2Fheadless"
                .to_owned(),
            Resource::Node => format!("fieldSelector=metadata.name%3D{}", escape(node)),
            Resource::Cidrs | Resource::CidrsBeta => String::new(),
        }
    }
}

impl fmt::Display for Resource {
    /// Its name with the group, as authorization rules have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Services => "services",
            Resource::Slices => "endpointslices.discovery.k8s.io",
            Resource::Endpoints => "endpoints",
            Resource::Node => "nodes",
            Resource::Cidrs | Resource::CidrsBeta => "servicecidrs.networking.k8s.io",
        })
    }
}

/// Text as a part of a query.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_those_of_kube_proxy() {
        let selector = |resource: Resource| resource.selector("node-a");
        assert_eq!(
            selector(Resource::Services),
            "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
             &fieldSelector=spec.clusterIP%21%3DNone"
        );
        assert_eq!(
            selector(Resource::Slices),
            "labelSelector=%21service.kubernetes.io%2Fheadless"
        );
        assert_eq!(
            selector(Resource::Node),
            "fieldSelector=metadata.name%3Dnode-a"
        );
        assert_eq!(selector(Resource::Cidrs), "");
    }

    #[test]
    fn a_name_cannot_break_out_of_its_query_part() {
        assert_eq!(
            Resource::Node.selector("a&watch=0"),
            "fieldSelector=metadata.name%3Da%26watch%3D0"
        );
    }
}
