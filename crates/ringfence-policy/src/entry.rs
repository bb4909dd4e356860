//! Reads the entries of lists: one mount, one network rule, one command rule.

use crate::budget::NetBudget;
use crate::command::{CommandRule, Reading, Verdict};
use crate::credential;
use crate::diagnostic::{Diagnostic, Invalid, quote};
use crate::header;
use crate::host::{HostPattern, NetRule};
use crate::name::Named;
use crate::path::Glob;
use crate::policy::{Mount, MountMode, NetProtocol};
use crate::reader::{Fields, Reader, Written};
use crate::section::{parse_amount, parse_source, parse_target, read_ports, values};
use crate::variable::check_value;
use crate::yaml::{Mark, Node, Value};

pub(crate) const MOUNT_KEYS: [&str; 5] = ["host", "at", "mode", "tmpfs", "size"];
pub(crate) const RULE_KEYS: [&str; 10] =
    ["host", "ports", "methods", "paths", "inspect", "protocol", "credential", "acknowledge", "budget", "strip"];
/// Those that say how a host is reached, which a rule that denies has no use for.
const ALLOW_ONLY: [&str; 6] = ["inspect", "protocol", "credential", "acknowledge", "budget", "strip"];
pub(crate) const COMMAND_KEYS: [&str; 8] = ["allow", "ask", "deny", "reading", "why", "instead", "matches", "rejects"];

