//! Decisions by arguments that hold where a program has no namespaces of its own. The rules of `arguments.rs` hold here as
//! well; what this file does not decide, that one does.

use super::arguments::{self, Ends, low};
use super::assembler::{Assembler, Label, Test};

/// Streams and sequenced packets stay with the other end of their pair. `SOCK_RAW` is a datagram socket here.
const PAIRED_TYPES: [u32; 2] = [libc::SOCK_STREAM.cast_unsigned(), libc::SOCK_SEQPACKET.cast_unsigned()];

/// The kind of an `ioctl` command stands in its second byte.
const COMMAND_KIND: u32 = 0xff00;
/// File systems: flags, versions, encryption and verity (`f`, `v`), attributes (`X`), btrfs and clones (0x94).
const FILE_SYSTEM_KINDS: [u32; 4] = [0x6600, 0x7600, 0x5800, 0x9400];

/// `PRIO_USER` and `IOPRIO_WHO_USER`: all processes of the user.
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;

/// Writes the decision about the call `name`; nothing when there is none.
pub(super) fn decide(to: &mut Assembler, ends: Ends, name: &str) -> Option<Label> {
    Some(match name {
        "socket" => ends.no_such_family,
        "socketpair" => {
            let kind = arguments::one_of(to, &PAIRED_TYPES, ends.allow, ends.no_such_protocol);
            let kind = to.mask(arguments::SOCKET_TYPE_MASK, kind);
            let kind = to.load(low(1), kind);
            let test = to.branch(Test::Equal, libc::AF_UNIX.cast_unsigned(), kind, ends.no_such_family);
            to.load(low(0), test)
        }
        "ioctl" => {
            let otherwise = arguments::decide(to, ends, "ioctl")?;
            let test = arguments::one_of(to, &FILE_SYSTEM_KINDS, ends.not_permitted, otherwise);
            let test = to.mask(COMMAND_KIND, test);
            to.load(low(1), test)
        }
        "prlimit64" | "sched_setaffinity" | "sched_setparam" | "sched_setscheduler" | "sched_setattr" => {
            itself(to, ends, 0)
        }
        "setpriority" => {
            let itself = itself(to, ends, 1);
            let test = to.branch(Test::Equal, PRIO_USER, ends.not_permitted, itself);
            to.load(low(0), test)
        }
        "ioprio_set" => {
            let itself = itself(to, ends, 1);
            let test = to.branch(Test::Equal, IOPRIO_WHO_USER, ends.not_permitted, itself);
            to.load(low(0), test)
        }
        _ => return arguments::decide(to, ends, name),
    })
}

/// Nobody but the caller, whose number is 0 to itself.
fn itself(to: &mut Assembler, ends: Ends, process: u32) -> Label {
    let test = to.branch(Test::Equal, 0, ends.allow, ends.not_permitted);
    to.load(low(process), test)
}
