use libc::{c_int, c_long};

use super::tests::{ALLOW, Data, interpret, refusal};
use super::*;

#[track_caller]
fn check(call: c_long, arguments: &[u64], expected: u32) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let data = Data { number: u32::try_from(call).unwrap(), architecture: ARCHITECTURE, arguments: all };
    assert_eq!(interpret(&tier_program().instructions, data), expected, "call {call} with {arguments:x?}");
    // The upper half of a register that the kernel does not look at must not help.
    if expected != ALLOW && call != libc::SYS_unshare {
        let data = Data { arguments: all.map(|argument| argument | 0xdead_beef_0000_0000), ..data };
        assert_eq!(interpret(&tier_program().instructions, data), expected, "call {call} with high bits");
    }
}

fn number(value: c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

#[test]
fn seccomp_tier_is_small_and_refuses_all_that_the_wall_refuses() {
    assert!(tier_program().len() < 260, "{} instructions", tier_program().len());
    for rule in program().rules().filter(|rule| rule.action != Action::ByArguments) {
        let Some(number) = rule.number else { continue };
        let errno = if rule.action == Action::NotPermitted { libc::EPERM } else { libc::ENOSYS };
        check(number.into(), &[], refusal(errno));
    }
    assert!(rules::TIER.iter().all(|rule| tier_program().rules().any(|one| one == *rule)));
}

#[test]
fn seccomp_tier_decides_about_every_call_that_a_rule_names() {
    for rule in tier_program().rules() {
        let Some(number) = rule.number else { continue };
        match rule.action {
            Action::NotPermitted => check(number.into(), &[], refusal(libc::EPERM)),
            Action::NotImplemented => check(number.into(), &[], refusal(libc::ENOSYS)),
            Action::ByArguments => {
                let mut to = Assembler::default();
                let end = to.answer(0);
                let ends = Ends {
                    allow: end,
                    not_permitted: end,
                    no_such_family: end,
                    no_such_protocol: end,
                    passed_over: end,
                };
                assert!(tier_arguments::decide(&mut to, ends, rule.name).is_some(), "nobody decides {}", rule.name);
            }
        }
    }
}

#[test]
fn seccomp_tier_allows_exactly_the_numbers_that_no_rule_names() {
    for number in 0..=calls::HIGHEST {
        if tier_program().rules().all(|rule| rule.number != Some(number)) {
            check(number.into(), &[u64::MAX; 6], ALLOW);
        }
    }
}

#[test]
fn seccomp_tier_has_no_socket_but_a_pair_that_stays_one() {
    for family in 0..64 {
        for kind in 0..8 {
            check(libc::SYS_socket, &[family, kind, 0], refusal(libc::EAFNOSUPPORT));
        }
    }
    let unix = number(libc::AF_UNIX);
    for flags in [0, number(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)] {
        check(libc::SYS_socketpair, &[unix, number(libc::SOCK_STREAM) | flags], ALLOW);
        check(libc::SYS_socketpair, &[unix, number(libc::SOCK_SEQPACKET) | flags], ALLOW);
        // The kernel makes a datagram socket of a raw one.
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM] {
            check(libc::SYS_socketpair, &[unix, number(kind) | flags], refusal(libc::EPROTONOSUPPORT));
        }
    }
    check(libc::SYS_socketpair, &[number(libc::AF_INET), 1], refusal(libc::EAFNOSUPPORT));
}

#[test]
fn seccomp_tier_limits_and_priorities_are_set_for_oneself_only() {
    let calls = [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
    ];
    for call in calls {
        check(call, &[0], ALLOW);
        check(call, &[1], refusal(libc::EPERM));
        check(call, &[4_194_304], refusal(libc::EPERM));
    }
    for (call, all_of_the_user) in [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)] {
        check(call, &[1, 0], ALLOW);
        check(call, &[1, 77], refusal(libc::EPERM));
        check(call, &[all_of_the_user, 0], refusal(libc::EPERM));
    }
}

#[test]
fn seccomp_tier_ioctl_leaves_terminals_alone_and_changes_no_file_by_a_flag() {
    // TCGETS, FIONREAD, FIOCLEX, TIOCGWINSZ.
    for harmless in [0x5401, 0x541b, 0x5451, 0x5413] {
        check(libc::SYS_ioctl, &[0, harmless], ALLOW);
    }
    // TIOCSTI; FS_IOC_SETFLAGS and its 32-bit twin, SETVERSION, FSSETXATTR, FICLONE, BTRFS_IOC_SNAP_CREATE_V2, verity.
    for refused in [0x5412, 0x4008_6602, 0x4004_6602, 0x4008_7602, 0x401c_5820, 0x4004_9409, 0x5000_9417, 0x4080_6685] {
        check(libc::SYS_ioctl, &[0, refused], refusal(libc::EPERM));
    }
}
