//! Plays for Ansible that this very text wrote: each task as the line that would do the same by hand.

use serde_json::Value;

use super::Run;
use crate::analysis::{Fact, Unknown};
use crate::stream::Argument;
use crate::text::{Hole, Piece, Text};

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
    let plays = match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Array(plays)) => plays,
        Ok(Value::Null) => return,
        // Whoever obeys them may read what we cannot.
        Ok(_) | Err(_) => {
            let unknown = Unknown::Unreadable { why: "plays that are not a list".to_owned() };
            run.fact(span, Fact::Unknown { unknown });
            return;
        }
    };
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
            value if matches!(key.as_str(), "action" | "local_action") => action(run, value),
            value => task(run, key, value),
        }
    }
}

/// `action: MODULE ARGS`, or the same in fields.
fn action(run: &mut Run<'_, '_>, told: &Value) {
    match told {
        Value::String(line) => {
            let (module, said) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
            task(run, module, &Value::String(said.trim_start().to_owned()));
        }
        told => match told.get("module").and_then(Value::as_str) {
            // A name in front, and the rest in one line.
            Some(line) if line.trim().contains(char::is_whitespace) => action(run, &Value::String(line.to_owned())),
            Some(module) => task(run, module, told),
            None => {}
        },
    }
}

/// One module with what it is told.
fn task(run: &mut Run<'_, '_>, module: &str, told: &Value) {
    let said = |key: &str| match told {
        Value::Object(fields) => fields.get(key).and_then(as_text),
        // `name=x state=absent` in one line.
        Value::String(line) => {
            let value =
                |word: &str| Some(word.strip_prefix(key)?.strip_prefix('=')?.trim_matches(['"', '\'']).to_owned());
            whole_words(line).into_iter().find_map(value)
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
        run.start(words.iter().map(|word| Argument::new(filled_later(word), span)).collect());
    }
}

/// Words between blanks; none ends within `{{ … }}`.
fn whole_words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let mut end = 0;
        // To the next blank, over every expression before it.
        while let Some(part) = rest.get(end..) {
            let blank = part.find(char::is_whitespace).unwrap_or(part.len());
            match part.get(..blank).and_then(|word| word.find("{{")) {
                Some(open) => {
                    end +=
                        part.get(open..).and_then(|part| part.find("}}")).map_or(part.len(), |close| open + close + 2)
                }
                None => {
                    end += blank;
                    break;
                }
            }
        }
        words.push(rest.get(..end).unwrap_or_default());
        rest = rest.get(end..).unwrap_or_default().trim_start();
    }
    words
}

/// A value whose expressions are only known when the play runs.
fn filled_later(said: &str) -> Text {
    let mut text = Text::default();
    let mut rest = said;
    while let Some((before, behind)) = rest.split_once('{') {
        text.push(Piece::Known(before.to_owned()));
        let close = match behind.bytes().next() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            _ => {
                text.push(Piece::Known("{".to_owned()));
                rest = behind;
                continue;
            }
        };
        text.push(Piece::Hole(Hole::Value));
        rest = behind.split_once(close).map_or("", |(_, rest)| rest);
    }
    text.push(Piece::Known(rest.to_owned()));
    text
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
