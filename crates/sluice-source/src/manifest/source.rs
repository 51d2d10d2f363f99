//! A file or folder of manifests, watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sluice_model::fact::{Fact, Kind};
use sluice_model::name::{Name, Names};

use super::ledger::{Clash, Key, Ledger};
use super::watch::{Event, Watch};
use super::{ManifestProblem, Outcome, objects};
use crate::yaml::Place;

/// Why manifests cannot be read or watched at all.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The path is not there or cannot be opened.
    #[error("cannot read manifests at {}: {source}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The kernel does not let us watch the folder.
    #[error("cannot watch {} for changes: {source}", path.display())]
    Watch {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// What changed since the last call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Facts in an order that is safe to act on one by one: what appears or changes first, what
    /// goes away last.
    pub facts: Vec<Fact>,
    /// Remarks about the files that were read.
    pub problems: Vec<ManifestProblem>,
}

/// A file or folder of manifests under watch.
///
/// Nothing here waits or starts threads: the owner waits until the descriptor ([`AsFd`]) is
/// readable and then calls [`ManifestSource::poll_changes`].
#[derive(Debug)]
pub struct ManifestSource {
    scope: Scope,
    folder: PathBuf,
    watch: Watch,
    ledger: Ledger,
    names: Names,
    /// What every file that was read looked like, also of files without facts.
    stamps: BTreeMap<String, Stamp>,
    /// Files that went away, in their first and second period of grace.
    leaving: [BTreeSet<String>; 2],
}

/// Which files of the folder are read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    /// All that look like manifests.
    Folder,
    /// This one.
    File(String),
}

/// Tells whether a name still means the same file with the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl AsFd for ManifestSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

impl ManifestSource {
    /// Starts to watch a file or folder; nothing is read yet.
    pub fn open(path: &Path) -> Result<ManifestSource, SourceError> {
        let failed = |source| SourceError::Open {
            path: path.to_owned(),
            source,
        };
        let meta = std::fs::metadata(path).map_err(failed)?;
        let (folder, scope) = if meta.is_dir() {
            (path.to_owned(), Scope::Folder)
        } else {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
            (folder_of(path), Scope::File(name.to_owned()))
        };
        let watch = Watch::new(&folder).map_err(|source| SourceError::Watch {
            path: folder.clone(),
            source,
        })?;
        Ok(ManifestSource {
            scope,
            folder,
            watch,
            ledger: Ledger::default(),
            names: Names::default(),
            stamps: BTreeMap::new(),
            leaving: Default::default(),
        })
    }

    /// Everything that is there now, as one complete list of every kind. The watch was set up
    /// before, so what changes meanwhile is seen by the next [`ManifestSource::poll_changes`].
    pub fn initial(&mut self) -> Update {
        let mut update = Update::default();
        self.rescan(&mut update);
        let facts = std::mem::take(&mut update.facts);
        let kinds = [
            Kind::Nodes,
            Kind::Cidrs,
            Kind::Slices,
            Kind::Endpoints,
            Kind::Services,
        ];
        for kind in kinds {
            update.facts.push(Fact::Begin(kind));
            let of_kind = |fact: &&Fact| Key::of(fact).is_some_and(|key| key.kind() == kind);
            update.facts.extend(facts.iter().filter(of_kind).cloned());
            update.facts.push(Fact::Synced(kind));
        }
        update
    }

    /// What changed since the last call; never waits. A file that cannot be read or is no YAML
    /// keeps its last good facts. An error means that the watch is lost for good.
    pub fn poll_changes(&mut self) -> Result<Update, SourceError> {
        let mut update = Update::default();
        let events = self.watch.drain().map_err(|source| self.lost(source))?;
        let mut written = BTreeSet::new();
        let mut scan = false;
        for event in events {
            match event {
                Event::Written(name) if self.wants(&name) => {
                    self.leaving.iter_mut().for_each(|set| {
                        set.remove(&name);
                    });
                    written.insert(name);
                }
                Event::Gone(name) if self.wants(&name) => {
                    written.remove(&name);
                    self.leaving[1].insert(name);
                }
                Event::Written(_) | Event::Gone(_) => {}
                Event::Anything | Event::FolderBack => scan = true,
                Event::FolderGone => update.problems.push(self.folder_problem(
                    "is gone; its last good facts stay until it is back or kube-proxy restarts",
                )),
                Event::GraceOver => self.leaving_expired(&mut written),
            }
        }
        if scan {
            self.rescan(&mut update);
        }
        self.take(written, &mut update);
        if self.leaving.iter().any(|set| !set.is_empty()) {
            self.watch
                .start_grace()
                .map_err(|source| self.lost(source))?;
        }
        Ok(update)
    }

