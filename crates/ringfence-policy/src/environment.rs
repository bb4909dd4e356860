//! The layer that comes from environment variables: `RINGFENCE_*`, and names that existing agents already set.
//!
//! The caller hands the variables in; nothing here reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::diagnostic::{Diagnostic, Invalid, nearest, quote};
use crate::file::{PolicyFile, Written};
use crate::name::Named;
use crate::policy::{BackendChoice, BackendKind, Layer, NetMode, Place, WorkspaceMode, WorkspaceSource};
use crate::resolve::LayerInput;
use crate::section::{parse_amount, parse_count, parse_memory};
use crate::units::TimeSpan;
use crate::validate::ValidateLevel;
use crate::variable::check_pass;

/// Variables that set a value of the policy.
pub const VARIABLES: [&str; 16] = [
    "RINGFENCE_BACKEND",
    "RINGFENCE_FALLBACK",
    "RINGFENCE_RUNTIME",
    "RINGFENCE_IMAGE",
    "RINGFENCE_TIMEOUT",
    "RINGFENCE_MAX_TIMEOUT",
    "RINGFENCE_MEMORY",
    "RINGFENCE_CPUS",
    "RINGFENCE_PROCESSES",
    "RINGFENCE_OUTPUT",
    "RINGFENCE_NET",
    "RINGFENCE_ALLOW_HOSTS",
    "RINGFENCE_WORKSPACE_MODE",
    "RINGFENCE_WORKSPACE_SOURCE",
    "RINGFENCE_PASS_ENV",
    "RINGFENCE_VALIDATE",
];

/// Variables with our prefix that other rooms read, so they are not mistakes here.
pub const RESERVED_VARIABLES: [&str; 9] = [
    "RINGFENCE_LOG",
    "RINGFENCE_STATE_DIR",
    "RINGFENCE_POLICY",
    "RINGFENCE_CONFIG_DIR",
    "RINGFENCE_OPERATOR_POLICY",
    "RINGFENCE_BIN",
    "RINGFENCE_RUN_ID",
    "RINGFENCE_FILES",
    "RINGFENCE_UPSTREAM_CREDENTIAL",
];

/// What variables for our own tests begin with: a program that tests start sees them.
const OF_TESTS: &str = "RINGFENCE_TEST_";

/// Names of other programs that mean the same. A `RINGFENCE_*` variable wins over them.
pub const ALIASES: [&str; 3] = ["SECURITY_ENABLE_SANDBOX", "SECURITY_DOCKER_IMAGE", "SECURITY_MAX_EXECUTION_TIME"];

const PREFIX: &str = "RINGFENCE_";
const BAD: &str = "environment::bad-value";

