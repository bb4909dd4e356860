//! The filter for programs as a profile that container engines take, so that it holds already for what an engine executes
//! before our own guest has installed ours.
//!
//! The format cannot say all of it. What it cannot is left to the guest's own filter, which lies over this one:
//!
//! - numbers above the highest known one, which ours answers with `ENOSYS`: a profile speaks of names;
//! - [`LEFT_TO_THE_GUEST`], in whole or in part, with the reasons there.

use super::{Action, arguments, program};

/// What of a rule that is decided by arguments a profile does not say, and why.
pub const LEFT_TO_THE_GUEST: &[(&str, &str)] = &[
    ("unshare", "bits that are no namespace: each would need a rule of its own"),
    ("personality", "one value is allowed that has all bits which are refused by themselves"),
    ("prlimit64", "the core limit: the guest has still to set it"),
    ("setrlimit", "the core limit: the guest has still to set it"),
    ("socket", "protocols of the internet families: each refused number would need a rule of its own"),
];

const ANY: u64 = 0xffff_ffff;
/// `CLONE_NEWTIME`, which `unshare` takes and `clone` does not.
const NEW_TIME: u64 = 0x80;

/// When a call is refused: conditions that hold all at once.
struct Refused {
    call: &'static str,
    when: Vec<Condition>,
    errno: libc::c_int,
}

enum Condition {
    /// The bits of a mask, in an argument, are exactly these.
    Bits { argument: u32, mask: u64, value: u64 },
    /// The argument is another.
    Not { argument: u32, value: u64 },
    /// The argument is this or more.
    AtLeast { argument: u32, value: u64 },
}