    /// Files whose grace is over are looked at again: those that are there now are being written
    /// and will be reported as such, so only the missing ones are taken.
    fn leaving_expired(&mut self, written: &mut BTreeSet<String>) {
        let expired = std::mem::take(&mut self.leaving[0]);
        self.leaving.swap(0, 1);
        let missing = |name: &String| !self.folder.join(name).exists();
        written.extend(expired.into_iter().filter(missing));
    }

    /// Compares the folder with what was read and reads what differs.
    fn rescan(&mut self, update: &mut Update) {
        let mut present = BTreeSet::new();
        match &self.scope {
            Scope::File(name) => {
                present.insert(name.clone());
            }
            Scope::Folder => match std::fs::read_dir(&self.folder) {
                Ok(entries) => {
                    let names = entries.flatten().map(|entry| entry.file_name());
                    let names = names.filter_map(|name| name.into_string().ok());
                    present.extend(names.filter(|name| looks_like_manifest(name)));
                }
                Err(error) => {
                    let text = format!("cannot be listed: {error}; its last good facts stay");
                    update.problems.push(self.folder_problem(&text));
                    return;
                }
            },
        }
        let known = self.stamps.keys().chain(&present);
        let differs = |name: &&String| self.stamp(name) != self.stamps.get(*name).copied();
        let changed = known.filter(differs).cloned().collect();
        self.take(changed, update);
    }

    /// Reads these files and adds what that changes.
    fn take(&mut self, files: BTreeSet<String>, update: &mut Update) {
        let mut changed = Vec::new();
        for name in files {
            let stamp = self.stamp(&name);
            let shown = self.folder.join(&name).display().to_string();
            match read_file(&self.folder.join(&name)) {
                Ok(bytes) => {
                    let reading = objects::read_bytes(&shown, &bytes, &mut self.names);
                    update.problems.extend(reading.problems);
                    // The first reading of a broken file has nothing better to fall back to.
                    if reading.outcome == Outcome::Read || !self.ledger.holds(&name) {
                        changed.push((Name::from(&*name), reading.facts));
                    } else {
                        update.problems.push(ManifestProblem {
                            file: shown,
                            place: Place::default(),
                            object: String::new(),
                            text: "keeps its last good objects until it can be read again".into(),
                        });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    changed.push((Name::from(&*name), Vec::new()));
                }
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                Err(error) => update.problems.push(ManifestProblem {
                    file: shown,
                    place: Place::default(),
                    object: String::new(),
                    text: format!("cannot be read: {error}; its last good facts stay"),
                }),
            }
            match stamp {
                Some(stamp) => self.stamps.insert(name, stamp),
                None => self.stamps.remove(&name),
            };
        }
        let (facts, clashes) = self.ledger.replace(changed);
        update.facts.extend(facts);
        // A file that was moved is still remembered under its old name for a moment.
        let leaving = |name: &Name| self.leaving.iter().any(|set| set.contains(&**name));
        let clashes = clashes.into_iter().filter(|clash| !leaving(&clash.other));
        let clashes = clashes.map(|clash| self.clash_problem(clash));
        update.problems.extend(clashes);
    }

    fn wants(&self, name: &str) -> bool {
        match &self.scope {
            Scope::Folder => looks_like_manifest(name),
            Scope::File(only) => only == name,
        }
    }

    fn stamp(&self, name: &str) -> Option<Stamp> {
        let meta = std::fs::metadata(self.folder.join(name)).ok()?;
        Some(Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    fn lost(&self, source: io::Error) -> SourceError {
        SourceError::Watch {
            path: self.folder.clone(),
            source,
        }
    }

    fn folder_problem(&self, text: &str) -> ManifestProblem {
        ManifestProblem {
            file: self.folder.display().to_string(),
            place: Place::default(),
            object: String::new(),
            text: text.to_owned(),
        }
    }

    fn clash_problem(&self, clash: Clash) -> ManifestProblem {
        let Clash {
            key,
            file,
            place,
            winner,
            other,
        } = clash;
        ManifestProblem {
            file: self.folder.join(&*file).display().to_string(),
            place,
            object: key.to_string(),
            text: format!(
                "is also in {other}; the one in {winner} counts, as the last file by name: \
                 remove one of them"
            ),
        }
    }
}

/// A file's bytes. A pipe, whose opening or reading may wait for ever, and a device, which may
/// never end, are refused.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = File::options()
        .read(true)
        .custom_flags(without_waiting)
        .open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(io::Error::other("it is a pipe, socket or device"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// Hidden and temporary files, and names of other sorts of files, are none of ours.
fn looks_like_manifest(name: &str) -> bool {
    let suffixes = [".yaml", ".yml", ".json"];
    !name.starts_with('.') && suffixes.iter().any(|suffix| name.ends_with(suffix))
}