pub(crate) fn read_mounts(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<Written<Mount>>> {
    let mounts: Vec<Written<Mount>> = reader.list(node, "fs.mounts", read_mount)?;
    for (index, mount) in mounts.iter().enumerate() {
        let target = mount.value.target();
        if let Some(earlier) = mounts.iter().take(index).find(|earlier| earlier.value.target() == target) {
            let message = format!("something is already mounted at `{target}`, on line {}", earlier.place.line);
            let problem = Diagnostic::error("policy::duplicate-mount", message).advise("give each mount its own place");
            let mark = Mark {
                line: mount.place.line,
                column: mount.place.column,
                start: mount.span.start,
                end: mount.span.end,
            };
            reader.report(mark, problem);
        }
    }
    Some(mounts)
}

const MOUNT_HOW: &str = "write `{ host: ./deps, at: /deps, mode: read-only }` or `{ tmpfs: /tmp, size: 256MiB }`";

fn read_mount(reader: &mut Reader<'_>, node: &Node) -> Option<Written<Mount>> {
    if !matches!(node.value, Value::Map(_)) {
        reader.wrong_type(node, "fs.mounts", "a list of maps", MOUNT_HOW);
        return None;
    }
    let fields = reader.fields(node, "fs.mounts", &MOUNT_KEYS);
    let mount =
        match (fields.get("host"), fields.get("at"), fields.get("mode"), fields.get("tmpfs"), fields.get("size")) {
            (Some(host), Some(at), mode, None, None) => {
                let host = reader.scalar(host, "host", parse_source);
                let at = reader.scalar(at, "at", parse_target);
                // What is not said is the narrower: a mount without a mode cannot be changed.
                let mode = match mode {
                    Some(mode) => reader.scalar(mode, "mode", MountMode::read)?.value,
                    None => MountMode::ReadOnly,
                };
                Mount::Host { host: host?.value, at: at?.value, mode }
            }
            (None, None, None, Some(tmpfs), Some(size)) => {
                let tmpfs = reader.scalar(tmpfs, "tmpfs", parse_target);
                let size = reader.scalar(size, "size", parse_amount);
                Mount::Tmpfs { tmpfs: tmpfs?.value, size: size?.value }
            }
            _ => {
                let message = "a mount has `host` and `at`, or `tmpfs` and `size`";
                reader.report(node.mark, Diagnostic::error("policy::mount", message).advise(MOUNT_HOW));
                return None;
            }
        };
    Some(reader.written(node.mark, mount))
}

pub(crate) fn read_allow(reader: &mut Reader<'_>, node: &Node) -> Option<Written<NetRule>> {
    let Written { value, place, span } = read_rule(reader, node, "net.allow")?;
    if let Some((message, advice)) = contradiction(&value) {
        reader.report(node.mark, Diagnostic::error("policy::bad-rule", message).advise(advice));
        return None;
    }
    Some(Written { value: value.with_web_ports(), place, span })
}

pub(crate) fn read_deny(reader: &mut Reader<'_>, node: &Node) -> Option<Written<NetRule>> {
    if let Value::Map(entries) = &node.value {
        for (key, _) in entries.iter().filter(|(key, _)| ALLOW_ONLY.contains(&key.text.as_str())) {
            let message = format!("a rule that denies needs no {}", key.text);
            let problem = Diagnostic::error("policy::bad-rule", message).advise(format!("remove `{}`", key.text));
            reader.report(node.mark, problem);
        }
    }
    read_rule(reader, node, "net.deny")
}

/// What no connection could satisfy, or would be meant otherwise.
fn contradiction(rule: &NetRule) -> Option<(&'static str, &'static str)> {
    if rule.protocol != NetProtocol::Tcp {
        return None;
    }
    let looks = rule.inspects() || !rule.methods.is_empty() || !rule.paths.is_empty();
    if looks {
        let message = "`protocol: tcp` lets anything be spoken, so nothing of it can be looked at";
        return Some((message, "remove `protocol`, or `inspect`, `methods`, `paths`, `credential` and `strip`"));
    }
    let message = "a rule with `protocol: tcp` names no port";
    rule.ports.is_empty().then_some((message, "name the ports, such as `ports: [22]`"))
}

fn read_rule(reader: &mut Reader<'_>, node: &Node, path: &str) -> Option<Written<NetRule>> {
    if !matches!(node.value, Value::Map(_)) {
        return reader.scalar(node, path, NetRule::parse_plain);
    }
    let fields = reader.fields(node, path, &RULE_KEYS);
    let Some(host) = fields.get("host") else {
        let problem = Diagnostic::error("policy::bad-rule", format!("a rule of `{path}` names no host"));
        reader.report(node.mark, problem.advise("write it such as `{ host: api.github.com, methods: [GET] }`"));
        return None;
    };
    let host = reader.scalar(host, "host", str::parse::<HostPattern>);
    let ports = fields.get("ports").map(|node| read_ports(reader, node, "ports"));
    let methods = fields
        .get("methods")
        .map(|node| reader.list(node, "methods", |reader, node| reader.scalar(node, "methods", parse_method)));
    let paths = fields
        .get("paths")
        .map(|node| reader.list(node, "paths", |reader, node| reader.scalar(node, "paths", parse_url_path)));
    let credential = fields.get("credential").map(|node| reader.scalar(node, "credential", credential::parse_name));
    let inspect = fields.get("inspect").map(|node| reader.scalar(node, "inspect", parse_flag));
    let acknowledge = fields.get("acknowledge").map(|node| reader.scalar(node, "acknowledge", parse_flag));
    let protocol = fields.get("protocol").map(|node| reader.scalar(node, "protocol", NetProtocol::read));
    let budget = fields.get("budget").map(|node| NetBudget::read_of_rule(reader, node));
    let strip = fields
        .get("strip")
        .map(|node| reader.list(node, "strip", |reader, node| reader.scalar(node, "strip", parse_stripped)));
    // An empty list would read as "none" and mean "all".
    for key in ["ports", "methods", "paths"] {
        let empty = fields.get(key).is_some_and(|node| matches!(&node.value, Value::List(items) if items.is_empty()));
        if empty {
            let problem = Diagnostic::error("policy::bad-rule", format!("`{key}` is empty, so the rule means nothing"));
            reader.report(node.mark, problem.advise(format!("list at least one, or remove `{key}` to mean all")));
        }
    }
    if fields.get("strip").is_some_and(|node| matches!(&node.value, Value::List(items) if items.is_empty())) {
        let problem = Diagnostic::error("policy::bad-rule", "`strip` is empty, so nothing is left out");
        reader.report(node.mark, problem.advise("list at least one header, or remove `strip`"));
    }
    let mut rule = NetRule::new(host?.value);
    rule.ports = values(ports.unwrap_or_else(|| Some(Vec::new()))?);
    rule.methods = values(methods.unwrap_or_else(|| Some(Vec::new()))?);
    rule.paths = values(paths.unwrap_or_else(|| Some(Vec::new()))?);
    rule.credential = match credential {
        Some(credential) => Some(credential?.value),
        None => None,
    };
    rule.strip = values(strip.unwrap_or_else(|| Some(Vec::new()))?);
    rule.strip.sort_unstable();
    rule.strip.dedup();
    rule.inspect = match inspect {
        Some(inspect) => inspect?.value,
        // The proxy has to write into the request, so it has to see it.
        None => rule.inspects(),
    };
    if !rule.inspect && rule.inspects() {
        let (message, advice) = if rule.credential.is_some() {
            (
                "a rule with a credential has `inspect: false`, but the proxy has to open TLS to add it",
                "remove `inspect`, or `credential`",
            )
        } else {
            (
                "a rule with `strip` has `inspect: false`, but the proxy has to open TLS to find headers",
                "remove `inspect`, or `strip`",
            )
        };
        reader.report(node.mark, Diagnostic::error("policy::bad-rule", message).advise(advice));
        return None;
    }
    if let Some(acknowledge) = acknowledge {
        rule.acknowledge = acknowledge?.value;
    }
    if let Some(protocol) = protocol {
        rule.protocol = protocol?.value;
    }
    rule.budget = budget.unwrap_or_default();
    rule.ports.sort_unstable();
    rule.ports.dedup();
    rule.methods.sort_unstable();
    rule.methods.dedup();
    Some(reader.written(node.mark, rule))
}

fn parse_method(text: &str) -> Result<String, Invalid> {
    if !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Ok(text.to_owned());
    }
    let upper = text.to_ascii_uppercase();
    let advice = match upper.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => format!("write `{upper}`"),
        _ => "write it in capitals, such as `GET`".to_owned(),
    };
    Err(Invalid::new("policy::bad-method", format!("{} is not an HTTP method", quote(text)), advice))
}

