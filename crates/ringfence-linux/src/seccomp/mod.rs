//! The filters of system calls: one for programs behind the native wall, and a stricter one for those without namespaces.
//!
//! `filter.rules` says which calls are refused and why; this module turns it into a small program of classic BPF and
//! puts it in force. The program checks the architecture, refuses every number above those that were known when the
//! rules were written, then finds the call's range in a balanced tree. On the way to "allow" it reads nothing but the
//! architecture and the number, which lets the kernel remember the answer and skip the filter for most calls.
//!
//! It holds no switch: each wall has its one filter, and a start without it is no start.

mod arguments;
mod assembler;
mod calls;
mod profile;
mod rules;
#[cfg(test)]
mod tests;
mod tier_arguments;
#[cfg(test)]
mod tier_tests;

use std::io;
use std::sync::LazyLock;

use libc::sock_filter;

use self::arguments::Ends;
use self::assembler::{Assembler, Label, Test};
pub use self::profile::{LEFT_TO_THE_GUEST, engine_profile};
pub use self::rules::{Action, Rule};

#[cfg(not(all(target_endian = "little", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the seccomp filter knows x86_64 and little-endian aarch64 only; read the rules again for another");

/// `EM_X86_64`, 64 bits, little-endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 62 | 0x8000_0000 | 0x4000_0000;
/// `EM_AARCH64`, 64 bits, little-endian.
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 183 | 0x8000_0000 | 0x4000_0000;

// Where the number and the architecture lie in the data that the filter sees.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

static PROGRAM: LazyLock<Program> = LazyLock::new(|| {
    let rules = rules::RULES.to_vec();
    Program { instructions: assemble(&rules, arguments::decide), rules }
});
static TIER: LazyLock<Program> = LazyLock::new(|| {
    let replaced = |rule: &Rule| rules::TIER.iter().any(|stricter| stricter.name == rule.name);
    let kept = rules::RULES.iter().filter(|rule| !replaced(rule));
    let rules: Vec<Rule> = kept.chain(&rules::TIER).copied().collect();
    Program { instructions: assemble(&rules, tier_arguments::decide), rules }
});

/// Writes the decision about a call; nothing when there is none.
type Decide = fn(&mut Assembler, Ends, &str) -> Option<Label>;

/// A filter, ready to be installed.
#[derive(Debug)]
pub struct Program {
    instructions: Vec<sock_filter>,
    rules: Vec<Rule>,
}

/// The filter of this architecture, built on first use.
pub fn program() -> &'static Program {
    &PROGRAM
}

/// The filter of this architecture for programs without namespaces of their own, built on first use.
pub fn tier_program() -> &'static Program {
    &TIER
}

impl Program {
    /// The number of instructions.
    #[allow(clippy::len_without_is_empty, reason = "a filter is never empty")]
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// The rules it was made from.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        self.rules.iter().copied()
    }

    /// What the kernel is handed; it points into this program.
    pub(crate) fn description(&self) -> io::Result<libc::sock_fprog> {
        let length = u16::try_from(self.instructions.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(libc::sock_fprog { len: length, filter: self.instructions.as_ptr().cast_mut() })
    }
}

/// Whether this kernel, as far as we may ask it, can put filters in force that refuse calls.
pub fn is_known() -> bool {
    let refuse = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads the one integer that is pointed to, which outlives the call, and changes nothing.
    let known = unsafe {
        let ask = libc::c_ulong::from(libc::SECCOMP_GET_ACTION_AVAIL);
        libc::syscall(libc::SYS_seccomp, ask, 0 as libc::c_ulong, &raw const refuse)
    };
    known == 0
}

/// Puts the filter in force for the calling thread and all that it starts, for ever.
///
/// `no_new_privs` must be set already. Other threads of the process are not touched: call it where there is one.
pub fn install(program: &Program) -> io::Result<()> {
    let description = program.description()?;
    // SAFETY: `description` and the `len` instructions that it points to are valid for reading during the call; the
    // kernel copies both and writes neither.
    let installed = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::c_ulong::from(libc::SECCOMP_SET_MODE_FILTER),
            0 as libc::c_ulong,
            &raw const description,
        )
    };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn assemble(rules: &[Rule], decide: Decide) -> Vec<sock_filter> {
    let mut to = Assembler::default();
    let refuse = |to: &mut Assembler, errno: libc::c_int| {
        to.answer(libc::SECCOMP_RET_ERRNO | (errno.cast_unsigned() & libc::SECCOMP_RET_DATA))
    };
    let allow = to.answer(libc::SECCOMP_RET_ALLOW);
    let not_permitted = refuse(&mut to, libc::EPERM);
    let not_implemented = refuse(&mut to, libc::ENOSYS);
    let ends = Ends {
        allow,
        not_permitted,
        no_such_family: refuse(&mut to, libc::EAFNOSUPPORT),
        no_such_protocol: refuse(&mut to, libc::EPROTONOSUPPORT),
        // Success, and nothing done.
        passed_over: refuse(&mut to, 0),
    };
    // Calls of another architecture (`int 0x80`) have other numbers, so no rule speaks about them. A 32-bit program
    // could not even end itself if each call failed; killing it with SIGSYS says what happened.
    let kill = to.answer(libc::SECCOMP_RET_KILL_PROCESS);

    let mut refused = Vec::new();
    for rule in rules {
        let Some(number) = rule.number else { continue };
        let label = match rule.action {
            Action::NotPermitted => not_permitted,
            Action::NotImplemented => not_implemented,
            // A call that nobody wrote a decision for is refused whatever its arguments are.
            Action::ByArguments => decide(&mut to, ends, rule.name).unwrap_or(not_permitted),
        };
        refused.push((number, label));
    }
    refused.sort_unstable_by_key(|(number, _)| *number);

    let ranges = ranges(&refused, allow, not_implemented);
    let tree = tree(&mut to, &ranges);
    let start = to.load(NUMBER_OFFSET, tree);
    let start = to.branch(Test::Equal, ARCHITECTURE, start, kill);
    let start = to.load(ARCHITECTURE_OFFSET, start);
    to.finish(start)
}

/// All numbers as ranges: where each begins and where its calls go. What `refused` does not name is allowed up to the
/// highest known number; above it, which includes every x32 number (bit 30), nothing is.
fn ranges(refused: &[(u32, Label)], allow: Label, unknown: Label) -> Vec<(u32, Label)> {
    let mut ranges: Vec<(u32, Label)> = Vec::new();
    let mut begin = |number, label| {
        if ranges.last().is_none_or(|(_, last)| *last != label) {
            ranges.push((number, label));
        }
    };
    let mut next = 0;
    for (number, label) in refused {
        if *number > next {
            begin(next, allow);
        }
        begin(*number, *label);
        next = number + 1;
    }
    if next <= calls::HIGHEST {
        begin(next, allow);
    }
    begin(calls::HIGHEST + 1, unknown);
    ranges
}

/// A balanced tree over the ranges: one comparison for each bound between two of them.
fn tree(to: &mut Assembler, ranges: &[(u32, Label)]) -> Label {
    if let [(_, label)] = ranges {
        return *label;
    }
    let (lower, upper) = ranges.split_at(ranges.len() / 2);
    let bound = upper[0].0;
    let upper = tree(to, upper);
    let lower = tree(to, lower);
    to.branch(Test::AtLeast, bound, upper, lower)
}
