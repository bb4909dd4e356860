//! The calls that are decided by their arguments.
//!
//! Only by numbers in registers: what a pointer names can change between the decision and the call. The kernel declares
//! these arguments as `int` or narrower and ignores the upper half of the register, so only the lower half is compared:
//! high bits must not turn a refused value into an unknown, allowed one.

use super::assembler::{Assembler, Label, Test};

/// Where the lower half of an argument lies in the data that the filter sees; both architectures are little-endian.
pub(super) const fn low(argument: u32) -> u32 {
    16 + 8 * argument
}

const fn high(argument: u32) -> u32 {
    low(argument) + 4
}

/// `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET`. `clone` takes the bit of
/// `CLONE_NEWTIME` for a part of the signal number.
pub(super) const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned();

/// What `unshare` may be asked for. A list of what is allowed, because newer kernels gave bits a second meaning here
/// that implies a new namespace.
const UNSHARED: u32 = (libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SYSVSEM
    | libc::CLONE_THREAD
    | libc::CLONE_SIGHAND
    | libc::CLONE_VM)
    .cast_unsigned();

pub(super) const TERMINAL_COMMANDS: [u32; 4] =
    [libc::TIOCSTI as u32, libc::TIOCLINUX as u32, libc::TIOCCONS as u32, libc::TIOCSETD as u32];

/// `PER_LINUX32` and `UNAME26`: they change what `uname` says.
const HARMLESS_PERSONALITY: u32 = 0x0002_0008;
/// Process 1 of the sandbox.
pub(super) const GUEST: u32 = 1;
const CORE_LIMIT: u32 = libc::RLIMIT_CORE;
const QUERY_PERSONALITY: u32 = 0xffff_ffff;

/// Of the bits of a file type, those in which both kinds of device, and nothing else, read `S_IFCHR`.
pub(super) const DEVICE_MASK: u32 = 0xb000;

/// The bits of a socket's type that are no flags.
pub(super) const SOCKET_TYPE_MASK: u32 = 0xf;
/// Raw, packet, DCCP and sequenced sockets of the internet families begin here.
pub(super) const FIRST_UNCOMMON_TYPE: u32 = 3;
/// The default one, ICMP for `ping`, TCP, UDP, ICMPv6. Any other makes the kernel load a protocol that few have tested.
const PROTOCOLS: [u32; 5] = [0, 1, 6, 17, 58];

/// The ends of the program that decisions go to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) allow: Label,
    pub(super) not_permitted: Label,
    pub(super) no_such_family: Label,
    pub(super) no_such_protocol: Label,
    /// Answered as if it had been done.
    pub(super) passed_over: Label,
}

/// Writes the decision about the call `name`; nothing when there is none.
pub(super) fn decide(to: &mut Assembler, ends: Ends, name: &str) -> Option<Label> {
    Some(match name {
        "clone" => {
            let test = to.branch(Test::AnyBitOf, NEW_NAMESPACES, ends.not_permitted, ends.allow);
            to.load(low(0), test)
        }
        "unshare" => {
            let test = to.branch(Test::AnyBitOf, !UNSHARED, ends.not_permitted, ends.allow);
            let test = to.load(low(0), test);
            let test = to.branch(Test::Equal, 0, test, ends.not_permitted);
            to.load(high(0), test)
        }
        "ioctl" => {
            let test = one_of(to, &TERMINAL_COMMANDS, ends.not_permitted, ends.allow);
            to.load(low(1), test)
        }
        "fcntl" => {
            let test = to.branch(Test::Equal, libc::F_SETLEASE.cast_unsigned(), ends.not_permitted, ends.allow);
            to.load(low(1), test)
        }
        "personality" => {
            let test = to.branch(Test::Equal, QUERY_PERSONALITY, ends.allow, ends.not_permitted);
            let test = to.branch(Test::AnyBitOf, !HARMLESS_PERSONALITY, test, ends.allow);
            to.load(low(0), test)
        }
        "prlimit64" => {
            let core = set_core_limit(to, ends);
            let core = to.branch(Test::Equal, CORE_LIMIT, core, ends.allow);
            let core = to.load(low(1), core);
            let test = to.branch(Test::Equal, GUEST, ends.not_permitted, core);
            to.load(low(0), test)
        }
        "setrlimit" => {
            let test = to.branch(Test::Equal, CORE_LIMIT, ends.passed_over, ends.allow);
            to.load(low(0), test)
        }
        "mknod" => device(to, ends, 1),
        "mknodat" => device(to, ends, 2),
        "socket" => socket(to, ends),
        "socketpair" => {
            let test = to.branch(Test::Equal, family(libc::AF_UNIX), ends.allow, ends.no_such_family);
            to.load(low(0), test)
        }
        _ => return None,
    })
}

/// `prlimit64` for the core limit. Without new limits it only asks. One that sets and asks at once cannot be answered, and is
/// refused; one that only sets is passed over.
fn set_core_limit(to: &mut Assembler, ends: Ends) -> Label {
    let asks = if_null(to, 3, ends.passed_over, ends.not_permitted);
    if_null(to, 2, ends.allow, asks)
}

fn if_null(to: &mut Assembler, pointer: u32, yes: Label, no: Label) -> Label {
    let test = to.branch(Test::Equal, 0, yes, no);
    let test = to.load(high(pointer), test);
    let test = to.branch(Test::Equal, 0, test, no);
    to.load(low(pointer), test)
}

fn device(to: &mut Assembler, ends: Ends, mode: u32) -> Label {
    let test = to.branch(Test::Equal, libc::S_IFCHR, ends.not_permitted, ends.allow);
    let test = to.mask(DEVICE_MASK, test);
    to.load(low(mode), test)
}

/// The families answer as a kernel that was built without the others, which programs know how to take.
fn socket(to: &mut Assembler, ends: Ends) -> Label {
    let protocol = one_of(to, &PROTOCOLS, ends.allow, ends.no_such_protocol);
    let protocol = to.load(low(2), protocol);
    let kind = to.branch(Test::AtLeast, FIRST_UNCOMMON_TYPE, ends.no_such_protocol, protocol);
    let kind = to.mask(SOCKET_TYPE_MASK, kind);
    let internet = to.load(low(1), kind);

    let protocol = to.branch(Test::Equal, libc::NETLINK_ROUTE.cast_unsigned(), ends.allow, ends.no_such_protocol);
    let netlink = to.load(low(2), protocol);

    let test = to.branch(Test::Equal, family(libc::AF_NETLINK), netlink, ends.no_such_family);
    let test = to.branch(Test::Equal, family(libc::AF_INET6), internet, test);
    let test = to.branch(Test::Equal, family(libc::AF_INET), internet, test);
    let test = to.branch(Test::Equal, family(libc::AF_UNIX), ends.allow, test);
    to.load(low(0), test)
}

pub(super) fn one_of(to: &mut Assembler, values: &[u32], yes: Label, no: Label) -> Label {
    values.iter().rev().fold(no, |no, value| to.branch(Test::Equal, *value, yes, no))
}

const fn family(number: libc::c_int) -> u32 {
    number.cast_unsigned()
}
