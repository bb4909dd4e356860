//! Where secrets come from and to which hosts they may go. The secrets themselves are never here.
//!
//! Who says where a secret comes from makes us read a file or run a command, and who says to which host it goes gets it. So
//! only the user's own file and the operator's may do the first, and the second is part of it.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::diagnostic::{Diagnostic, Invalid, quote};
use crate::header;
use crate::host::{HostPattern, NetRule};
use crate::path::LiteralPath;
use crate::policy::{Layer, NetMode, ResolvedPolicy, Sourced};
use crate::reader::{Reader, Written};
use crate::resolve::LayerInput;
use crate::section::values;
use crate::variable::{changes_code, check_name, check_value, covers_pass};
use crate::yaml::{Key, Node, Value};

pub(crate) const KEYS: [&str; 6] = ["from", "hosts", "header", "format", "env", "sign"];
pub(crate) const FROM_KEYS: [&str; 4] = ["env", "file", "keyring", "command"];

const BAD: &str = "policy::bad-credential";
const HOW: &str = "write it such as `{ from: { env: GITHUB_TOKEN }, hosts: [api.github.com] }`";
const FROM_HOW: &str = "write one of `{ env: NAME }`, `{ file: /PATH }`, `{ keyring: SERVICE/ACCOUNT }` and `{ command: [PROGRAM, WORD] }`";

/// One entry of `credentials`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CredentialPolicy {
    /// Where the host finds the secret.
    pub from: SecretSource,
    /// The only hosts that a rule may use it for.
    pub hosts: Vec<HostPattern>,
    /// The header that carries it, in small letters.
    pub header: String,
    /// How the secret is used.
    pub secret: SecretUse,
    /// The variable that holds its placeholder inside.
    pub env: Option<String>,
}

/// How a secret is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretUse {
    /// It is sent.
    Sent {
        /// What stands before it in its header. After `Basic ` the rest and the secret are sent in base64.
        prefix: String,
    },
    /// It is the key of a signature, and stays here.
    Signs,
}

/// Where a secret is found, by the host and right before it is needed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// A variable of the person who started us.
    Env(String),
    /// The contents of a file.
    File(LiteralPath),
    /// The keyring of the desktop.
    Keyring {
        /// The attribute `service`.
        service: String,
        /// The attribute `account`.
        account: String,
    },
    /// What a command prints.
    Command(Vec<String>),
}

impl CredentialPolicy {
    /// Whether a rule for `host` may use it.
    pub fn is_for(&self, host: &HostPattern) -> bool {
        self.hosts.iter().any(|known| known.covers(host))
    }

    /// How it stands in its header, with `{}` for the secret, where it is sent.
    pub fn format(&self) -> Option<String> {
        match &self.secret {
            SecretUse::Sent { prefix } => Some(format!("{prefix}{{}}")),
            SecretUse::Signs => None,
        }
    }
}

/// The name of a credential, as rules use it.
pub(crate) fn parse_name(text: &str) -> Result<String, Invalid> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if text.is_empty() || text.len() > 64 || !text.bytes().all(word) {
        let message = "`credential` is a name, never the secret itself";
        return Err(Invalid::new(BAD, message, "write a short name such as `github`"));
    }
    Ok(text.to_owned())
}

type Entries = Vec<(String, Written<CredentialPolicy>)>;

pub(crate) fn read_credentials(reader: &mut Reader<'_>, node: &Node) -> Option<Entries> {
    let Value::Map(entries) = &node.value else {
        reader.wrong_type(node, "credentials", "a map", &format!("name each credential, and for each {HOW}"));
        return None;
    };
    let read = |(key, node): &(Key, Node)| match parse_name(&key.text) {
        Ok(name) => read_one(reader, node).map(|credential| (name, credential)),
        Err(problem) => {
            reader.report(key.mark, problem);
            None
        }
    };
    Some(entries.iter().filter_map(read).collect())
}

