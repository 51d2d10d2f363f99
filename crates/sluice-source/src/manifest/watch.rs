//! The eyes on a folder: inotify, and a timer for files that may be about to come back.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::epoll;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// How long a file may be away before it counts as deleted. Editors move the old file aside and
/// then write the new one; in between, its services must not lose their rules.
const GRACE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What happened in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A file of this name is complete: closed after writing, moved here, or linked.
    Written(String),
    /// A file of this name was deleted or moved away.
    Gone(String),
    /// Anything may have changed: a ConfigMap's `..data` was switched, or events were lost.
    Anything,
    /// The folder itself was deleted or moved away.
    FolderGone,
    /// A folder of that name is there again.
    FolderBack,
    /// The time of grace is over.
    GraceOver,
}

/// One folder under watch. Its descriptor is readable when there are events.
#[derive(Debug)]
pub(super) struct Watch {
    folder: PathBuf,
    epoll: OwnedFd,
    inotify: OwnedFd,
    timer: OwnedFd,
    on: On,
}

/// What is watched: the folder, or while it is missing the folder that should hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Folder(i32),
    Parent(i32),
    Nothing,
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Watch {
    /// Starts to watch a folder.
    pub(super) fn new(folder: &Path) -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        for (fd, id) in [(&inotify, 0), (&timer, 1)] {
            epoll::add(
                &epoll,
                fd,
                epoll::EventData::new_u64(id),
                epoll::EventFlags::IN,
            )?;
        }
        let on = On::Folder(watch_folder(&inotify, folder)?);
        Ok(Watch {
            folder: folder.to_owned(),
            epoll,
            inotify,
            timer,
            on,
        })
    }

    /// The events since the last call, without waiting. A folder that went and came back is under
    /// watch again when this returns [`Event::FolderBack`].
    pub(super) fn drain(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut ticks = [0; 8];
        if rustix::io::read(&self.timer, &mut ticks).is_ok() {
            events.push(Event::GraceOver);
        }
        let mut on = self.on;
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => self.translate(&event, &mut on, &mut events),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.on = on;
        self.follow_folder(&mut events);
        Ok(events)
    }

    fn translate(&self, event: &inotify::Event<'_>, on: &mut On, events: &mut Vec<Event>) {
        let what = event.events();
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            events.push(Event::Anything);
            return;
        }
        // News of the parent needs no reading: the folder is looked for after every round.
        if *on != On::Folder(event.wd()) {
            return;
        }
        let ended =
            ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        if what.intersects(ended) {
            *on = On::Nothing;
            events.push(Event::FolderGone);
            return;
        }
        let Some(name) = event.file_name() else {
            return;
        };
        let name = OsStr::from_bytes(name.to_bytes());
        let Some(text) = name.to_str() else { return };
        if text.starts_with("..") {
            events.push(Event::Anything);
        } else if what.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
            events.push(Event::Written(text.to_owned()));
        } else if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            events.push(Event::Gone(text.to_owned()));
        } else if what.contains(ReadFlags::CREATE) && is_link(&self.folder.join(name)) {
            events.push(Event::Written(text.to_owned()));
        }
    }

    /// While the folder is missing, watches its parent, and takes the folder up once it is back.
    /// The parent is watched first and the folder tried after, so that none can slip through.
    fn follow_folder(&mut self, events: &mut Vec<Event>) {
        if let On::Folder(_) = self.on {
            return;
        }
        if self.on == On::Nothing
            && let Some(parent) = self.folder.parent()
            && let Ok(wd) = inotify::add_watch(
                &self.inotify,
                if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                },
                WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR,
            )
        {
            self.on = On::Parent(wd);
        }
        if let Ok(wd) = watch_folder(&self.inotify, &self.folder) {
            if let On::Parent(parent) = self.on {
                // A parent that is gone has taken its watch with it: nothing is left to remove.
                inotify::remove_watch(&self.inotify, parent).ok();
            }
            self.on = On::Folder(wd);
            events.push(Event::FolderBack);
        }
    }

    /// Asks for [`Event::GraceOver`] after the time of grace.
    pub(super) fn start_grace(&self) -> io::Result<()> {
        let spec = Itimerspec {
            it_interval: Timespec::default(),
            it_value: GRACE,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

fn watch_folder(inotify: &OwnedFd, folder: &Path) -> Result<i32, Errno> {
    let flags = WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::CREATE
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(inotify, folder, flags)
}

/// A link is complete when it appears; a new file is not before it is closed.
fn is_link(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink() || meta.nlink() > 1)
}
