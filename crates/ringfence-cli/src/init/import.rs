//! A Claude Code `sandbox` block as a proposal for the policy. Nothing of it is written anywhere: a person reads it and decides.

use ringfence_policy::{Glob, HostPattern};
use serde_json::Value;

/// Of a list, so many are taken.
const MOST: usize = 200;

/// A piece of a policy file, with what could not be said in it as comments; nothing where there is no such block.
pub(super) fn proposal(settings: &Value) -> Option<String> {
    let block = settings.get("sandbox")?.as_object()?;
    let block = Value::Object(block.clone());
    let mut left: Vec<String> = Vec::new();
    let hosts = list(&block, "/network/allowedDomains", &mut left, |text| {
        text.parse::<HostPattern>().ok().map(|host| host.to_string())
    });
    let denied_hosts = list(&block, "/network/deniedDomains", &mut left, |text| {
        text.parse::<HostPattern>().ok().map(|host| host.to_string())
    });
    let mut deny = Vec::new();
    for pointer in ["/filesystem/denyRead", "/filesystem/denyWrite"] {
        deny.extend(list(&block, pointer, &mut left, |text| {
            let text = text.trim_start_matches("~/").trim_start_matches("./");
            // A folder is meant with all that is in it; what lies anywhere is meant anywhere.
            let text =
                if text.starts_with('/') || text.contains("**") { text.to_owned() } else { format!("**/{text}") };
            let glob = text.strip_suffix('/').map_or_else(|| text.clone(), |folder| format!("{folder}/**"));
            (!glob.starts_with('/')).then(|| glob.parse::<Glob>().ok()).flatten().map(|glob| glob.as_str().to_owned())
        }));
    }
    deny.dedup();
    for pointer in ["/filesystem/allowWrite", "/network/allowUnixSockets", "/excludedCommands"] {
        for text in
            block.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).take(MOST)
        {
            left.push(format!("{}: {text}", pointer.trim_start_matches('/').replace('/', ".")));
        }
    }
    for switch in [
        "/network/allowLocalBinding",
        "/network/allowAllUnixSockets",
        "/enableWeakerNestedSandbox",
        "/allowUnsandboxedCommands",
    ] {
        if block.pointer(switch) == Some(&Value::Bool(true)) {
            left.push(switch.trim_start_matches('/').replace('/', "."));
        }
    }
    let quoted = |items: &[String]| {
        items.iter().map(|item| Value::from(item.as_str()).to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    if !hosts.is_empty() {
        text.push_str(&format!("net:\n  mode: allowlist\n  allow: [{}]\n", quoted(&hosts)));
    }
    if !denied_hosts.is_empty() {
        let head = if hosts.is_empty() { "net:\n" } else { "" };
        text.push_str(&format!("{head}  deny: [{}]\n", quoted(&denied_hosts)));
    }
    if !deny.is_empty() {
        text.push_str(&format!("fs:\n  deny: [{}]\n", quoted(&deny)));
    }
    for one in &left {
        let line: String = one.chars().filter(|c| !c.is_control()).take(200).collect();
        text.push_str(&format!("# not taken over, look at it yourself: {line}\n"));
    }
    (!text.is_empty()).then_some(text)
}

/// The entries of a list that mean something to a policy; the others go to `left`.
fn list(block: &Value, pointer: &str, left: &mut Vec<String>, meant: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut taken = Vec::new();
    for text in
        block.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).take(MOST)
    {
        match meant(text) {
            Some(text) => taken.push(text),
            None => left.push(format!("{}: {text}", pointer.trim_start_matches('/').replace('/', "."))),
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_sandbox_block_becomes_a_piece_of_a_policy_that_can_be_read() {
        let settings = json!({ "sandbox": {
            "enabled": true,
            "network": { "allowedDomains": ["pypi.org", "*.example.org", "*"], "allowLocalBinding": true },
            "filesystem": { "denyRead": ["~/.ssh/", "secrets", "/etc/shadow"], "allowWrite": ["/tmp/build"] },
        }});
        let text = proposal(&settings).unwrap();
        assert_eq!(
            text,
            "net:\n  mode: allowlist\n  allow: [\"pypi.org\", \"*.example.org\"]\nfs:\n  deny: [\"**/.ssh/**\", \"**/secrets\"]\n\
             # not taken over, look at it yourself: network.allowedDomains: *\n\
             # not taken over, look at it yourself: filesystem.denyRead: /etc/shadow\n\
             # not taken over, look at it yourself: filesystem.allowWrite: /tmp/build\n\
             # not taken over, look at it yourself: network.allowLocalBinding\n"
        );
        assert!(ringfence_policy::parse("proposal", &format!("version: 1\n{text}")).is_ok());
        assert_eq!(proposal(&json!({ "sandbox": { "enabled": true } })), None);
        assert_eq!(proposal(&json!({})), None);
    }
}