fn parse_url_path(text: &str) -> Result<Glob, Invalid> {
    if !text.starts_with('/') {
        let message = format!("the URL path {} does not start with `/`", quote(text));
        return Err(Invalid::new("policy::bad-rule", message, format!("write `/{}`", text.trim_start_matches('.'))));
    }
    text.parse::<Glob>()?.compiled()
}

fn parse_stripped(text: &str) -> Result<String, Invalid> {
    const HOW: &str = "name headers that are to be left out, such as `Cookie`";
    header::parse_header(text, "policy::bad-rule", "cannot be left out", HOW)
}

fn parse_flag(text: &str) -> Result<bool, Invalid> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            let message = format!("{} is neither `true` nor `false`", quote(text));
            Err(Invalid::new("policy::unknown-word", message, "write `true` or `false`"))
        }
    }
}

pub(crate) fn read_command(reader: &mut Reader<'_>, node: &Node) -> Option<Written<CommandRule>> {
    const HOW: &str = "write it such as `- deny: [rm, -rf, /]`, with one of `allow`, `ask` and `deny`";
    if !matches!(node.value, Value::Map(_)) {
        reader.wrong_type(node, "commands", "a list of rules", HOW);
        return None;
    }
    let fields = reader.fields(node, "commands", &COMMAND_KEYS);
    let verdicts: Vec<(Verdict, &Node)> =
        Verdict::ALL.iter().filter_map(|(name, verdict)| fields.get(name).map(|node| (*verdict, node))).collect();
    let [(verdict, words)] = verdicts.as_slice() else {
        let message =
            if verdicts.is_empty() { "the rule has no verdict" } else { "the rule has more than one verdict" };
        reader.report(node.mark, Diagnostic::error("policy::command", message).advise(HOW));
        return None;
    };
    if let Value::Scalar(text, _) = &words.value {
        let message = format!("`{}` must be a list of words, not {}", verdict.name(), quote(text));
        let problem = Diagnostic::error("policy::command", message).advise(word_per_item(text));
        reader.report(words.mark, problem);
        return None;
    }
    let mut texts = |key: &str, node: Option<&Node>| match node {
        Some(node) => reader.list(node, key, |reader, node| reader.scalar(node, key, check_value)).map(values),
        None => Some(Vec::new()),
    };
    let prefix = texts(verdict.name(), Some(words));
    let matches = texts("matches", fields.get("matches"));
    let rejects = texts("rejects", fields.get("rejects"));
    let why = fields.get("why").and_then(|node| reader.scalar(node, "why", check_value)).map(|why| why.value);
    let instead = fields.get("instead").and_then(|node| reader.scalar(node, "instead", check_value)).map(|it| it.value);
    let reading = read_reading(reader, *verdict, fields.get("reading"));
    let prefix = prefix?;
    if prefix.first().is_none_or(String::is_empty) {
        let message = "the rule names no program";
        reader.report(words.mark, Diagnostic::error("policy::command", message).advise(HOW));
        return None;
    }
    if let [only] = prefix.as_slice()
        && only.contains(' ')
    {
        let message = format!("{} is one word with a space in it, which matches no command", quote(only));
        let problem = Diagnostic::error("policy::command", message).advise(word_per_item(only));
        reader.report(node.mark, problem);
        return None;
    }
    let rule = CommandRule {
        verdict: *verdict,
        prefix,
        reading: reading?,
        why,
        instead,
        matches: matches?,
        rejects: rejects?,
    };
    check_examples(reader, &rule, &fields);
    Some(reader.written(node.mark, rule))
}

/// What a rule says of commands that only read.
fn read_reading(reader: &mut Reader<'_>, verdict: Verdict, node: Option<&Node>) -> Option<Reading> {
    let Some(node) = node else { return Some(Reading::default()) };
    if verdict != Verdict::Ask {
        let message = format!("a rule with `{}` says nothing of reading", verdict.name());
        let advice = "remove `reading`; it belongs to rules with `ask`";
        reader.report(node.mark, Diagnostic::error("policy::command", message).advise(advice));
        return None;
    }
    reader.scalar(node, "reading", Reading::read).map(|reading| reading.value)
}

fn word_per_item(text: &str) -> String {
    let words: Vec<String> =
        text.split_whitespace().take(8).map(|word| quote(word).trim_matches('`').to_owned()).collect();
    format!("write one word per item: `[{}]`", words.join(", "))
}

/// Points at the example that fails, not at the rule.
fn check_examples(reader: &mut Reader<'_>, rule: &CommandRule, fields: &Fields<'_>) {
    let marks =
        ["matches", "rejects"].into_iter().filter_map(|key| fields.get(key)).flat_map(|node| match &node.value {
            Value::List(items) => items.iter().map(|item| item.mark).collect(),
            Value::Null | Value::Scalar(..) | Value::Map(_) => Vec::new(),
        });
    for (result, mark) in rule.check_examples().into_iter().zip(marks) {
        if let Some(problem) = result.complaint() {
            reader.report(mark, problem);
        }
    }
}