fn read_one(reader: &mut Reader<'_>, node: &Node) -> Option<Written<CredentialPolicy>> {
    if !matches!(node.value, Value::Map(_)) {
        // What stands there may be the secret, so it is not repeated.
        let problem = Diagnostic::error(BAD, "a credential says where its secret comes from, and is never the secret");
        reader.report(node.mark, problem.advise(HOW));
        return None;
    }
    let fields = reader.fields(node, "credentials", &KEYS);
    let (Some(from), Some(hosts)) = (fields.get("from"), fields.get("hosts")) else {
        let message = "a credential has `from`, where its secret comes from, and `hosts`, to which it may go";
        reader.report(node.mark, Diagnostic::error(BAD, message).advise(HOW));
        return None;
    };
    let from = read_from(reader, from);
    let hosts = reader.list(hosts, "hosts", |reader, node| reader.scalar(node, "host", str::parse::<HostPattern>));
    let header = fields.get("header").map(|node| reader.scalar(node, "header", parse_header));
    let prefix = fields.get("format").map(|node| reader.scalar(node, "format", parse_format));
    let env = fields.get("env").map(|node| reader.scalar(node, "env", parse_variable));
    let sign = fields.get("sign").map(|node| reader.scalar(node, "sign", parse_sign));
    if sign.is_some()
        && let Some(useless) = ["format", "env"].into_iter().find(|key| fields.get(key).is_some())
    {
        let message = format!("a credential that signs is never sent, so `{useless}` means nothing");
        reader.report(node.mark, Diagnostic::error(BAD, message).advise(format!("remove `{useless}`, or `sign`")));
        return None;
    }
    let is_empty =
        fields.get("hosts").is_some_and(|node| matches!(&node.value, Value::List(items) if items.is_empty()));
    let mut hosts = values(hosts?);
    hosts.sort_unstable();
    hosts.dedup();
    if is_empty {
        let problem = Diagnostic::error(BAD, "`hosts` is empty, so the credential can go nowhere");
        reader.report(node.mark, problem.advise("list the hosts that the secret is for, such as `[api.github.com]`"));
        return None;
    }
    let header = match header {
        Some(header) => header?.value,
        None => AUTHORIZATION.to_owned(),
    };
    let secret = match (sign, prefix) {
        (Some(sign), _) => sign?.value,
        (None, Some(prefix)) => SecretUse::Sent { prefix: prefix?.value },
        (None, None) if header == AUTHORIZATION => SecretUse::Sent { prefix: "Bearer ".to_owned() },
        (None, None) => SecretUse::Sent { prefix: String::new() },
    };
    let env = match env {
        Some(env) => Some(env?.value),
        None => None,
    };
    Some(reader.written(node.mark, CredentialPolicy { from: from?, hosts, header, secret, env }))
}

fn read_from(reader: &mut Reader<'_>, node: &Node) -> Option<SecretSource> {
    let bad = |message: &str| Diagnostic::error(BAD, message).advise(FROM_HOW);
    if !matches!(node.value, Value::Map(_)) {
        reader.report(node.mark, bad("`from` says where the secret comes from, and is never the secret"));
        return None;
    }
    let fields = reader.fields(node, "from", &FROM_KEYS);
    let [env, file, keyring, command] = FROM_KEYS.map(|key| fields.get(key));
    match (env, file, keyring, command) {
        (Some(env), None, None, None) => {
            reader.scalar(env, "from.env", check_name).map(|name| SecretSource::Env(name.value))
        }
        (None, Some(file), None, None) => {
            reader.scalar(file, "from.file", parse_file).map(|path| SecretSource::File(path.value))
        }
        (None, None, Some(keyring), None) => {
            reader.scalar(keyring, "from.keyring", parse_keyring).map(|keyring| keyring.value)
        }
        (None, None, None, Some(command)) => {
            let words =
                reader.list(command, "from.command", |reader, node| reader.scalar(node, "from.command", check_value));
            let words = values(words?);
            if words.first().is_none_or(String::is_empty) {
                reader.report(command.mark, bad("`command` names no program"));
                return None;
            }
            // What it leads to would depend on where a run is started, such as in a repository.
            if words.first().is_some_and(|program| program.contains('/') && !program.starts_with('/')) {
                let problem =
                    Diagnostic::error(BAD, "`command` names its program neither from the root nor by its name");
                reader.report(command.mark, problem.advise("write it such as `/usr/bin/pass`, or `pass`"));
                return None;
            }
            Some(SecretSource::Command(words))
        }
        _ => {
            reader.report(node.mark, bad("`from` names one source"));
            None
        }
    }
}

