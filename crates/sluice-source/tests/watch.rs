//! Files that change, seen through inotify. Nothing sleeps: the tests wait on the descriptor as
//! the engine does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end at the first surprise; clippy knows only #[test] functions as tests"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_model::fact::{Fact, Kind};
use sluice_source::manifest::{ManifestSource, Update};

fn headless(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, spec: {{clusterIP: None}}}}\n---\n"
    )
}

fn service_at(name: &str, ip: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: {name}}}, \
         spec: {{clusterIP: {ip}, ports: [{{port: 80}}]}}}}\n---\n"
    )
}

/// What an update says, in short.
fn told(update: &Update) -> Vec<String> {
    let one = |fact: &Fact| match fact {
        Fact::Service(key, None) => format!("- {}", key.name),
        Fact::Service(key, Some(service)) => match service.cluster_ips.first() {
            Some(ip) => format!("+ {} {ip}", key.name),
            None => format!("+ {}", key.name),
        },
        Fact::Slice(key, slice) => format!("{} slice {}", sign(slice.is_some()), key.name),
        Fact::Begin(kind) => format!("begin {kind:?}"),
        Fact::Synced(kind) => format!("synced {kind:?}"),
        Fact::Endpoints(..) | Fact::Node(..) | Fact::Cidrs(..) | Fact::LocalAddresses(_) => {
            panic!("{fact:?}")
        }
    };
    update.facts.iter().map(one).collect()
}

fn sign(there: bool) -> char {
    if there { '+' } else { '-' }
}

fn problems(update: &Update, folder: &Path) -> Vec<String> {
    let prefix = format!("{}/", folder.display());
    let short = |p: &dyn std::fmt::Display| p.to_string().replace(&prefix, "");
    update.problems.iter().map(|p| short(p)).collect()
}

fn readable(source: &ManifestSource, millis: i64) -> bool {
    let mut fds = [PollFd::new(source, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// The next update that says anything.
fn next(source: &mut ManifestSource) -> Update {
    loop {
        assert!(readable(source, 10_000), "no event within ten seconds");
        let update = source.poll_changes().unwrap();
        if update != Update::default() {
            return update;
        }
    }
}

/// Asserts that everything pending says nothing, the time of grace included.
fn assert_quiet(source: &mut ManifestSource) {
    while readable(source, 300) {
        assert_eq!(source.poll_changes().unwrap(), Update::default());
    }
}

fn open(path: &Path) -> (ManifestSource, Update) {
    let mut source = ManifestSource::open(path).unwrap();
    let update = source.initial();
    (source, update)
}

#[test]
fn the_start_is_a_complete_list_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), headless("a")).unwrap();
    fs::write(dir.path().join("b.json"), headless("b")).unwrap();
    for ignored in [".c.yaml", "d.txt", "e.yaml~", "f.yaml.swp", "#g.yaml#"] {
        fs::write(dir.path().join(ignored), headless("x")).unwrap();
    }
    fs::create_dir(dir.path().join("sub.yaml")).unwrap();
    let (_, update) = open(dir.path());
    assert_eq!(
        told(&update),
        [
            "begin Nodes",
            "synced Nodes",
            "begin Cidrs",
            "synced Cidrs",
            "begin Slices",
            "synced Slices",
            "begin Endpoints",
            "synced Endpoints",
            "begin Services",
            "+ a",
            "+ b",
            "synced Services",
        ]
    );
    assert_eq!(update.problems, []);
    assert!(update.facts.contains(&Fact::Synced(Kind::Services)));
}

#[test]
fn a_saved_file_tells_what_changed_in_it_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, headless("a") + &headless("b")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::write(&file, headless("a") + &service_at("c", "10.0.0.3")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ c 10.0.0.3", "- b"]);
    fs::write(&file, headless("a") + &service_at("c", "10.0.0.3")).unwrap();
    assert_quiet(&mut source);
}

#[test]
fn a_pipe_or_a_device_is_refused_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let fifo = dir.path().join("a.yaml");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    symlink("/dev/zero", dir.path().join("b.yaml")).unwrap();
    fs::write(dir.path().join("c.yaml"), headless("c")).unwrap();
    let (_, update) = open(dir.path());
    let refused = "cannot be read: it is a pipe, socket or device; its last good facts stay";
    assert_eq!(
        problems(&update, dir.path()),
        [format!("a.yaml: {refused}"), format!("b.yaml: {refused}")]
    );
    assert!(told(&update).contains(&"+ c".to_owned()));
}

#[test]
fn what_appears_comes_before_what_goes_and_slices_before_services() {
    let dir = tempfile::tempdir().unwrap();
    let slice = |name: &str| {
        format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, \
             labels: {{kubernetes.io/service-name: a}}}}, addressType: IPv4}}\n---\n"
        )
    };
    let file = dir.path().join("a.yaml");
    fs::write(&file, headless("a") + &slice("one")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::write(&file, headless("b") + &slice("two")).unwrap();
    assert_eq!(
        told(&next(&mut source)),
        ["+ slice two", "+ b", "- a", "- slice one"]
    );
}

#[test]
fn a_deleted_file_takes_its_objects_with_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), headless("a")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    assert_eq!(told(&next(&mut source)), ["- a"]);
}

