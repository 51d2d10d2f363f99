//! The `iptables` programs as child processes: no shell, text in by a pipe, words out.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};

use sluice_model::fact::Family;

use super::name::Table;
use super::rule::PortChoice;

/// Which kernel interface the programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables.
    Nft,
    /// The older one: each change copies the whole table out of the kernel and back.
    Legacy,
}

/// Why a program did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It could not be started.
    #[error("{program} cannot be started: {source}; install the iptables package")]
    Start {
        /// Program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody held the lock all the time.
    #[error("{program}: another program holds the xtables lock: {words}")]
    Locked {
        /// Program.
        program: String,
        /// Its words.
        words: String,
    },
    /// It refused, or the kernel did.
    #[error("{program}: {words}")]
    Refused {
        /// Program.
        program: String,
        /// Its words.
        words: String,
        /// The line of its input that it names.
        line: Option<usize>,
    },
    /// It ended before its time.
    #[error("{program} ended with {status}: {words}")]
    Ended {
        /// Program.
        program: String,
        /// How.
        status: ExitStatus,
        /// Its words.
        words: String,
    },
}

/// The programs of one family.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    family: Family,
    backend: Backend,
    /// `-nft`, `-legacy`, or nothing for the host's default.
    suffix: &'static str,
    version: [u32; 3],
}

/// First version with `--random-fully`, and with a lock that restoring waits for.
const MODERN: [u32; 3] = [1, 6, 2];
/// `RESOURCE_PROBLEM` of iptables' `xtables.h`: somebody else has the lock.
const LOCKED: i32 = 4;
/// Seconds to wait for the lock.
const PATIENCE: &str = "5";

impl Tool {
    /// The programs with this suffix, if they are there and the node can do the family.
    pub fn find(family: Family, suffix: &'static str) -> Result<Tool, ToolError> {
        let mut tool = Tool {
            family,
            backend: Backend::Nft,
            suffix,
            version: MODERN,
        };
        let (mut text, program) = (String::new(), tool.program(""));
        let mut command = Command::new(&program);
        command.arg("--version");
        run(command, |_| Ok(()), |line| text.push_str(line))?;
        if !text.contains("nf_tables") {
            tool.backend = Backend::Legacy;
        }
        tool.version = version(&text).unwrap_or(MODERN);
        Ok(tool)
    }

    /// Family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Kernel interface.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// How masquerade can choose source ports.
    pub fn source_ports(&self) -> PortChoice {
        if self.version >= MODERN {
            PortChoice::Random
        } else {
            PortChoice::Kept
        }
    }

    fn program(&self, verb: &str) -> String {
        let base = match self.family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        format!("{base}{}{verb}", self.suffix)
    }

    /// Hands every rule of a chain, or of all chains of a table, to `take`, as listed.
    pub fn list(
        &self,
        table: Table,
        chain: Option<&str>,
        take: impl FnMut(&str),
    ) -> Result<(), ToolError> {
        let mut command = Command::new(self.program(""));
        command
            .args(["-w", PATIENCE, "-t", table.name(), "-S"])
            .args(chain);
        run(command, |_| Ok(()), take)
    }

    /// Restores what `write` writes, leaving everything else alone.
    pub fn restore(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), ToolError> {
        let mut command = Command::new(self.program("-restore"));
        if self.version >= MODERN {
            command.args(["-w", PATIENCE]);
        }
        command.arg("--noflush");
        run(command, write, |_| {})
    }
}

fn version(text: &str) -> Option<[u32; 3]> {
    let numbers = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('v'))?;
    let mut numbers = numbers.split('.').map(|n| n.parse().unwrap_or(0));
    Some(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
}

/// Runs a program to its end. A program that stops reading has a reason, which its exit says
/// better than a broken pipe.
fn run(
    mut command: Command,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    mut take: impl FnMut(&str),
) -> Result<(), ToolError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = |source| ToolError::Start {
        program: program.clone(),
        source,
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(start)?;
    let words = complaints(&mut child);
    if let Some(stdin) = child.stdin.take() {
        let mut stdin = BufWriter::with_capacity(1 << 16, stdin);
        let broken = write(&mut stdin).and_then(|()| stdin.flush()).is_err();
        if broken {
            // What is buffered must not be written again when the writer goes.
            drop(stdin.into_parts());
        }
    }
    if let Some(stdout) = child.stdout.take() {
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|n| n > 0) {
            take(line.trim_end());
            line.clear();
        }
    }
    let status = child.wait().map_err(start)?;
    let words = words.join().unwrap_or_default();
    judge(program, status, &words)
}

/// Reads standard error aside: a program that has much to say would otherwise wait for us while we
/// wait for it.
fn complaints(child: &mut Child) -> std::thread::JoinHandle<String> {
    let stderr = child.stderr.take();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let limit = stderr.map(|stderr| stderr.take(1 << 16));
        let read = limit.map_or(Ok(0), |mut stderr| stderr.read_to_end(&mut text));
        drop(read);
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn judge(program: String, status: ExitStatus, words: &str) -> Result<(), ToolError> {
    if status.success() {
        return Ok(());
    }
    let line = named_line(words);
    let words = tidy(words);
    match status.code() {
        Some(LOCKED) if words.contains("lock") => Err(ToolError::Locked { program, words }),
        Some(_) => Err(ToolError::Refused {
            program,
            words,
            line,
        }),
        None => Err(ToolError::Ended {
            program,
            status,
            words,
        }),
    }
}

/// The first number after the word `line`.
fn named_line(words: &str) -> Option<usize> {
    words.match_indices("line").find_map(|(at, word)| {
        let rest = words[at + word.len()..].trim_start_matches([':', ' ']);
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..digits].parse().ok()
    })
}

/// In one line, without the advice to read the manual.
fn tidy(words: &str) -> String {
    let lines = words
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with("Try `"));
    let mut text = lines.collect::<Vec<_>>().join(" ");
    if text.len() > 600 {
        text.truncate(text.floor_char_boundary(600));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_in_the_words_of_both_backends() {
        let nft = "iptables-nft-restore v1.8.9 (nf_tables): \nline 5: RULE_APPEND failed";
        assert_eq!(named_line(nft), Some(5));
        assert_eq!(
            named_line("Error occurred at line: 12\nTry `iptables-restore -h'"),
            Some(12)
        );
        assert_eq!(
            named_line("iptables-legacy-restore: line 7 failed"),
            Some(7)
        );
        assert_eq!(named_line("unknown option on command line"), None);
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version("iptables v1.8.9 (nf_tables)"), Some([1, 8, 9]));
        assert_eq!(version("iptables v1.4.21"), Some([1, 4, 21]));
        assert_eq!(version("?"), None);
    }
}
