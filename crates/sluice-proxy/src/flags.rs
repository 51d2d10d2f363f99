//! The command line: kube-proxy's flags, and ours.
//!
//! One table ([`table::FLAGS`]) holds every flag with its help, whether it survives `--config`, and
//! what it writes into [`Typed`]. clap does the reading and the help page.

mod table;
mod value;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};

use crate::config::{self, Config, ConfigError, ConfigNote, Typed};
use table::{FLAGS, Flag, Kept, Shape};

/// The version of Kubernetes whose kube-proxy this one stands in for.
pub const KUBERNETES_VERSION: &str = "v1.36.2";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation {
    /// What to do.
    pub task: Task,
    /// `--config`.
    pub config_file: Option<PathBuf>,
    /// `--manifests`: read the cluster from this file or folder.
    pub manifests: Option<PathBuf>,
    /// `--master`: the API server's address, empty for that of the kubeconfig.
    pub master: String,
    /// Everything else that was given, by name without dashes, in the order given.
    pub given: Vec<(&'static str, String)>,
}

/// What to do. `--write-config-to` wins over cleaning up, which wins over the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Run the proxy.
    Run,
    /// Do the privileged set-up only.
    InitOnly,
    /// Remove the rules of all modes.
    Cleanup,
    /// Write the configuration in effect to this file.
    WriteConfig(PathBuf),
    /// Print this and be done: help or version.
    Print(String),
}

/// A command line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The reader of the command line says why: unknown flag, missing value, stray argument.
    #[error("{0}")]
    Usage(String),
    /// A flag's value.
    #[error("invalid value {value:?} for --{flag}: {why}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What it said.
        value: String,
        /// What it must be.
        why: &'static str,
    },
}

/// A configuration with what there is to say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration in effect.
    pub config: Config,
    /// Remarks about the file, and flags that it silenced.
    pub notes: Vec<ConfigNote>,
}

/// Reads a command line, the program's name not included.
pub fn parse(args: impl Iterator<Item = OsString>) -> Result<Invocation, FlagError> {
    let args = args.map(normalised);
    let program = std::iter::once(OsString::from("kube-proxy"));
    let matches = match command().try_get_matches_from(program.chain(args)) {
        Ok(matches) => matches,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return Ok(Invocation::print(error.to_string()));
        }
        Err(error) => return Err(FlagError::Usage(usage_text(&error))),
    };
    let mut given = Vec::new();
    for flag in FLAGS {
        for value in matches.get_many::<String>(flag.name).into_iter().flatten() {
            let place = matches.indices_of(flag.name).and_then(|mut at| at.next());
            given.push((place.unwrap_or_default(), flag, value.clone()));
        }
    }
    given.sort_by_key(|(place, _, _)| *place);
    let given = given.into_iter().map(|(_, flag, value)| (flag, value));
    Invocation::new(given.collect())
}

impl Invocation {
    fn print(text: String) -> Invocation {
        Invocation {
            task: Task::Print(text),
            config_file: None,
            manifests: None,
            master: String::new(),
            given: Vec::new(),
        }
    }

    fn new(given: Vec<(&'static Flag, String)>) -> Result<Invocation, FlagError> {
        let mut scratch = Typed::default();
        for (flag, value) in &given {
            (flag.apply)(value, &mut scratch).map_err(|why| FlagError::Value {
                flag: flag.name,
                value: value.clone(),
                why,
            })?;
        }
        let last = |name: &str| {
            let found = given.iter().rev().find(|(flag, _)| flag.name == name);
            found.map(|(_, value)| value.as_str())
        };
        let path = |name| {
            last(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let on = |name| last(name).is_some_and(|value| value::boolean(value) == Ok(true));
        if let Some(value) = last("version").filter(|value| *value != "false") {
            return Ok(Invocation::print(version(value)));
        }
        let task = match path("write-config-to") {
            Some(file) => Task::WriteConfig(file),
            None if on("cleanup") => Task::Cleanup,
            None if on("init-only") => Task::InitOnly,
            None => Task::Run,
        };
        Ok(Invocation {
            task,
            config_file: path("config"),
            manifests: path("manifests"),
            master: last("master").unwrap_or_default().to_owned(),
            given: given
                .into_iter()
                .map(|(flag, value)| (flag.name, value))
                .collect(),
        })
    }

    /// The configuration that this command line means, the file of `--config` read from disk.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let Some(path) = &self.config_file else {
            return self.load_text(None);
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.display().to_string(),
            source,
        })?;
        self.load_text(Some((path, &text)))
    }