impl Condition {
    fn json(&self) -> String {
        let (argument, value, second, word) = match *self {
            Self::Bits { argument, mask, value } => (argument, mask, value, "MASKED_EQ"),
            Self::Not { argument, value } => (argument, value, 0, "NE"),
            Self::AtLeast { argument, value } => (argument, value, 0, "GE"),
        };
        format!(r#"{{"index":{argument},"value":{value},"valueTwo":{second},"op":"SCMP_CMP_{word}"}}"#)
    }
}

/// The profile, as JSON. Calls of another architecture are killed, as by ours: engines do that when none is named besides.
pub fn engine_profile() -> String {
    let mut rules = Vec::new();
    for (action, errno) in [(Action::NotPermitted, libc::EPERM), (Action::NotImplemented, libc::ENOSYS)] {
        let names = program().rules().filter(|rule| rule.action == action && rule.number.is_some());
        let names: Vec<String> = names.map(|rule| format!("{:?}", rule.name)).collect();
        rules.push(rule_json(&names.join(","), &[], errno));
    }
    let exists = |call: &str| program().rules().any(|rule| rule.name == call && rule.number.is_some());
    for refused in by_arguments().iter().filter(|refused| exists(refused.call)) {
        rules.push(rule_json(&format!("{:?}", refused.call), &refused.when, refused.errno));
    }
    let architecture = if cfg!(target_arch = "x86_64") { "SCMP_ARCH_X86_64" } else { "SCMP_ARCH_AARCH64" };
    format!(
        "{{\"defaultAction\":\"SCMP_ACT_ALLOW\",\"architectures\":[\"{architecture}\"],\"syscalls\":[\n{}\n]}}\n",
        rules.join(",\n")
    )
}

fn rule_json(names: &str, when: &[Condition], errno: libc::c_int) -> String {
    let when: Vec<String> = when.iter().map(Condition::json).collect();
    format!(r#"{{"names":[{names}],"action":"SCMP_ACT_ERRNO","errnoRet":{errno},"args":[{}]}}"#, when.join(","))
}

/// Where arguments decide. One condition for each argument of a rule: engines read several on one as alternatives.
fn by_arguments() -> Vec<Refused> {
    let equal = |argument, value: u32| Condition::Bits { argument, mask: ANY, value: value.into() };
    let refused = |call, when, errno| Refused { call, when, errno };
    let mut all = Vec::new();
    for bit in (0..u32::BITS).map(|bit| 1u32 << bit).filter(|bit| arguments::NEW_NAMESPACES & bit != 0) {
        let set = || vec![Condition::Bits { argument: 0, mask: bit.into(), value: bit.into() }];
        all.push(refused("clone", set(), libc::EPERM));
        all.push(refused("unshare", set(), libc::EPERM));
    }
    let new_time = Condition::Bits { argument: 0, mask: NEW_TIME, value: NEW_TIME };
    all.push(refused("unshare", vec![new_time], libc::EPERM));
    for command in arguments::TERMINAL_COMMANDS {
        all.push(refused("ioctl", vec![equal(1, command)], libc::EPERM));
    }
    all.push(refused("fcntl", vec![equal(1, libc::F_SETLEASE.cast_unsigned())], libc::EPERM));
    all.push(refused("prlimit64", vec![equal(0, arguments::GUEST)], libc::EPERM));
    for (call, argument) in [("mknod", 1), ("mknodat", 2)] {
        let (mask, value) = (arguments::DEVICE_MASK.into(), libc::S_IFCHR.into());
        all.push(refused(call, vec![Condition::Bits { argument, mask, value }], libc::EPERM));
    }
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(libc::c_int::cast_unsigned);
    let above = libc::AF_NETLINK.cast_unsigned() + 1;
    for family in (0..above).filter(|family| !families.contains(family)) {
        all.push(refused("socket", vec![equal(0, family)], libc::EAFNOSUPPORT));
    }
    all.push(refused("socket", vec![Condition::AtLeast { argument: 0, value: above.into() }], libc::EAFNOSUPPORT));
    for family in [libc::AF_INET, libc::AF_INET6].map(libc::c_int::cast_unsigned) {
        for kind in arguments::FIRST_UNCOMMON_TYPE..=arguments::SOCKET_TYPE_MASK {
            let mask = arguments::SOCKET_TYPE_MASK.into();
            let kind = Condition::Bits { argument: 1, mask, value: kind.into() };
            all.push(refused("socket", vec![equal(0, family), kind], libc::EPROTONOSUPPORT));
        }
    }
    let netlink = equal(0, libc::AF_NETLINK.cast_unsigned());
    let other = Condition::Not { argument: 2, value: libc::NETLINK_ROUTE.cast_unsigned().into() };
    all.push(refused("socket", vec![netlink, other], libc::EPROTONOSUPPORT));
    let unix = libc::AF_UNIX.cast_unsigned().into();
    all.push(refused("socketpair", vec![Condition::Not { argument: 0, value: unix }], libc::EAFNOSUPPORT));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_in_the_profile_or_left_to_the_guest_by_name() {
        let profile = engine_profile();
        for rule in program().rules().filter(|rule| rule.number.is_some()) {
            let is_said = profile.contains(&format!("{:?}", rule.name));
            let is_left = LEFT_TO_THE_GUEST.iter().any(|(name, _)| *name == rule.name);
            assert!(is_said || is_left, "{}", rule.name);
        }
        let is_rule =
            |name: &str| program().rules().any(|rule| rule.name == name && rule.action == Action::ByArguments);
        assert!(LEFT_TO_THE_GUEST.iter().all(|(name, reason)| is_rule(name) && !reason.is_empty()));
    }

    /// What the profile refuses, our own filter refuses too, and with the same answer: it never lies.
    #[test]
    fn what_the_profile_refuses_by_arguments_our_filter_refuses() {
        use crate::seccomp::tests::{Data, interpret, refusal};
        for refused in by_arguments() {
            let Some(number) = program().rules().find(|rule| rule.name == refused.call).and_then(|rule| rule.number)
            else {
                continue;
            };
            let mut arguments = [0u64; 6];
            for condition in &refused.when {
                let (argument, value) = match *condition {
                    Condition::Bits { argument, value, .. } => (argument, value),
                    Condition::Not { argument, value } => (argument, value + 1),
                    Condition::AtLeast { argument, value } => (argument, value),
                };
                arguments[argument as usize] = value;
            }
            let data = Data { number, architecture: super::super::ARCHITECTURE, arguments };
            let answer = interpret(&program().instructions, data);
            assert_eq!(answer, refusal(refused.errno), "{} {arguments:x?}", refused.call);
        }
    }

    #[test]
    fn the_profile_is_as_it_was_read() {
        insta::assert_snapshot!(engine_profile());
    }
}
