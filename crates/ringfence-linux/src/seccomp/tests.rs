use libc::{c_int, c_long};

use super::*;

/// What the filter sees of a call.
#[derive(Clone, Copy)]
pub(super) struct Data {
    pub(super) number: u32,
    pub(super) architecture: u32,
    pub(super) arguments: [u64; 6],
}

pub(super) fn interpret(program: &[sock_filter], data: Data) -> u32 {
    run(program, data, &|_| {})
}

/// Runs a program as the kernel does, and tells `read` each offset that it loads from; everything that the kernel would
/// refuse to load is a failure of the test.
fn run(program: &[sock_filter], data: Data, read: &dyn Fn(u32)) -> u32 {
    let word = |offset: u32| {
        read(offset);
        match offset {
            0 => data.number,
            4 => data.architecture,
            16.. => {
                let argument = data.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            other => panic!("no filter of ours reads offset {other}"),
        }
    };
    let (mut next, mut accumulator) = (0usize, 0u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[next];
        next += 1;
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match u32::from(code) {
            code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => accumulator = word(k),
            code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => accumulator &= k,
            code if code == libc::BPF_JMP | libc::BPF_JA => next += k as usize,
            code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => next += jump(accumulator == k),
            code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => next += jump(accumulator >= k),
            code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => next += jump(accumulator & k != 0),
            code if code == libc::BPF_RET | libc::BPF_K => return k,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

pub(super) const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

pub(super) fn refusal(errno: c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()
}

#[track_caller]
fn check(call: c_long, arguments: &[u64], expected: u32) {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let number = u32::try_from(call).unwrap();
    let data = Data { number, architecture: ARCHITECTURE, arguments: all };
    assert_eq!(interpret(&program().instructions, data), expected, "call {call} with {arguments:x?}");
    // The upper half of a register that the kernel does not look at must not help.
    if expected != ALLOW && call != libc::SYS_unshare {
        let arguments = all.map(|argument| argument | 0xdead_beef_0000_0000);
        let data = Data { arguments, ..data };
        assert_eq!(interpret(&program().instructions, data), expected, "call {call} with high bits");
    }
}

#[test]
fn seccomp_program_is_small() {
    assert!(program().len() < 180, "{} instructions", program().len());
}

#[test]
fn seccomp_refuses_every_call_that_a_rule_names() {
    for rule in program().rules() {
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
                assert!(arguments::decide(&mut to, ends, rule.name).is_some(), "nobody decides about {}", rule.name);
            }
        }
    }
}

#[test]
fn seccomp_allows_exactly_the_numbers_that_no_rule_names() {
    for number in 0..=calls::HIGHEST {
        if rules::RULES.iter().all(|rule| rule.number != Some(number)) {
            check(number.into(), &[u64::MAX; 6], ALLOW);
        }
    }
}

#[test]
fn seccomp_allows_what_ordinary_programs_do() {
    for call in [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_openat,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_mmap,
        libc::SYS_futex,
        libc::SYS_memfd_create,
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
        libc::SYS_prctl,
        libc::SYS_rseq,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_close_range,
        libc::SYS_openat2,
        libc::SYS_faccessat2,
        libc::SYS_inotify_init1,
        libc::SYS_exit_group,
    ] {
        check(call, &[], ALLOW);
    }
}

#[test]
fn seccomp_refuses_numbers_that_nobody_has_judged_and_those_of_x32() {
    let highest = c_long::from(calls::HIGHEST);
    check(highest, &[], ALLOW);
    for unknown in
        [highest + 1, highest + 2, 511, 512, 547, 1000, 0x4000_0000, 0x4000_0000 + 1, 0x4000_0000 + 520, 0xffff_ffff]
    {
        check(unknown, &[], refusal(libc::ENOSYS));
    }
}

#[test]
fn seccomp_kills_on_every_call_of_another_architecture() {
    const I386: u32 = 3 | 0x4000_0000;
    const ARM: u32 = 40 | 0x4000_0000;
    for architecture in [I386, ARM, 0, ARCHITECTURE & !0x8000_0000, ARCHITECTURE ^ 1, u32::MAX] {
        for number in [0, 1, 11, 21, 102, 165, 0x4000_0000] {
            let data = Data { number, architecture, arguments: [0; 6] };
            assert_eq!(interpret(&program().instructions, data), KILL, "{architecture:#x} {number}");
        }
    }
}

#[test]
fn seccomp_clone_makes_threads_and_processes_but_no_namespaces() {
    const THREAD: u64 = 0x003d_0f00;
    check(libc::SYS_clone, &[THREAD], ALLOW);
    check(libc::SYS_clone, &[libc::SIGCHLD as u64], ALLOW);
    check(libc::SYS_clone, &[(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64], ALLOW);
    for flag in [0x0002_0000u64, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000] {
        check(libc::SYS_clone, &[flag | 17], refusal(libc::EPERM));
        check(libc::SYS_clone, &[flag | THREAD], refusal(libc::EPERM));
        check(libc::SYS_unshare, &[flag], refusal(libc::EPERM));
    }
    check(libc::SYS_clone3, &[], refusal(libc::ENOSYS));
}

#[test]
fn seccomp_unshare_takes_known_harmless_flags_only() {
    for flag in [0u64, 0x200, 0x400, 0x0004_0000, 0x600] {
        check(libc::SYS_unshare, &[flag], ALLOW);
    }
    // The time namespace, a mount namespace by its newer second name, an unknown bit, a high one.
    for flag in [0x80u64, 0x0010_0000, 0x8000_0000, 1 << 37, 0x200 | 1 << 32] {
        check(libc::SYS_unshare, &[flag], refusal(libc::EPERM));
    }
}

#[test]
fn seccomp_socket_has_three_families_and_netlink_route() {
    const STREAM: u64 = 1;
    const DATAGRAM_CLOEXEC: u64 = 2 | 0o2_000_000 | 0o4000;
    let family = |number: c_int| u64::from(number.cast_unsigned());
    let unsupported = refusal(libc::EAFNOSUPPORT);
    for inet in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, 1, 6, 17, 58] {
            check(libc::SYS_socket, &[family(inet), STREAM, protocol], ALLOW);
            check(libc::SYS_socket, &[family(inet), DATAGRAM_CLOEXEC, protocol], ALLOW);
        }
        // SCTP, DCCP, UDP-Lite, MPTCP; then raw, sequenced, DCCP and packet sockets.
        for protocol in [132, 33, 136, 262] {
            check(libc::SYS_socket, &[family(inet), STREAM, protocol], refusal(libc::EPROTONOSUPPORT));
        }
        for kind in [3, 5, 6, 10, 3 | 0o2_000_000] {
            check(libc::SYS_socket, &[family(inet), kind, 0], refusal(libc::EPROTONOSUPPORT));
        }
    }
    check(libc::SYS_socket, &[family(libc::AF_UNIX), 5, 0], ALLOW);
    check(libc::SYS_socket, &[family(libc::AF_NETLINK), 3, 0], ALLOW);
    for protocol in 1..32 {
        check(libc::SYS_socket, &[family(libc::AF_NETLINK), 3, protocol], refusal(libc::EPROTONOSUPPORT));
    }
    for other in (0..64).filter(|number| ![1, 2, 10, 16].contains(number)) {
        check(libc::SYS_socket, &[other, STREAM, 0], unsupported);
    }
    check(libc::SYS_socketpair, &[family(libc::AF_UNIX), STREAM, 0], ALLOW);
    for other in [family(libc::AF_INET), family(libc::AF_TIPC), family(libc::AF_NETLINK)] {
        check(libc::SYS_socketpair, &[other, STREAM, 0], unsupported);
    }
}

#[test]
fn seccomp_fcntl_takes_no_lease() {
    let lease = libc::F_SETLEASE as u64;
    check(libc::SYS_fcntl, &[0, lease], refusal(libc::EPERM));
    check(libc::SYS_fcntl, &[0, lease | 1 << 32], refusal(libc::EPERM));
    for command in [libc::F_GETFD, libc::F_SETLK, libc::F_GETLEASE, libc::F_DUPFD_CLOEXEC] {
        check(libc::SYS_fcntl, &[0, command as u64], ALLOW);
    }
}

#[test]
fn seccomp_ioctl_keeps_terminals_from_being_typed_into() {
    for command in [0x5412u64, 0x541c, 0x541d, 0x5423] {
        check(libc::SYS_ioctl, &[0, command], refusal(libc::EPERM));
        check(libc::SYS_ioctl, &[0, command | 1 << 32], refusal(libc::EPERM));
    }
    // TCGETS, TIOCSCTTY, TIOCGWINSZ, FIONREAD; as numbers, because their type differs between libraries.
    for command in [0x5401u64, 0x540e, 0x5413, 0x541b] {
        check(libc::SYS_ioctl, &[0, command], ALLOW);
    }
}

#[test]
fn seccomp_mknod_makes_no_devices() {
    for (kind, expected) in [
        (0, ALLOW),
        (libc::S_IFREG, ALLOW),
        (libc::S_IFIFO, ALLOW),
        (libc::S_IFSOCK, ALLOW),
        (libc::S_IFCHR, refusal(libc::EPERM)),
        (libc::S_IFBLK, refusal(libc::EPERM)),
    ] {
        let mode = u64::from(kind | 0o644);
        check(libc::SYS_mknodat, &[0, 0, mode], expected);
        #[cfg(target_arch = "x86_64")]
        check(libc::SYS_mknod, &[0, mode], expected);
    }
}

#[test]
fn seccomp_personality_stays_linux() {
    for harmless in [0, 8, 0x20000, 0x20008, 0xffff_ffff] {
        check(libc::SYS_personality, &[harmless], ALLOW);
    }
    for other in [1, 0x0040_0000, 0x0004_0000, 0x0010_0000, 0xffff_fffe] {
        check(libc::SYS_personality, &[other], refusal(libc::EPERM));
    }
}

#[test]
fn seccomp_n11_limits_are_not_set_for_process_1() {
    check(libc::SYS_prlimit64, &[0], ALLOW);
    check(libc::SYS_prlimit64, &[2], ALLOW);
    for one in [1, 1 | 7 << 32] {
        check(libc::SYS_prlimit64, &[one], refusal(libc::EPERM));
    }
}

#[test]
fn seccomp_s03_the_core_limit_can_be_asked_for_and_not_set() {
    let core = u64::from(libc::RLIMIT_CORE);
    let answer = |call: c_long, arguments: [u64; 6]| {
        let data = Data { number: u32::try_from(call).unwrap(), architecture: ARCHITECTURE, arguments };
        interpret(&program().instructions, data)
    };
    let somewhere = 0x7fff_0000_1000;
    for pid in [0, 2, 77] {
        assert_eq!(answer(libc::SYS_prlimit64, [pid, core, 0, somewhere, 0, 0]), ALLOW, "asking is free");
        assert_eq!(answer(libc::SYS_prlimit64, [pid, core, somewhere, 0, 0, 0]), refusal(0), "passed over");
        assert_eq!(answer(libc::SYS_prlimit64, [pid, core, somewhere, somewhere, 0, 0]), refusal(libc::EPERM));
        assert_eq!(answer(libc::SYS_prlimit64, [pid, core | 7 << 32, 1 << 32, 0, 0, 0]), refusal(0), "high bits");
        assert_eq!(answer(libc::SYS_prlimit64, [pid, core + 3, somewhere, somewhere, 0, 0]), ALLOW, "other limits");
    }
    check(libc::SYS_setrlimit, &[core, somewhere], refusal(0));
    check(libc::SYS_setrlimit, &[core + 3, somewhere], ALLOW);
}

#[test]
fn seccomp_assembler_reaches_beyond_255_instructions() {
    // A list of comparisons, each with its own far end: both branches of the first must pass over all others.
    for length in [1u32, 125, 126, 127, 128, 253, 254, 255, 256, 257, 600] {
        let mut to = Assembler::default();
        let none = to.answer(u32::MAX);
        let mut ends = Vec::new();
        for value in 0..length {
            ends.push(to.answer(value + 1));
        }
        let mut start = none;
        for value in 0..length {
            start = to.branch(Test::Equal, value, ends[value as usize], start);
        }
        let start = to.load(NUMBER_OFFSET, start);
        let program = to.finish(start);
        for number in 0..length {
            let data = Data { number, architecture: 0, arguments: [0; 6] };
            assert_eq!(interpret(&program, data), number + 1, "{length} comparisons");
        }
        let data = Data { number: length, architecture: 0, arguments: [0; 6] };
        assert_eq!(interpret(&program, data), u32::MAX, "{length} comparisons");
    }
}

/// What the kernel asks of a filter to remember its answer: for most calls it then never runs.
#[test]
fn seccomp_allows_by_number_and_architecture_alone_except_where_a_rule_asks_for_arguments() {
    let by_arguments: Vec<_> =
        rules::RULES.iter().filter(|rule| rule.action == Action::ByArguments).filter_map(|rule| rule.number).collect();
    for number in (0..=calls::HIGHEST).filter(|number| !by_arguments.contains(number)) {
        let data = Data { number, architecture: ARCHITECTURE, arguments: [0; 6] };
        let offsets = std::cell::RefCell::new(Vec::new());
        run(&program().instructions, data, &|offset| offsets.borrow_mut().push(offset));
        assert_eq!(*offsets.borrow(), [ARCHITECTURE_OFFSET, NUMBER_OFFSET], "call {number}");
    }
}

/// Other threads of a caller can change its memory while a call is judged. What it was called with is the kernel's copy.
#[test]
fn seccomp_n14_no_decision_rests_on_memory_that_the_caller_can_change() {
    let answers = [ALLOW, KILL, libc::SECCOMP_RET_ERRNO];
    let jumps = [libc::BPF_JA, libc::BPF_JEQ | libc::BPF_K, libc::BPF_JGE | libc::BPF_K, libc::BPF_JSET | libc::BPF_K];
    let size = u32::try_from(size_of::<libc::seccomp_data>()).unwrap();
    for program in [program(), tier_program()] {
        for sock_filter { code, k, .. } in &program.instructions {
            let code = u32::from(*code);
            let holds = if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
                // The number, the architecture and the arguments, as they were handed over. There is no way from here to memory.
                k + 4 <= size
            } else if code == libc::BPF_RET | libc::BPF_K {
                // Nobody is asked who would have to look at memory first: no listener, no tracer, no signal to a handler.
                answers.contains(&(k & libc::SECCOMP_RET_ACTION_FULL))
            } else {
                code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K
                    || jumps.iter().any(|jump| code == libc::BPF_JMP | jump)
            };
            assert!(holds, "{code:#x} {k:#x}");
        }
    }
}