/// The layer that `vars` make, `None` when none of them is ours.
pub fn environment_layer(
    vars: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Option<LayerInput>, Vec<Diagnostic>> {
    let mut variables = Variables { found: BTreeMap::new(), problems: Vec::new() };
    for (name, value) in vars {
        // A name that is not UTF-8 is none of ours.
        if let Some(name) = name.to_str() {
            variables.take(name, value);
        }
    }
    let found = !variables.found.is_empty();
    let file = variables.read();
    if !variables.problems.is_empty() {
        return Err(variables.problems);
    }
    Ok(found.then_some(LayerInput { layer: Layer::Environment, file }))
}

struct Variables {
    found: BTreeMap<String, String>,
    problems: Vec<Diagnostic>,
}

impl Variables {
    fn take(&mut self, name: &str, value: OsString) {
        if VARIABLES.contains(&name) || ALIASES.contains(&name) {
            match value.into_string() {
                Ok(value) => {
                    self.found.insert(name.to_owned(), value);
                }
                Err(_) => self.report(name, Invalid::new(BAD, "the value is not UTF-8", "write it in plain letters")),
            }
        } else if name.starts_with(PREFIX) && !name.starts_with(OF_TESTS) && !RESERVED_VARIABLES.contains(&name) {
            let known = VARIABLES.into_iter().chain(RESERVED_VARIABLES);
            // Compared without the prefix: all names share it, so with it every name would look near.
            let rest = name.strip_prefix(PREFIX).unwrap_or(name);
            let near = nearest(rest, known.map(|known| known.strip_prefix(PREFIX).unwrap_or(known)));
            let advice = match near {
                Some(near) => format!("did you mean `{PREFIX}{near}`? Otherwise unset it"),
                None => "unset it; the names are in the documentation of the environment layer".to_owned(),
            };
            let message = format!("{} is not a variable that we know", quote(name));
            self.report(name, Invalid::new("environment::unknown", message, advice));
        }
    }

    fn report(&mut self, name: &str, problem: Invalid) {
        let place = Place { file: quote(name).trim_matches('`').into(), line: 0, column: 0 };
        self.problems.push(Diagnostic::from(problem).at(Some(place)));
    }

    fn one<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, Invalid>) -> Option<Written<T>> {
        let text = self.found.get(name)?.clone();
        if text.is_empty() {
            self.report(name, Invalid::new(BAD, "the value is empty", "give it a value, or unset it"));
            return None;
        }
        match parse(&text) {
            Ok(value) => Some(Written::outside(value, name)),
            Err(problem) => {
                self.report(name, problem);
                None
            }
        }
    }

    /// A comma-separated list; an empty value is an empty list.
    fn list<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, Invalid>) -> Option<Vec<Written<T>>> {
        let text = self.found.get(name)?.clone();
        let mut list = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match parse(item) {
                Ok(value) => list.push(Written::outside(value, name)),
                Err(problem) => self.report(name, problem),
            }
        }
        Some(list)
    }

    fn read(&mut self) -> PolicyFile {
        let mut file = PolicyFile {
            backend: self.one("RINGFENCE_BACKEND", BackendChoice::read),
            fallback: self.list("RINGFENCE_FALLBACK", BackendKind::read),
            runtime: self.one("RINGFENCE_RUNTIME", str::parse),
            image: self.one("RINGFENCE_IMAGE", str::parse),
            ..PolicyFile::default()
        };
        file.proc.timeout = self.one("RINGFENCE_TIMEOUT", str::parse);
        file.proc.max_timeout = self.one("RINGFENCE_MAX_TIMEOUT", str::parse);
        file.proc.memory = self.one("RINGFENCE_MEMORY", parse_memory);
        file.proc.cpus = self.one("RINGFENCE_CPUS", str::parse);
        file.proc.processes = self.one("RINGFENCE_PROCESSES", parse_count);
        file.proc.output = self.one("RINGFENCE_OUTPUT", parse_amount);
        file.proc.pass = self.list("RINGFENCE_PASS_ENV", check_pass);
        file.net.mode = self.one("RINGFENCE_NET", NetMode::read);
        file.net.allow = self.list("RINGFENCE_ALLOW_HOSTS", str::parse);
        if file.net.mode.is_none() && file.net.allow.as_ref().is_some_and(|list| !list.is_empty()) {
            // Who names hosts wants them reached.
            file.net.mode = Some(Written::outside(NetMode::Allowlist, "RINGFENCE_ALLOW_HOSTS"));
        }
        file.fs.mode = self.one("RINGFENCE_WORKSPACE_MODE", WorkspaceMode::read);
        file.fs.source = self.one("RINGFENCE_WORKSPACE_SOURCE", WorkspaceSource::read);
        file.validate.level = self.one("RINGFENCE_VALIDATE", ValidateLevel::read);
        if let (Some(timeout), Some(max)) = (&file.proc.timeout, &file.proc.max_timeout)
            && timeout.value > max.value
        {
            let message =
                format!("the time limit is {}, above RINGFENCE_MAX_TIMEOUT, which is {}", timeout.value, max.value);
            self.report(
                "RINGFENCE_TIMEOUT",
                Invalid::new("policy::timeout-above-max", message, "lower one or raise the other"),
            );
        }
        self.read_aliases(&mut file);
        file
    }

    fn read_aliases(&mut self, file: &mut PolicyFile) {
        if let Some(image) = self.one("SECURITY_DOCKER_IMAGE", str::parse) {
            file.image.get_or_insert(image);
        }
        if let Some(limit) = self.one("SECURITY_MAX_EXECUTION_TIME", parse_seconds) {
            let timeout = file.proc.timeout.get_or_insert_with(|| limit.clone()).value;
            // A time limit of our own wins, even above the ceiling of the alias.
            if timeout <= limit.value {
                file.proc.max_timeout.get_or_insert(limit);
            }
        }
        // The other way round as well: a ceiling of our own bounds the limit of the alias.
        if let (Some(timeout), Some(max)) = (&mut file.proc.timeout, &file.proc.max_timeout)
            && *timeout.place.file == *"SECURITY_MAX_EXECUTION_TIME"
            && timeout.value > max.value
        {
            timeout.value = max.value;
        }
        let name = "SECURITY_ENABLE_SANDBOX";
        match self.one(name, parse_switch) {
            Some(Written { value: Switch::On, .. }) if file.backend.is_none() => {
                file.require_isolation = Some(Written::outside((), name));
            }
            Some(Written { value: Switch::Off, .. }) if file.backend.is_none() => {
                file.backend = Some(Written::outside(BackendChoice::Kind(BackendKind::None), name));
            }
            Some(_) | None => {}
        }
    }
}

enum Switch {
    On,
    Off,
}

fn parse_switch(text: &str) -> Result<Switch, Invalid> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(Switch::On),
        "false" | "0" | "no" | "off" => Ok(Switch::Off),
        _ => Err(Invalid::new(BAD, format!("{} is neither yes nor no", quote(text)), "write `true` or `false`")),
    }
}

/// Other programs write seconds without a unit.
fn parse_seconds(text: &str) -> Result<TimeSpan, Invalid> {
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') { format!("{text}s").parse() } else { text.parse() }
}