fn parse_file(text: &str) -> Result<LiteralPath, Invalid> {
    let path: LiteralPath = text.parse()?;
    if !path.as_path().is_absolute() {
        let message = format!("{} is relative, but a secret's file is named from the root", quote(text));
        return Err(Invalid::new("policy::bad-path", message, "write it such as `/home/me/.secrets/github`"));
    }
    Ok(path)
}

fn parse_keyring(text: &str) -> Result<SecretSource, Invalid> {
    let plain = |part: &str| !part.is_empty() && !part.starts_with('-') && !part.chars().any(char::is_control);
    match text.split_once('/') {
        Some((service, account)) if plain(service) && plain(account) => {
            Ok(SecretSource::Keyring { service: service.to_owned(), account: account.to_owned() })
        }
        _ => Err(Invalid::new(BAD, format!("{} is not an entry of a keyring", quote(text)), "write `SERVICE/ACCOUNT`")),
    }
}

const AUTHORIZATION: &str = "authorization";
/// The one way to sign.
pub(crate) const HMAC_SHA256: &str = "hmac-sha256";

fn parse_header(text: &str) -> Result<String, Invalid> {
    header::parse_header(text, BAD, "holds no secret", "write it such as `Authorization` or `X-Api-Key`")
}

fn parse_sign(text: &str) -> Result<SecretUse, Invalid> {
    match text {
        HMAC_SHA256 => Ok(SecretUse::Signs),
        // A key may have been written here by mistake, so it is not repeated.
        _ => Err(Invalid::new(BAD, "this is no way to sign requests", format!("write `sign: {HMAC_SHA256}`"))),
    }
}

/// What stands before the secret.
fn parse_format(text: &str) -> Result<String, Invalid> {
    let plain =
        |front: &&str| front.len() <= 64 && !front.contains('{') && front.bytes().all(|b| (b' '..=b'~').contains(&b));
    text.strip_suffix("{}").filter(plain).map(str::to_owned).ok_or_else(|| {
        // A secret may have been written here by mistake, so it is not repeated.
        let message = "`format` is a short text that ends in `{}`, which stands for the secret";
        Invalid::new(BAD, message, "write it such as `Bearer {}` or `token {}`")
    })
}

fn parse_variable(text: &str) -> Result<String, Invalid> {
    let name = check_name(text)?;
    if changes_code(&name) {
        let message = format!("{} changes what code programs load, and holds no credential", quote(text));
        return Err(Invalid::new("policy::bad-variable", message, "choose another, such as `GITHUB_TOKEN`"));
    }
    Ok(name)
}

/// Who may not say where secrets come from, or through which proxy everything goes, and did.
pub(crate) fn check_layers(inputs: &[LayerInput], problems: &mut Vec<Diagnostic>) {
    const INSTEAD: &str = "put it into your own file, such as `~/.config/ringfence/policy.yaml`";
    let may_not = |layer: &Layer| !matches!(layer, Layer::User | Layer::Operator);
    for LayerInput { layer, file } in inputs.iter().filter(|input| may_not(&input.layer)) {
        for (name, written) in file.credentials.iter().flatten() {
            let message = format!(
                "the layer `{layer}` defines the credential `{name}`; only your own file and the operator's say where secrets come from"
            );
            let advice = format!("{INSTEAD}; a rule here can then say `credential: {name}` for one of its `hosts`");
            problems.push(located(Diagnostic::error("policy::credential-layer", message).advise(advice), written));
        }
        if let Some(upstream) = &file.net.upstream {
            let message = format!(
                "the layer `{layer}` sets `net.upstream`; only your own file and the operator's say through which proxy everything goes"
            );
            problems.push(located(Diagnostic::error("policy::upstream-layer", message).advise(INSTEAD), upstream));
        }
    }
}

fn located<T>(problem: Diagnostic, written: &Written<T>) -> Diagnostic {
    problem.at(Some(written.place.clone())).spanning(written.span.clone())
}