/// The filter in force, in a child of this process.
mod in_force {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Fence {
        Filter,
        /// The twin: shows that the attempt means something without the filter.
        None,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Identity {
        Same,
        /// An ordinary user, where the test is run by root.
        Ordinary,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum End {
        Success,
        Errno(c_int),
        Signal(c_int),
    }

    const SETUP_FAILED: c_int = 255;

    fn identities() -> Vec<Identity> {
        if rustix::process::geteuid().is_root() {
            vec![Identity::Same, Identity::Ordinary]
        } else {
            vec![Identity::Same]
        }
    }

    /// Forks, sets up, makes one attempt (a result below zero is an error) and says how it ended.
    fn attempt(fence: Fence, identity: Identity, act: &dyn Fn() -> c_long) -> End {
        let filter = program();
        // SAFETY: the child makes only plain system calls on memory that exists before the fork (the filter is built,
        // `act` captures integers), allocates nothing, takes no lock, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: integers only; raw, because libc's `setresuid` would signal threads that this copy does not have.
            let changed =
                identity == Identity::Same || unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) } == 0;
            let is_ready = changed
                && crate::privileges::set_no_new_privileges().is_ok()
                && (fence == Fence::None || install(filter).is_ok());
            let code = match is_ready {
                false => SETUP_FAILED,
                true if act() >= 0 => 0,
                true => std::io::Error::last_os_error().raw_os_error().unwrap_or(SETUP_FAILED),
            };
            // SAFETY: takes an integer and does not return.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: `status` is valid for writing; the child is ours and not yet reaped.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
            (true, 0) => End::Success,
            (true, SETUP_FAILED) => panic!("the filter could not be installed"),
            (true, errno) => End::Errno(errno),
            (false, _) => End::Signal(libc::WTERMSIG(status)),
        }
    }

    fn raw(number: c_long, arguments: [u64; 6]) -> c_long {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the callers pass values that the kernel refuses (the filter does, or they name no valid memory,
        // descriptor or process), or that make harmless objects in a process which ends next.
        unsafe { libc::syscall(number, a, b, c, d, e, f) }
    }

    #[track_caller]
    fn refused(number: c_long, arguments: [u64; 6], errno: c_int) {
        for identity in identities() {
            let end = attempt(Fence::Filter, identity, &|| raw(number, arguments));
            assert_eq!(end, End::Errno(errno), "call {number} as {identity:?}");
        }
    }

    /// Refused with the filter; without it, as any user, it ends otherwise.
    #[track_caller]
    fn refused_unlike_its_twin(number: c_long, arguments: [u64; 6], errno: c_int, twin: &[End]) {
        refused(number, arguments, errno);
        for identity in identities() {
            let end = attempt(Fence::None, identity, &|| raw(number, arguments));
            assert!(twin.contains(&end), "call {number} as {identity:?} without the filter: {end:?}");
        }
    }

    /// No valid memory, descriptor, process or flag.
    const NONSENSE: u64 = u64::MAX;

    #[test]
    fn seccomp_in_force_refuses_every_named_call_before_its_arguments_are_read() {
        for rule in program().rules() {
            let (Some(number), Action::NotPermitted | Action::NotImplemented) = (rule.number, rule.action) else {
                continue;
            };
            let errno = if rule.action == Action::NotPermitted { libc::EPERM } else { libc::ENOSYS };
            refused(number.into(), [NONSENSE; 6], errno);
        }
    }

    #[test]
    fn seccomp_in_force_refuses_what_the_kernel_alone_would_look_at() {
        const BAD_ADDRESS: End = End::Errno(libc::EFAULT);
        const NO_PROCESS: End = End::Errno(libc::ESRCH);
        const BAD_DESCRIPTOR: End = End::Errno(libc::EBADF);
        const INVALID: End = End::Errno(libc::EINVAL);
        let nothing = [0; 6];
        // Each reaches its own code in the kernel, also for an ordinary user, when no filter is there.
        refused_unlike_its_twin(libc::SYS_setns, [NONSENSE, 0, 0, 0, 0, 0], libc::EPERM, &[BAD_DESCRIPTOR]);
        refused_unlike_its_twin(libc::SYS_pidfd_getfd, [NONSENSE, 0, 0, 0, 0, 0], libc::EPERM, &[BAD_DESCRIPTOR]);
        refused_unlike_its_twin(libc::SYS_ptrace, [16, NONSENSE, 0, 0, 0, 0], libc::EPERM, &[NO_PROCESS]);
        refused_unlike_its_twin(libc::SYS_process_vm_readv, [0, 0, 1, 0, 1, NONSENSE], libc::EPERM, &[INVALID]);
        refused_unlike_its_twin(libc::SYS_name_to_handle_at, [NONSENSE; 6], libc::EPERM, &[INVALID, BAD_ADDRESS]);
        refused_unlike_its_twin(libc::SYS_request_key, nothing, libc::EPERM, &[BAD_ADDRESS, End::Errno(libc::ENOSYS)]);
        let keyctl_twins = [End::Errno(libc::EOPNOTSUPP), End::Errno(libc::ENOSYS)];
        refused_unlike_its_twin(libc::SYS_keyctl, [9999, 0, 0, 0, 0, 0], libc::EPERM, &keyctl_twins);
        refused_unlike_its_twin(libc::SYS_clone3, nothing, libc::ENOSYS, &[INVALID]);
        refused_unlike_its_twin(libc::SYS_unshare, [NONSENSE, 0, 0, 0, 0, 0], libc::EPERM, &[INVALID]);
        refused_unlike_its_twin(
            libc::SYS_mbind,
            [1, 1, 99, 0, 0, NONSENSE],
            libc::EPERM,
            &[INVALID, End::Errno(libc::ENOSYS)],
        );
    }

    #[test]
    fn seccomp_in_force_refuses_new_namespaces_and_allows_processes_and_threads() {
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWUSER | libc::CLONE_NEWNS, libc::CLONE_NEWNET] {
            refused(libc::SYS_unshare, [flag as u64, 0, 0, 0, 0, 0], libc::EPERM);
            refused(libc::SYS_clone, [flag as u64 | libc::SIGCHLD as u64, 0, 0, 0, 0, 0], libc::EPERM);
        }
        let unshare = || raw(libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0, 0, 0, 0]);
        let fork = || {
            let child = raw(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]);
            if child == 0 {
                // SAFETY: takes an integer and does not return.
                unsafe { libc::_exit(0) };
            }
            child
        };
        for identity in identities() {
            assert_eq!(attempt(Fence::Filter, identity, &unshare), End::Success);
            assert_eq!(attempt(Fence::Filter, identity, &fork), End::Success);
        }
    }

    #[test]
    fn seccomp_in_force_refuses_socket_families() {
        const VSOCK: u64 = 40;
        const ALG: u64 = 38;
        const PACKET: u64 = 17;
        const NETLINK: u64 = 16;
        const KOBJECT_UEVENT: u64 = 15;
        for family in [VSOCK, ALG, PACKET] {
            refused(libc::SYS_socket, [family, 2, 0, 0, 0, 0], libc::EAFNOSUPPORT);
        }
        let twin = [End::Success];
        let uevent = [NETLINK, 3, KOBJECT_UEVENT, 0, 0, 0];
        refused_unlike_its_twin(libc::SYS_socket, uevent, libc::EPROTONOSUPPORT, &twin);
        for allowed in [[1, 1, 0], [2, 1, 0], [2, 2, 17], [NETLINK, 3, 0]] {
            let [family, kind, protocol] = allowed;
            let socket = || raw(libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
            for identity in identities() {
                assert_eq!(attempt(Fence::Filter, identity, &socket), End::Success, "{allowed:?}");
            }
        }
    }

    #[test]
    fn seccomp_in_force_refuses_to_type_into_a_terminal_also_with_high_bits() {
        for command in [0x5412, 0x541c, 0x5412 | 1 << 32, 0x541c | 1 << 63, 0x5423 | 1 << 40] {
            let twin = [End::Errno(libc::EBADF)];
            refused_unlike_its_twin(libc::SYS_ioctl, [NONSENSE, command, 0, 0, 0, 0], libc::EPERM, &twin);
        }
    }

    #[test]
    fn seccomp_in_force_refuses_numbers_of_x32_and_of_the_future() {
        for number in [470, 512, 520, 0x4000_0000, 0x4000_0000 + 39, 0x4000_0000 + 520] {
            refused(number, [0; 6], libc::ENOSYS);
        }
    }

    /// `getpid` by the 32-bit entry, where every number means another call.
    #[cfg(target_arch = "x86_64")]
    fn getpid_by_int_0x80() -> c_long {
        let result: u64;
        // SAFETY: `getpid` (20) takes nothing and touches no memory. The entry may clear r8 to r11, which are named.
        unsafe {
            std::arch::asm!(
                "int 0x80",
                inlateout("rax") 20u64 => result,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        (result as u32).cast_signed().into()
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn seccomp_in_force_kills_a_32_bit_call() {
        for identity in identities() {
            let end = attempt(Fence::Filter, identity, &getpid_by_int_0x80);
            match attempt(Fence::None, identity, &getpid_by_int_0x80) {
                End::Success => assert_eq!(end, End::Signal(libc::SIGSYS)),
                // A kernel without the 32-bit entry: there is nothing to refuse.
                twin => assert_eq!(end, twin),
            }
        }
    }

    #[test]
    fn seccomp_is_not_installed_without_no_new_privs() {
        if rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: root may install a filter without no_new_privs");
            return;
        }
        std::thread::spawn(|| {
            let error = install(program()).expect_err("no_new_privs is not set");
            assert_eq!(error.raw_os_error(), Some(libc::EACCES));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn seccomp_is_reported_by_the_kernel_once_installed() {
        std::thread::spawn(|| {
            let before = crate::privileges::read_status().unwrap();
            crate::privileges::set_no_new_privileges().unwrap();
            install(program()).unwrap();
            let after = crate::privileges::read_status().unwrap();
            assert_eq!((after.seccomp, after.no_new_privs), (2, true));
            let one_more = before.seccomp_filters.map(|filters| filters + 1);
            assert_eq!(after.seccomp_filters, one_more);
        })
        .join()
        .unwrap();
    }
}
