//! A piece of a policy file that adds to what the network reaches, for a person to take over.
//!
//! Names in it may come from inside a sandbox. They are typed values before they get here, are written as `policy show` writes
//! them, and what was written is read again: text that means anything else than these values is never handed out.

use crate::diagnostic::Diagnostic;
use crate::file::{NetFile, PolicyFile, Written, parse};
use crate::host::NetRule;
use crate::name::Named;
use crate::policy::NetMode;
use crate::show::rule_text;

/// What is added to `net`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetAddition {
    /// `mode`, when it has to change.
    pub mode: Option<NetMode>,
    /// Rules for `allow`. Each must name its ports.
    pub allow: Vec<NetRule>,
    /// Ports for `localhost`.
    pub localhost: Vec<u16>,
}

/// An addition that a policy file cannot say.
#[derive(Debug, thiserror::Error)]
pub enum NotWritable {
    /// It does not parse.
    #[error("what would have to be written is no policy: {}", first(.0))]
    Invalid(Vec<Diagnostic>),
    /// It parses to something else.
    #[error("what would have to be written means something else")]
    MeansSomethingElse,
}

fn first(diagnostics: &[Diagnostic]) -> String {
    diagnostics.first().map(ToString::to_string).unwrap_or_default()
}

impl NetAddition {
    /// Whether it adds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The section `net` of a policy file.
    pub fn write(&self) -> Result<String, NotWritable> {
        self.file().map(|(text, _)| text)
    }

    /// The same as a file of its own, which says nothing else.
    pub fn parsed(&self) -> Result<PolicyFile, NotWritable> {
        self.file().map(|(_, file)| file)
    }

    fn file(&self) -> Result<(String, PolicyFile), NotWritable> {
        let text = self.text();
        let file = parse("the proposal", &format!("version: 1\n{text}")).map_err(NotWritable::Invalid)?;
        // What follows from it is checked against what was meant; what it says besides must be nothing.
        let said = Self {
            mode: file.net.mode.as_ref().map(|mode| mode.value),
            allow: values(&file.net.allow),
            localhost: values(&file.net.localhost),
        };
        let only_that = PolicyFile {
            net: NetFile {
                mode: file.net.mode.clone(),
                allow: file.net.allow.clone(),
                localhost: file.net.localhost.clone(),
                ..NetFile::default()
            },
            ..PolicyFile::default()
        };
        if said != *self || file != only_that {
            return Err(NotWritable::MeansSomethingElse);
        }
        Ok((text, file))
    }

    fn text(&self) -> String {
        let mut text = String::from(if self.is_empty() { "net: {}\n" } else { "net:\n" });
        if let Some(mode) = self.mode {
            text.push_str(&format!("  mode: {}\n", mode.name()));
        }
        if !self.allow.is_empty() {
            text.push_str("  allow:\n");
        }
        for rule in &self.allow {
            // No ports are implied: what a person takes over says them.
            text.push_str(&format!("    - {}\n", rule_text(rule, &[])));
        }
        if !self.localhost.is_empty() {
            let ports: Vec<String> = self.localhost.iter().map(u16::to_string).collect();
            text.push_str(&format!("  localhost: [{}]\n", ports.join(", ")));
        }
        text
    }
}

fn values<T: Clone>(written: &Option<Vec<Written<T>>>) -> Vec<T> {
    written.iter().flatten().map(|entry| entry.value.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostPattern;
    use proptest::prelude::*;

    fn rule(host: HostPattern, ports: &[u16]) -> NetRule {
        NetRule { ports: ports.to_vec(), ..NetRule::new(host) }
    }

    #[test]
    fn an_addition_is_written_with_its_ports_and_reads_back() {
        let mut detailed = rule("a.test".parse().unwrap(), &[80]);
        detailed.methods = vec!["GET".to_owned()];
        detailed.paths = vec!["/a \" b/**".parse().unwrap(), "/x\\*".parse().unwrap()];
        let addition = NetAddition {
            mode: Some(NetMode::Allowlist),
            allow: vec![
                rule("pypi.org".parse().unwrap(), &[80, 443]),
                detailed,
                rule("*.a.test".parse().unwrap(), &[443]),
                rule("2001:db8::7".parse().unwrap(), &[443]),
                rule("null".parse().unwrap(), &[443]),
            ],
            localhost: vec![5432],
        };
        assert_eq!(
            addition.write().unwrap(),
            r#"net:
  mode: allowlist
  allow:
    - { host: pypi.org, ports: [80, 443] }
    - { host: a.test, ports: [80], methods: [GET], paths: ["/a \" b/**", "/x\\*"] }
    - { host: "*.a.test", ports: [443] }
    - { host: "2001:db8::7", ports: [443] }
    - { host: "null", ports: [443] }
  localhost: [5432]
"#
        );
        assert_eq!(NetAddition::default().write().unwrap(), "net: {}\n");
    }

    #[test]
    fn a_name_that_would_write_something_else_is_not_written() {
        // No such value comes out of a parser; were one made by mistake, nothing of it would be handed out.
        for bad in ["a.test, ports: [1] }\n  deny: []\n#", "a\nb", "*.test", "A.test", "a.test # x", ""] {
            let addition =
                NetAddition { allow: vec![rule(HostPattern::Name(bad.to_owned()), &[443])], ..NetAddition::default() };
            assert!(addition.write().is_err(), "{bad:?}");
        }
        // Without a port a rule would mean two of them.
        let implied = NetAddition { allow: vec![rule("a.test".parse().unwrap(), &[])], ..NetAddition::default() };
        assert!(implied.write().is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_a_host_a_method_and_a_path_reads_back_as_itself(
            host in "\\PC{1,20}", path in "/\\PC{0,20}", port in 1_u16..
        ) {
            let path = path.parse::<crate::path::Glob>().and_then(crate::path::Glob::compiled);
            if let (Ok(host), Ok(path)) = (host.parse::<HostPattern>(), path) {
                let mut rule = rule(host, &[port]);
                rule.paths = vec![path];
                let addition = NetAddition { allow: vec![rule], ..NetAddition::default() };
                prop_assert!(addition.write().is_ok(), "{addition:?}");
            }
        }
    }
}
