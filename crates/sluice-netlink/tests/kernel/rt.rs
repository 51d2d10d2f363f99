//! rtnetlink against the running kernel.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use sluice_netlink::Errno;
use sluice_netlink::rt::{LinkChange, LinkKind, Route, RouteKind, Socket, Topic, Watch, flag};

use crate::namespace::{fresh_namespace, namespace};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a literal address")
}

#[test]
fn a_fresh_namespace_has_a_loopback_that_is_down() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    let links = socket.links().unwrap();
    let lo = links.iter().find(|link| link.name == "lo").unwrap();
    assert_eq!(lo.index, 1);
    assert!(!lo.is_up());
    assert_eq!(socket.addresses().unwrap(), []);
    socket.change_link(1, LinkChange::Up).unwrap();
    assert!(socket.link("lo").unwrap().is_up());
    let mut addresses: Vec<_> = socket
        .addresses()
        .unwrap()
        .iter()
        .map(|a| (a.ip, a.prefix, a.index))
        .collect();
    addresses.sort();
    assert_eq!(addresses, [(ip("127.0.0.1"), 8, 1), (ip("::1"), 128, 1)]);
}

#[test]
fn a_veth_pair_spans_two_namespaces_and_carries_packets() {
    fresh_namespace();
    let (send, receive) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let pod = thread::spawn(move || {
        fresh_namespace();
        send.send(namespace()).unwrap();
        wait.recv().unwrap();
        let mut socket = Socket::open().unwrap();
        let index = socket.link_index("eth0").unwrap();
        socket.add_address(index, ip("192.0.2.2"), 24).unwrap();
        socket.add_address(index, ip("2001:db8::2"), 64).unwrap();
        socket.change_link(index, LinkChange::Up).unwrap();
        socket
            .add_route(&Route::default_via(ip("192.0.2.1")))
            .unwrap();
        let listener = std::net::TcpListener::bind("192.0.2.2:80").unwrap();
        let routes = socket.routes().unwrap();
        (listener, routes, index)
    });
    let pod_namespace = receive.recv().unwrap();
    let mut socket = Socket::open().unwrap();
    socket.create_link("br0", LinkKind::Bridge).unwrap();
    let bridge = socket.link_index("br0").unwrap();
    let peer_namespace = Some(pod_namespace.as_fd());
    socket
        .create_link(
            "pod",
            LinkKind::Veth {
                peer: "eth0",
                peer_namespace,
            },
        )
        .unwrap();
    let pod_end = socket.link_index("pod").unwrap();
    socket
        .change_link(pod_end, LinkChange::Master(bridge))
        .unwrap();
    socket.change_link(pod_end, LinkChange::Up).unwrap();
    socket.change_link(bridge, LinkChange::Up).unwrap();
    socket.add_address(bridge, ip("192.0.2.1"), 24).unwrap();
    assert_eq!(socket.link("pod").unwrap().master, Some(bridge));
    assert_eq!(socket.link("pod").unwrap().kind.as_deref(), Some("veth"));
    done.send(()).unwrap();
    let (listener, routes, index) = pod.join().unwrap();
    assert!(routes.contains(&Route {
        index: Some(index),
        ..Route::default_via(ip("192.0.2.1"))
    }));
    let client = std::net::TcpStream::connect("192.0.2.2:80").unwrap();
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from, client.local_addr().unwrap());
    assert_eq!(from.ip(), ip("192.0.2.1"));
    socket.delete_link(pod_end).unwrap();
    assert_eq!(socket.link("pod").unwrap_err().errno(), Some(Errno::NODEV));
}

#[test]
fn a_local_route_makes_every_address_of_its_prefix_this_machine() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    socket.change_link(1, LinkChange::Up).unwrap();
    for (prefix, length, address) in [
        ("198.51.100.0", 24, "198.51.100.77:0"),
        ("2001:db8:1::", 64, "[2001:db8:1::77]:0"),
    ] {
        let address: std::net::SocketAddr = address.parse().unwrap();
        let route = Route::local(ip(prefix), length, 1);
        socket.add_route(&route).unwrap();
        assert!(socket.routes().unwrap().contains(&route), "{route}");
        let server = std::net::TcpListener::bind("[::]:0").unwrap();
        let to = std::net::SocketAddr::new(address.ip(), server.local_addr().unwrap().port());
        std::net::TcpStream::connect(to).unwrap();
        socket.delete_route(&route).unwrap();
        assert!(!socket.routes().unwrap().contains(&route), "{route}");
    }
    assert_eq!(RouteKind::default(), RouteKind::Unicast);
}

#[test]
fn errors_name_the_operation_and_the_object() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    assert_eq!(
        socket
            .add_address(77, ip("192.0.2.1"), 24)
            .unwrap_err()
            .to_string(),
        "add address 192.0.2.1/24 to interface 77: No such device (os error 19) (ipv4: Device not found)"
    );
    let link = socket.link("nowhere").unwrap_err();
    assert_eq!(
        link.to_string(),
        "look up link nowhere: No such device (os error 19)"
    );
    socket.change_link(1, LinkChange::Up).unwrap();
    socket.add_address(1, ip("192.0.2.1"), 32).unwrap();
    let twice = socket.add_address(1, ip("192.0.2.1"), 32).unwrap_err();
    assert_eq!(twice.errno(), Some(Errno::EXIST));
    socket.delete_address(1, ip("192.0.2.1"), 32).unwrap();
    let gone = socket.delete_address(1, ip("192.0.2.1"), 32).unwrap_err();
    assert_eq!(gone.errno(), Some(Errno::ADDRNOTAVAIL));
}

#[test]
fn a_watch_becomes_readable_with_a_change_and_only_then() {
    fresh_namespace();
    let mut socket = Socket::open().unwrap();
    let mut watch = Watch::open(Topic::Addresses).unwrap();
    assert!(!watch.changed().unwrap());
    socket.create_link("br0", LinkKind::Bridge).unwrap();
    assert!(!watch.changed().unwrap(), "links are not watched");
    let index = socket.link_index("br0").unwrap();
    socket.add_address(index, ip("10.96.0.1"), 32).unwrap();
    socket.add_address(index, ip("2001:db8::1"), 128).unwrap();
    let deadline = rustix::time::Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&deadline)).unwrap();
    assert_eq!(ready, 1);
    assert!(watch.changed().unwrap());
    assert!(!watch.changed().unwrap());
    let addresses = socket.addresses().unwrap();
    let v6 = addresses
        .iter()
        .find(|a| a.ip == ip("2001:db8::1"))
        .unwrap();
    assert_eq!((v6.index, v6.flags & flag::TENTATIVE), (index, 0));
}
