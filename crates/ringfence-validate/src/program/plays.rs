//! Plays for Ansible that this very text wrote: each task as the line that would do the same by hand.

use serde_json::Value;

use super::Run;
use crate::analysis::{Fact, Unknown};
use crate::stream::Argument;
use crate::text::Text;

/// Tasks that are looked at, and blocks within blocks.
const TASKS: usize = 256;
const LEVELS: usize = 4;
/// Bytes of a file of plays.
const BYTES: usize = 64 * 1024;
/// Where the tasks of a play stand.
const PARTS: &[&str] = &["tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"];

/// What the plays of these words do.
pub(super) fn orders(run: &mut Run<'_, '_>, name: &str) {
    let words = run.rest();
    match name {
        "ansible-playbook" => {
            for path in words.iter().filter_map(Argument::known).filter(|word| !word.starts_with('-')) {
                let Some(text) = run.put_there(path).and_then(|written| written.known().map(str::to_owned)) else {
                    continue;
                };
                plays(run, &text);
            }
        }
        // `ansible all -m shell -a LINE`: one task on the line.
        "ansible" => {
            let value = |options: [&str; 2]| {
                let at = words.iter().position(|word| word.known().is_some_and(|word| options.contains(&word)))?;
                words.get(at + 1)?.known().map(str::to_owned)
            };
            let module = value(["-m", "--module-name"]).unwrap_or_else(|| "command".to_owned());
            if let Some(said) = value(["-a", "--args"]) {
                task(run, &module, &Value::String(said));
            }
        }
        _ => {}
    }
}

fn plays(run: &mut Run<'_, '_>, text: &str) {
    let span = run.span;
    if text.len() > BYTES || super::composed::is_deep(text) {
        run.fact(span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "plays" } });
        return;
    }
    let Ok(Value::Array(plays)) = serde_saphyr::from_str::<Value>(text) else { return };
    let mut left = TASKS;
    for play in &plays {
        part(run, play, LEVELS, &mut left);
    }
    if left == 0 {
        run.fact(span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "plays" } });
    }
}

fn part(run: &mut Run<'_, '_>, whole: &Value, levels: usize, left: &mut usize) {
    let Some(fields) = whole.as_object() else { return };
    for (key, value) in fields {
        match value {
            Value::Array(tasks) if PARTS.contains(&key.as_str()) => {
                if levels == 0 {
                    *left = 0;
                }
                for task in tasks {
                    if *left == 0 {
                        return;
                    }
                    *left -= 1;
                    part(run, task, levels.saturating_sub(1), left);
                }
            }
            value => task(run, key, value),
        }
    }
}

/// One module with what it is told.
fn task(run: &mut Run<'_, '_>, module: &str, told: &Value) {
    let said = |key: &str| match told {
        Value::Object(fields) => fields.get(key).and_then(as_text),
        // `name=x state=absent` in one line.
        Value::String(line) => {
            line.split_whitespace().find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
        }
        _ => None,
    };
    let is = |key: &str, value: &str| said(key).is_some_and(|said| said.eq_ignore_ascii_case(value));
    let path = || said("path").or_else(|| said("dest")).or_else(|| said("name"));
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut line = |words: &[&str]| lines.push(words.iter().map(|word| (*word).to_owned()).collect());
    match module.rsplit('.').next().unwrap_or(module) {
        "shell" | "command" | "raw" | "script" | "win_shell" | "expect" => {
            let code = match told {
                Value::String(code) => Some(code.clone()),
                _ => said("cmd").or_else(|| said("_raw_params")).or_else(|| said("command")),
            };
            line(&["sh", "-c", &code.unwrap_or_default()]);
        }
        "user" if is("state", "absent") => line(&["userdel", &said("name").unwrap_or_default()]),
        "user" => {
            let (id, name) = (said("uid").unwrap_or_default(), said("name").unwrap_or_default());
            line(&["useradd", "-u", &id, &name]);
        }
        "group" => line(&["groupadd", &said("name").unwrap_or_default()]),
        "service" | "systemd" | "systemd_service" | "sysvinit" => {
            let name = said("name").unwrap_or_default();
            match said("state").as_deref() {
                Some("stopped") => line(&["systemctl", "stop", &name]),
                Some("restarted" | "reloaded") => line(&["systemctl", "restart", &name]),
                Some(_) => line(&["systemctl", "start", &name]),
                None => {}
            }
            if let Some(enabled) = said("enabled") {
                let off = matches!(enabled.as_str(), "false" | "no" | "False");
                line(&["systemctl", if off { "disable" } else { "enable" }, &name]);
            }
        }
        "file" if is("state", "absent") => line(&["rm", "-rf", &path().unwrap_or_default()]),
        "file" if is("state", "link") => {
            line(&["ln", "-s", &said("src").unwrap_or_default(), &path().unwrap_or_default()]);
        }
        "file" => {
            if let Some(mode) = said("mode") {
                line(&["chmod", &mode, &path().unwrap_or_default()]);
            }
        }
        "copy" | "template" | "lineinfile" | "blockinfile" | "replace" | "assemble" => {
            line(&["cp", &said("src").unwrap_or_else(|| "text".to_owned()), &path().unwrap_or_default()]);
        }
        "get_url" => line(&["curl", "-o", &path().unwrap_or_default(), &said("url").unwrap_or_default()]),
        "fetch" => line(&["cat", &said("src").unwrap_or_default()]),
        "cron" | "at" => line(&["crontab", "-"]),
        "authorized_key" => line(&["cp", "key", "~/.ssh/authorized_keys"]),
        "iptables" | "nftables" => line(&["iptables", "-F"]),
        "ufw" | "firewalld" if is("state", "disabled") || is("state", "reset") => line(&["ufw", "disable"]),
        "selinux" if is("state", "disabled") || is("state", "permissive") => line(&["setenforce", "0"]),
        "reboot" => line(&["reboot"]),
        "filesystem" => line(&["mkfs", &said("dev").unwrap_or_default()]),
        "pip" => line(&["pip", "install", &said("extra_args").unwrap_or_default(), &said("name").unwrap_or_default()]),
        "modprobe" => line(&["modprobe", &said("name").unwrap_or_default()]),
        _ => {}
    }
    let span = run.span;
    for words in lines {
        run.start(words.into_iter().map(|word| Argument::new(Text::known(word), span)).collect());
    }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