#[test]
fn editors_that_rename_over_the_file_are_seen() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, headless("a")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::write(dir.path().join(".a.yaml.tmp"), headless("b")).unwrap();
    fs::rename(dir.path().join(".a.yaml.tmp"), &file).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ b", "- a"]);
}

#[test]
fn editors_that_move_the_old_file_aside_cause_no_gap() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, service_at("a", "10.0.0.1")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::rename(&file, dir.path().join("a.yaml~")).unwrap();
    assert!(readable(&source, 10_000));
    assert_eq!(source.poll_changes().unwrap(), Update::default());
    fs::write(&file, service_at("a", "10.0.0.2")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ a 10.0.0.2"]);
    assert_quiet(&mut source);
}

#[test]
fn an_object_that_moves_to_another_file_does_not_go_away() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), headless("a")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::rename(dir.path().join("a.yaml"), dir.path().join("z.yaml")).unwrap();
    assert_quiet(&mut source);
    fs::remove_file(dir.path().join("z.yaml")).unwrap();
    assert_eq!(told(&next(&mut source)), ["- a"]);
}

#[test]
fn a_switched_config_map_is_read_anew() {
    let dir = tempfile::tempdir().unwrap();
    for (version, ip) in [("..1", "10.0.0.1"), ("..2", "10.0.0.2")] {
        fs::create_dir(dir.path().join(version)).unwrap();
        let file = dir.path().join(version).join("a.yaml");
        fs::write(file, service_at("a", ip)).unwrap();
    }
    symlink("..1", dir.path().join("..data")).unwrap();
    symlink("..data/a.yaml", dir.path().join("a.yaml")).unwrap();
    let (mut source, update) = open(dir.path());
    assert!(told(&update).contains(&"+ a 10.0.0.1".to_owned()));
    symlink("..2", dir.path().join("..data_tmp")).unwrap();
    fs::rename(dir.path().join("..data_tmp"), dir.path().join("..data")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ a 10.0.0.2"]);
}

#[test]
fn a_link_is_read_when_it_appears() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("x"), headless("a")).unwrap();
    let (mut source, _) = open(dir.path());
    symlink(elsewhere.path().join("x"), dir.path().join("a.yaml")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ a"]);
}

#[test]
fn a_broken_file_keeps_its_last_good_objects_and_says_so_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    fs::write(&file, headless("a")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::write(&file, "kind: \"Serv").unwrap();
    let update = next(&mut source);
    assert_eq!(told(&update), [] as [&str; 0]);
    assert_eq!(
        problems(&update, dir.path()),
        [
            "a.yaml:1:7: cannot be read: unclosed quote",
            "a.yaml: keeps its last good objects until it can be read again",
        ]
    );
    assert_quiet(&mut source);
    fs::write(&file, headless("a") + &headless("b")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ b"]);
}

#[test]
fn of_two_files_with_one_object_the_last_by_name_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("a.yaml"), service_at("web", "10.0.0.1")).unwrap();
    let (mut source, _) = open(dir.path());
    fs::write(path("b.yaml"), service_at("web", "10.0.0.2")).unwrap();
    let update = next(&mut source);
    assert_eq!(told(&update), ["+ web 10.0.0.2"]);
    assert_eq!(
        problems(&update, dir.path()),
        [
            "b.yaml:1:2: Service default/web: is also in a.yaml; the one in b.yaml counts, as the \
          last file by name: remove one of them"
        ]
    );
    fs::remove_file(path("b.yaml")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ web 10.0.0.1"]);
}

#[test]
fn a_single_file_is_followed_through_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster");
    fs::write(&file, headless("a")).unwrap();
    fs::write(dir.path().join("other.yaml"), headless("x")).unwrap();
    let (mut source, update) = open(&file);
    assert!(told(&update).contains(&"+ a".to_owned()));
    assert!(!told(&update).contains(&"+ x".to_owned()));
    fs::write(dir.path().join("other.yaml"), headless("y")).unwrap();
    fs::write(dir.path().join("new"), headless("b")).unwrap();
    fs::rename(dir.path().join("new"), &file).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ b", "- a"]);
}

#[test]
fn a_folder_that_goes_keeps_its_objects_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), headless("a")).unwrap();
    let (mut source, _) = open(&folder);
    fs::rename(&folder, dir.path().join("old")).unwrap();
    let update = next(&mut source);
    assert_eq!(told(&update), [] as [&str; 0]);
    assert_eq!(
        problems(&update, dir.path()),
        ["m: is gone; its last good facts stay until it is back or kube-proxy restarts"]
    );
    let fresh = dir.path().join("fresh");
    fs::create_dir(&fresh).unwrap();
    fs::write(fresh.join("b.yaml"), headless("b")).unwrap();
    fs::rename(&fresh, &folder).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ b", "- a"]);
    fs::write(folder.join("b.yaml"), headless("c")).unwrap();
    assert_eq!(told(&next(&mut source)), ["+ c", "- b"]);
}

#[test]
fn a_path_that_is_not_there_is_an_error_that_names_it() {
    let error = ManifestSource::open(Path::new("/nowhere/at/all")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read manifests at /nowhere/at/all: No such file or directory (os error 2)"
    );
}
