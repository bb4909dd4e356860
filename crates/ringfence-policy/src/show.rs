//! The resolved policy as a policy file in which every line says who set it.

use std::fmt;

use crate::command::{CommandRule, Reading};
use crate::host::NetRule;
use crate::image::ImageKind;
use crate::name::Named;
use crate::policy::{Mount, NetProtocol, Origin, ResolvedPolicy, Sourced};

/// The column at which comments stand, unless a line is longer.
const MAX_WIDTH: usize = 56;

/// YAML that parses again and, held as a floor over itself, resolves to the same values.
pub fn show(policy: &ResolvedPolicy) -> String {
    let mut page = Page { lines: Vec::new() };
    page.plain("version: 1");
    page.plain("backend:");
    page.value("  use", policy.backend.choice.value.name(), &policy.backend.choice.origin);
    page.list("  fallback", &policy.backend.fallback, |kind| kind.name().to_owned());
    if let Some(runtime) = &policy.backend.runtime {
        page.value("  runtime", &scalar(runtime.value.as_str()), &runtime.origin);
    }
    page.plain("image:");
    if let Some(image) = &policy.image {
        let key = match image.value.kind() {
            ImageKind::Build(_) => "  build",
            ImageKind::Reference | ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. } => "  name",
        };
        page.value(key, &scalar(image.value.as_str()), &image.origin);
    }
    page.value("  pull", policy.image_pull.value.name(), &policy.image_pull.origin);
    page.list("cache", &policy.cache, |kind| kind.name().to_owned());

    let fs = &policy.fs;
    page.plain("fs:");
    page.plain("  workspace:");
    page.value("    path", &scalar(fs.workspace.value.as_str()), &fs.workspace.origin);
    page.value("    mode", fs.mode.value.name(), &fs.mode.origin);
    page.value("    source", fs.source.value.name(), &fs.source.origin);
    page.list("  mounts", &fs.mounts, |mount| Mounted(mount).to_string());
    page.list("  deny", &fs.deny, |glob| scalar(glob.as_str()));
    page.list("  protect", &fs.protect, |glob| scalar(glob.as_str()));
    page.value("  size", &fs.size.value.to_string(), &fs.size.origin);

    let net = &policy.net;
    page.plain("net:");
    page.value("  mode", net.mode.value.name(), &net.mode.origin);
    page.list("  allow", &net.allow, |rule| rule_text(rule, &NetRule::WEB_PORTS));
    page.list("  deny", &net.deny, |rule| rule_text(rule, &[]));
    page.list("  localhost", &net.localhost, u16::to_string);
    page.list("  unix", &net.unix, |path| scalar(path.as_str()));
    page.value("  budget", &net.budget.value.to_string(), &net.budget.origin);
    page.value("  unknown", net.unknown.value.name(), &net.unknown.origin);
    if let Some(upstream) = &net.upstream {
        page.value("  upstream", &quoted(&upstream.value.to_string()), &upstream.origin);
    }
    page.plain(if policy.credentials.is_empty() { "credentials: {}" } else { "credentials:" });
    for (name, credential) in &policy.credentials {
        page.value(&format!("  {}", scalar(name)), &credential.value.to_string(), &credential.origin);
    }

    let proc = &policy.proc;
    page.plain("proc:");
    page.value("  user", &format!("\"{}\"", proc.user.value), &proc.user.origin);
    page.value("  cpus", &proc.cpus.value.to_string(), &proc.cpus.origin);
    page.value("  memory", &proc.memory.value.to_string(), &proc.memory.origin);
    page.value("  processes", &proc.processes.value.to_string(), &proc.processes.origin);
    page.value("  limits", proc.limits.value.name(), &proc.limits.origin);
    page.value("  timeout", &proc.timeout.value.to_string(), &proc.timeout.origin);
    page.value("  max_timeout", &proc.max_timeout.value.to_string(), &proc.max_timeout.origin);
    page.value("  grace", &proc.grace.value.to_string(), &proc.grace.origin);
    page.value("  output", &proc.output.value.to_string(), &proc.output.origin);
    page.value("  file_size", &proc.file_size.value.to_string(), &proc.file_size.origin);
    page.value("  open_files", &proc.open_files.value.to_string(), &proc.open_files.origin);
    page.plain("  env:");
    page.list("    pass", &proc.env.pass, |name| scalar(name));
    page.plain(if proc.env.set.is_empty() { "    set: {}" } else { "    set:" });
    for (name, set) in &proc.env.set {
        page.value(&format!("      {name}"), &quoted(&set.value), &set.origin);
    }

    let validate = &policy.validate;
    page.plain("validate:");
    page.value("  level", &scalar(validate.level.value.name()), &validate.level.origin);
    page.list("  commands", &validate.commands, |name| scalar(name));
    page.list("  modules", &validate.modules, |name| scalar(name));
    page.plain(if policy.commands.is_empty() { "commands: []" } else { "commands:" });
    for rule in &policy.commands {
        page.command(rule);
    }
    // What nobody wrote is not the same as an empty list. Where only an operator wrote one, it lets nothing of others through yet.
    match &policy.tools.own {
        None => page.plain("tools: {}"),
        Some(own) => {
            page.plain("tools:");
            page.list("  allow", own, |name| scalar(name));
        }
    }
    page.plain("overrides:");
    page.list("  grantable", &policy.overrides.grantable, |field| field.name().to_owned());
    page.finish()
}