/// Rules that would send a secret elsewhere than to its hosts, and variables that would carry it inside.
pub(crate) fn check_uses(policy: &ResolvedPolicy, problems: &mut Vec<Diagnostic>) {
    if policy.net.mode.value == NetMode::None {
        return;
    }
    for rule in &policy.net.allow {
        let Some((name, credential)) = used(&policy.credentials, &rule.value) else { continue };
        if !credential.value.is_for(&rule.value.host) {
            let hosts: Vec<String> = credential.value.hosts.iter().map(ToString::to_string).collect();
            let message = format!(
                "the credential `{name}` is not for {}; it is for {} ({})",
                rule.value.host,
                hosts.join(", "),
                credential.origin
            );
            let advice = "take `credential` out of the rule, or add the host where the credential is defined";
            let problem = Diagnostic::error("policy::credential-host", message).advise(advice);
            problems.push(problem.at(rule.origin.place.clone()));
        }
        let passed = match &credential.value.from {
            SecretSource::Env(variable) if credential.value.env.as_ref() != Some(variable) => {
                policy.proc.env.pass.iter().find(|pass| covers_pass(&pass.value, variable))
            }
            SecretSource::Env(_) | SecretSource::File(_) | SecretSource::Keyring { .. } | SecretSource::Command(_) => {
                None
            }
        };
        if let Some(pass) = passed {
            let message = format!("`proc.env.pass` would show the program the secret of the credential `{name}`");
            let advice =
                format!("take `{}` out of `pass`, or give the credential `env` with the same name", pass.value);
            let problem = Diagnostic::error("policy::credential-passed", message).advise(advice);
            problems.push(problem.at(pass.origin.place.clone()));
        }
    }
}

/// The definition of the credential that a rule names, when there is one.
fn used<'p>(
    credentials: &'p BTreeMap<String, Sourced<CredentialPolicy>>,
    rule: &'p NetRule,
) -> Option<(&'p str, &'p Sourced<CredentialPolicy>)> {
    let name = rule.credential.as_deref()?;
    credentials.get(name).map(|credential| (name, credential))
}

/// As YAML reads it.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::show::{flow, scalar};
        match self {
            Self::Env(name) => write!(f, "{{ env: {} }}", scalar(name)),
            Self::File(path) => write!(f, "{{ file: {} }}", scalar(path.as_str())),
            Self::Keyring { service, account } => {
                write!(f, "{{ keyring: {} }}", scalar(&format!("{service}/{account}")))
            }
            Self::Command(words) => write!(f, "{{ command: {} }}", flow(words)),
        }
    }
}

impl fmt::Display for CredentialPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::show::{quoted, scalar};
        let hosts: Vec<String> = self.hosts.iter().map(|host| scalar(&host.to_string())).collect();
        write!(f, "{{ from: {}, hosts: [{}], header: {}", self.from, hosts.join(", "), scalar(&self.header))?;
        match self.format() {
            Some(format) => write!(f, ", format: {}", quoted(&format))?,
            None => write!(f, ", sign: {HMAC_SHA256}")?,
        }
        match &self.env {
            Some(env) => write!(f, ", env: {} }}", scalar(env)),
            None => f.write_str(" }"),
        }
    }
}

/// Of a command only its program: an outcome shows this, and the words after it may hold anything.
impl Serialize for SecretSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Env(name) => map.serialize_entry("env", name)?,
            Self::File(path) => map.serialize_entry("file", path)?,
            Self::Keyring { service, account } => map.serialize_entry("keyring", &format!("{service}/{account}"))?,
            Self::Command(words) => map.serialize_entry("command", &words.first())?,
        }
        map.end()
    }
}

impl Serialize for CredentialPolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(env) = &self.env {
            map.serialize_entry("env", env)?;
        }
        if let Some(format) = self.format() {
            map.serialize_entry("format", &format)?;
        }
        map.serialize_entry("from", &self.from)?;
        map.serialize_entry("header", &self.header)?;
        map.serialize_entry("hosts", &self.hosts)?;
        if self.secret == SecretUse::Signs {
            map.serialize_entry("sign", HMAC_SHA256)?;
        }
        map.end()
    }
}
