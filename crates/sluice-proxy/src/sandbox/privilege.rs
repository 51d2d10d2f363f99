//! The right to make network namespaces, with or without root.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use super::SandboxError;

/// By what right this process makes network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It had CAP_SYS_ADMIN and CAP_NET_ADMIN already.
    Already,
    /// It is root in a user namespace of its own now.
    UserNamespace,
}

/// Makes sure that this process may make network namespaces: an ordinary user becomes root of a
/// user namespace, with itself as the only user in it. To be called first in `main`: the kernel
/// refuses it (EINVAL) once a second thread runs.
pub fn enter_user_namespace() -> Result<Privilege, SandboxError> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if capabilities(None).is_ok_and(|own| own.effective.contains(needed)) {
        return Ok(Privilege::Already);
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER).map_err(|cause| {
        // max_user_namespaces of 0 shows as ENOSPC, a missing CONFIG_USER_NS as EINVAL or ENOSYS.
        if [Errno::PERM, Errno::NOSPC, Errno::NOSYS].contains(&cause) {
            let why = obstacle(|path| fs::read_to_string(path).ok());
            return SandboxError::Forbidden { why };
        }
        SandboxError::UserNamespace {
            step: "enter a user namespace",
            cause: cause.into(),
        }
    })?;
    // An unprivileged process may map groups only after it gave up setgroups(2) (user_namespaces(7)).
    write("write /proc/self/setgroups", "setgroups", "deny")?;
    write("write /proc/self/uid_map", "uid_map", &format!("0 {uid} 1"))?;
    write("write /proc/self/gid_map", "gid_map", &format!("0 {gid} 1"))?;
    Ok(Privilege::UserNamespace)
}

/// unshare(2) without CLONE_FILES.
pub(super) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    #[expect(
        deprecated,
        reason = "unsafe only with CLONE_FILES, which nobody here passes"
    )]
    rustix::thread::unshare(flags)
}

fn write(step: &'static str, file: &str, text: &str) -> Result<(), SandboxError> {
    let done: io::Result<()> = fs::write(format!("/proc/self/{file}"), text);
    done.map_err(|cause| SandboxError::UserNamespace { step, cause })
}

/// The kernel setting that forbids user namespaces, as far as `read` can tell.
fn obstacle(read: impl Fn(&str) -> Option<String>) -> String {
    let knobs = [
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
        ),
    ];
    let found = knobs
        .iter()
        .find(|(path, forbids)| read(path).is_some_and(|value| value.trim() == *forbids));
    match found {
        Some((path, value)) => format!("{path} is {value}; run as root, or change that setting"),
        None => "unshare(CLONE_NEWUSER) is refused (a container's seccomp filter or a security \
                 module does that); run as root"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::obstacle;

    #[test]
    fn the_setting_in_the_way_is_named() {
        let read = |path: &str| match path {
            "/proc/sys/user/max_user_namespaces" => Some("15000\n".into()),
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns" => Some("1\n".into()),
            _ => None,
        };
        assert_eq!(
            obstacle(read),
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns is 1; run as root, or change \
             that setting"
        );
    }

    #[test]
    fn without_a_known_setting_the_call_is_named() {
        assert!(obstacle(|_| None).starts_with("unshare(CLONE_NEWUSER) is refused"));
    }
}