    /// The same with the file's path and text in hand. With a file, only the flags that survive
    /// one count; the others are named in the notes.
    pub fn load_text(&self, file: Option<(&Path, &str)>) -> Result<Loaded, ConfigError> {
        let (mut typed, mut notes) = match file {
            Some((path, text)) => config::read(&path.display().to_string(), text)?,
            None => (Typed::default(), Vec::new()),
        };
        let vmodule = std::mem::take(&mut typed.logging.vmodule);
        let mut silenced: Vec<&str> = Vec::new();
        for (name, value) in &self.given {
            let Some(flag) = FLAGS.iter().find(|flag| flag.name == *name) else {
                continue;
            };
            match flag.kept {
                Kept::WithoutConfig if file.is_some() => silenced.push(flag.name),
                // Values were tried when the command line was read.
                Kept::WithoutConfig | Kept::Always => {
                    (flag.apply)(value, &mut typed).ok();
                }
            }
        }
        typed.logging.vmodule.extend(vmodule);
        if file.is_none() {
            table::after_flags(&mut typed);
        } else if let (Some((path, _)), false) = (file, silenced.is_empty()) {
            silenced.dedup();
            notes.push(ConfigNote {
                file: path.display().to_string(),
                place: Default::default(),
                text: format!(
                    "flags without effect beside --config: --{}; set the keys in the file instead",
                    silenced.join(", --")
                ),
            });
        }
        self.check_hostname(&typed)?;
        let config = Config::resolve(typed)?;
        Ok(Loaded { config, notes })
    }

    /// A blank override is a mistake of a template, not a wish for the machine's own name.
    fn check_hostname(&self, typed: &Typed) -> Result<(), ConfigError> {
        let blank = |text: &String| !text.is_empty() && text.trim().is_empty();
        match typed.hostname_override.as_ref().filter(|text| blank(text)) {
            Some(_) => Err(ConfigError::BlankNodeName),
            None => Ok(()),
        }
    }
}

/// What `--version` prints. Tools read the first line, so our own name follows after it.
fn version(value: &str) -> String {
    let ours = env!("CARGO_PKG_VERSION");
    let shown = if value.starts_with('v') {
        value
    } else {
        KUBERNETES_VERSION
    };
    format!("Kubernetes {shown} (Sluice {ours})\n")
}

/// `_` may stand for `-` in the name of a flag.
fn normalised(arg: OsString) -> OsString {
    let Some(text) = arg.to_str() else { return arg };
    if !text.starts_with("--") {
        return arg;
    }
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

fn command() -> Command {
    let mut command = Command::new("kube-proxy")
        .about("Sluice: a drop-in kube-proxy for Linux")
        .override_usage("kube-proxy [flags]")
        .disable_version_flag(true)
        .args_override_self(true);
    for flag in FLAGS {
        command = command.arg(argument(flag));
    }
    command
}

fn argument(flag: &Flag) -> Arg {
    let mut arg = Arg::new(flag.name)
        .long(flag.name)
        .help(flag.help)
        .allow_hyphen_values(true)
        .hide(flag.help.is_empty());
    if flag.name == "v" {
        arg = arg.short('v');
    }
    match flag.shape {
        // A switch takes a value only after `=`, as `--cleanup=false`.
        Shape::Switch => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_name("true|false"),
        Shape::One(value_name) => arg.action(ArgAction::Set).value_name(value_name),
        Shape::Many(value_name) => arg.action(ArgAction::Append).value_name(value_name),
    }
}

/// The library's message without its "error: " and with the remedy.
fn usage_text(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    format!("{line} (kube-proxy --help lists the flags)")
}