struct Page {
    lines: Vec<(String, Option<String>)>,
}

impl Page {
    fn plain(&mut self, text: &str) {
        self.lines.push((text.to_owned(), None));
    }

    fn value(&mut self, key: &str, value: &str, origin: &Origin) {
        self.lines.push((format!("{key}: {value}"), Some(comment(origin))));
    }

    fn list<T>(&mut self, key: &str, items: &[Sourced<T>], text: impl Fn(&T) -> String) {
        if items.is_empty() {
            self.plain(&format!("{key}: []"));
            return;
        }
        self.plain(&format!("{key}:"));
        let indent = key.len() - key.trim_start().len() + 2;
        for item in items {
            let line = format!("{:indent$}- {}", "", text(&item.value));
            self.lines.push((line, Some(comment(&item.origin))));
        }
    }

    fn command(&mut self, rule: &Sourced<CommandRule>) {
        let CommandRule { verdict, prefix, reading, why, instead, matches, rejects } = &rule.value;
        let line = format!("  - {}: {}", verdict.name(), flow(prefix));
        self.lines.push((line, Some(comment(&rule.origin))));
        if *reading != Reading::default() {
            self.plain(&format!("    reading: {}", reading.name()));
        }
        for (key, text) in [("why", why), ("instead", instead)] {
            if let Some(text) = text {
                self.plain(&format!("    {key}: {}", quoted(text)));
            }
        }
        for (key, examples) in [("matches", matches), ("rejects", rejects)] {
            if !examples.is_empty() {
                self.plain(&format!("    {key}: {}", flow(examples)));
            }
        }
    }

    fn finish(self) -> String {
        let widest = self.lines.iter().filter(|(_, comment)| comment.is_some()).map(|(text, _)| text.chars().count());
        let width = widest.filter(|width| *width <= MAX_WIDTH).max().unwrap_or_default();
        let mut out = String::new();
        for (text, comment) in &self.lines {
            out.push_str(text);
            if let Some(comment) = comment {
                let padding = width.saturating_sub(text.chars().count());
                out.extend(std::iter::repeat_n(' ', padding));
                out.push_str("  # ");
                out.push_str(comment);
            }
            out.push('\n');
        }
        out
    }
}

/// A file's name may hold anything; in a comment it must not start a new line.
fn comment(origin: &Origin) -> String {
    let mut out = String::new();
    for c in origin.to_string().chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

pub(crate) fn flow(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

/// Unquoted where no YAML reader could take it for anything but this text.
pub(crate) fn scalar(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'/' | b'.' | b'-');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.');
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "default" | ".nan" | ".inf"
    );
    let number = text.starts_with('.') && text.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if starts_well && !word && !number && text.bytes().all(plain) { text.to_owned() } else { quoted(text) }
}

pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            c if c.is_alphanumeric() => out.push(c),
            // Whatever might not be printable is escaped.
            c => out.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

struct Mounted<'m>(&'m Mount);

impl fmt::Display for Mounted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_mount(f, self.0)
    }
}

/// A mount as one line of YAML.
pub(crate) fn write_mount(f: &mut fmt::Formatter<'_>, mount: &Mount) -> fmt::Result {
    match mount {
        Mount::Host { host, at, mode } => {
            write!(f, "{{ host: {}, at: {}, mode: {mode} }}", scalar(host.as_str()), scalar(at.as_str()))
        }
        Mount::Tmpfs { tmpfs, size } => write!(f, "{{ tmpfs: {}, size: {size} }}", scalar(tmpfs.as_str())),
    }
}

/// `implied` are the ports that a rule in this list means when it names none.
pub(crate) fn rule_text(rule: &NetRule, implied: &[u16]) -> String {
    let host = scalar(&rule.host.to_string());
    let NetRule { host: _, ports, methods, paths, credential, inspect, protocol, acknowledge, budget, strip } = rule;
    let mut parts = vec![format!("host: {host}")];
    if ports != implied {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        parts.push(format!("ports: [{}]", ports.join(", ")));
    }
    if !methods.is_empty() {
        parts.push(format!("methods: [{}]", methods.join(", ")));
    }
    if !paths.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| quoted(path.as_str())).collect();
        parts.push(format!("paths: [{}]", paths.join(", ")));
    }
    if let Some(credential) = credential {
        parts.push(format!("credential: {}", scalar(credential)));
    } else if *inspect && strip.is_empty() {
        parts.push("inspect: true".to_owned());
    }
    if *protocol != NetProtocol::Web {
        parts.push(format!("protocol: {protocol}"));
    }
    if *acknowledge {
        parts.push("acknowledge: true".to_owned());
    }
    if !budget.is_unlimited() {
        parts.push(format!("budget: {budget}"));
    }
    if !strip.is_empty() {
        parts.push(format!("strip: {}", flow(strip)));
    }
    if parts.len() == 1 {
        return host;
    }
    format!("{{ {} }}", parts.join(", "))
}
