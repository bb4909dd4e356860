//! What to write to allow what is denied. It is tried before it is told.

use ringfence_egress::{Decision, Denied, Host, Reason, Rules, Scheme, is_channel_to_strangers};
use ringfence_policy::{Layer, NetAddition, NetMode, NetPolicy, NetRule};

use super::{Fix, Question, exact_path, judge, origin_of, pattern_of, project_file, under_floor, with_addition};
use crate::layers::Loaded;

/// What to do, and what to write.
pub(super) fn advise(loaded: &Loaded, host: &Host, question: &Question, denied: &Denied) -> (String, Option<Fix>) {
    let policy = &loaded.policy.net;
    let only = |hint: &str| (hint.to_owned(), None);
    match denied.reason {
        Reason::Denied => {
            let operators = origin_of(policy, &denied.rule).is_some_and(|origin| origin.layer == Layer::Operator);
            return match operators {
                true => only("a rule of the operator denies it; only the operator can change that"),
                false => only("a deny rule beats every allow rule; to allow it, remove that rule"),
            };
        }
        // A rule for plain HTTP would be one without the credential, which is not what is missing.
        Reason::NeedsTls => return only("use https: a credential does not travel over plain HTTP"),
        Reason::AmbiguousPath => return only("write the path so that it has one reading, and ask again"),
        _ => {}
    }
    if policy.mode.value == NetMode::None && matches!(policy.mode.origin.layer, Layer::Environment | Layer::Call) {
        return (format!("`net.mode` is set by {}; unset it there first", policy.mode.origin), None);
    }
    let addition = addition(policy, host, question, denied);
    let allows =
        |net: &NetPolicy| matches!(judge(&Rules::of_policy(net), host, question).decision, Decision::Allowed(_));
    if !allows(&with_addition(policy, &addition)) {
        return only("no single rule would allow it; look at the rules of this host with `ringfence policy show`");
    }
    // Before the floor is asked, which cannot be held against what no file can say.
    let snippet = match addition.write() {
        Ok(snippet) => snippet,
        Err(error) => return (error.to_string(), None),
    };
    let mut alone = addition.clone();
    alone.mode = Some(NetMode::Allowlist);
    match under_floor(loaded, &alone) {
        Some(net) if allows(&net) => {}
        _ => return only("the operator's floor does not permit it; only the operator can change that"),
    }
    let (file, begin) = project_file(loaded);
    let meant = if is_channel_to_strangers(host) { ", if strangers are meant to get it" } else { "" };
    let hint = format!("to allow it, write this into {file}{meant}");
    (hint, Some(Fix { file, snippet: format!("{begin}{snippet}") }))
}

/// The least that would allow it.
fn addition(policy: &NetPolicy, host: &Host, question: &Question, denied: &Denied) -> NetAddition {
    let mut addition = NetAddition {
        mode: (policy.mode.value == NetMode::None).then_some(NetMode::Allowlist),
        ..NetAddition::default()
    };
    match pattern_of(host) {
        None => addition.localhost.push(question.port),
        Some(pattern) => {
            let mut rule = NetRule::new(pattern);
            rule.ports.push(question.port);
            rule.methods.extend(question.method.clone());
            let path = question.path.as_ref().and_then(|path| path.normal().ok());
            rule.paths.extend(path.and_then(exact_path));
            // Neither is seen in HTTPS unless it is opened.
            rule.inspect = question.scheme == Scheme::Https && !(rule.methods.is_empty() && rule.paths.is_empty());
            rule.acknowledge = is_channel_to_strangers(host);
            if denied.reason == Reason::NeedsInspection {
                // The same as the rule that could not be held against it, opened; a wider one is nobody's wish.
                let is_it = |known: &&ringfence_policy::Sourced<NetRule>| {
                    denied.rule.ends_with(&format!("{} ({})", known.value, known.origin))
                };
                rule = policy.allow.iter().find(is_it).map_or(rule, |known| known.value.clone());
                rule.inspect = true;
            }
            addition.allow.push(rule);
        }
    }
    addition
}
