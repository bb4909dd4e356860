//! Privileges, and the calls that a filtered kernel refuses.

use ringfence_policy::ResolvedPolicy;

use super::super::CheckError;
use super::super::attack::{Attack, Control, Found, Probe};
use super::super::host::{Look, Nap, own_status};
use crate::Guarantee;

/// Either can make any call.
const INTERPRETERS: &[&str] = &["perl", "python3"];
const SETS: [&str; 5] = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"];

/// Calls that do nothing when each argument is -1, also for root, with their numbers on x86_64 and aarch64. Refused, each
/// answers EPERM or ENOSYS; otherwise it stumbles over its arguments.
const CALLS: [Named; 12] = [
    ("mount", 165, 40),
    ("ptrace", 101, 117),
    ("bpf", 321, 280),
    ("keyctl", 250, 219),
    ("add_key", 248, 217),
    ("userfaultfd", 323, 282),
    ("perf_event_open", 298, 241),
    ("process_vm_readv", 310, 270),
    ("kcmp", 312, 272),
    ("setns", 308, 268),
    ("name_to_handle_at", 303, 264),
    ("clone3", 435, 435),
];
const IOCTL: (u32, u32) = (16, 29);
const SOCKET: (u32, u32) = (41, 198);

/// A call, and its numbers on x86_64 and aarch64.
type Named = (&'static str, u32, u32);

/// What types into a terminal, and asks the machine's console; the filter has to look at the lower half alone.
const TO_TERMINALS: [(&str, u64); 3] = [("TIOCSTI", 0x5412), ("high bits", 0x5412 | 1 << 32), ("TIOCLINUX", 0x541C)];
/// Families of sockets that reach the machine, not a network: family, kind, protocol. The last ones are everybody's without a
/// filter.
const FAMILIES: [(&str, [u64; 3]); 5] = [
    ("vsock", [40, 1, 0]),
    ("packet", [17, 3, 768]),
    ("algorithm", [38, 5, 0]),
    ("generic netlink", [16, 3, 16]),
    ("uevent netlink", [16, 3, 15]),
];

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        id: "N01-no-new",
        guarantee: Guarantee::NoNewPrivileges,
        tries: "run where setuid programs gain something",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| looked_at(|look| (look.status("NoNewPrivs") != "1").then(|| "NoNewPrivs is not set".to_owned())),
    },
    Attack {
        id: "N01-capabilities",
        guarantee: Guarantee::Unprivileged,
        tries: "have a capability, or be root on the host",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            looked_at(|look| {
                if look.status("Uid").split_whitespace().any(|id| id == "0") {
                    return Some("it is root on the host".to_owned());
                }
                let some = SETS.into_iter().find(|set| look.status(set).bytes().any(|digit| digit != b'0'));
                some.map(|set| format!("{set} is {}", look.status(set)))
            })
        },
    },
    Attack {
        id: "N01-seccomp",
        guarantee: Guarantee::KernelFilter,
        tries: "run without a filter of system calls",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            looked_at(|look| {
                // We may be behind a filter ourselves: the wall's own has to come on top.
                let filters = |text: &str| text.parse::<u32>().unwrap_or(0);
                let (inside, ours) = (look.status("Seccomp_filters"), own_status("Seccomp_filters"));
                let is_filtered = look.status("Seccomp") == "2" && filters(inside) > filters(&ours);
                (!is_filtered).then(|| format!("Seccomp is {}", look.status("Seccomp")))
            })
        },
    },
    Attack {
        id: "N02-namespace",
        guarantee: Guarantee::KernelFilter,
        tries: "be root in a user namespace of its own",
        control: Control::WithoutWall,
        needs: &["unshare"],
        applies: |_| true,
        set: |_, _, _| Ok(Probe::for_nap("unshare -Ur sleep $1", Nap::until_seen()?, "a user namespace could be made")),
    },
    Attack {
        id: "N05-calls",
        guarantee: Guarantee::KernelFilter,
        tries: "mount, trace, load into the kernel, inject keys",
        control: Control::WithoutWall,
        needs: INTERPRETERS,
        applies: is_known_machine,
        set: |_, _, _| {
            let typed = [("ioctl", IOCTL.0, IOCTL.1, vec![0, 0x5412])];
            let nonsense = CALLS.map(|(name, x86, arm)| (name, x86, arm, vec![u64::MAX; 6]));
            answered(&[&nonsense[..], &typed].concat())
        },
    },
    Attack {
        id: "N03-clone3",
        guarantee: Guarantee::KernelFilter,
        tries: "be root in a user namespace, by the newer call that filters cannot look into",
        control: Control::WithoutWall,
        needs: INTERPRETERS,
        applies: |_| true,
        set: |_, _, _| {
            // A new user namespace, and the signal of an ordinary child.
            let script = r#"if command -v perl > /dev/null; then
                perl -e 'my $a = pack("Q8", 0x10000000, 0, 0, 0, 17, 0, 0, 0); my $c = syscall(435, $a, 64);
                    exec "sleep", $ARGV[0] if $c == 0; waitpid($c, 0) if $c > 0' $1
                else python3 -c 'import ctypes, os, struct, sys
child = ctypes.CDLL(None).syscall(435, struct.pack("8Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0), 64)
if child == 0: os.execvp("sleep", ["sleep", sys.argv[1]])
if child > 0: os.waitpid(child, 0)' $1; fi"#;
            Ok(Probe::for_nap(script, Nap::until_seen()?, "a user namespace could be made"))
        },
    },
    Attack {
        id: "N07-terminal",
        guarantee: Guarantee::KernelFilter,
        tries: "type into a terminal",
        control: Control::WithoutWall,
        needs: INTERPRETERS,
        applies: is_known_machine,
        // Of what is no terminal, whoever may ask hears that it is none.
        set: |_, _, _| answered(&TO_TERMINALS.map(|(name, asked)| (name, IOCTL.0, IOCTL.1, vec![0, asked]))),
    },
    Attack {
        id: "N10-families",
        guarantee: Guarantee::KernelFilter,
        tries: "open sockets to the machine, its hypervisor and its packets",
        control: Control::WithoutWall,
        needs: INTERPRETERS,
        applies: is_known_machine,
        set: |_, _, _| answered(&FAMILIES.map(|(name, asked)| (name, SOCKET.0, SOCKET.1, asked.to_vec()))),
    },
];

fn is_known_machine(_: &ResolvedPolicy) -> bool {
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
}

/// A probe that sleeps when one of `calls`, each with its numbers and arguments, is not refused. One that gets as far as its
/// arguments stumbles over them, or makes what ends with it.
fn answered(calls: &[(&str, u32, u32, Vec<u64>)]) -> Result<Probe, CheckError> {
    let line = |(name, x86, arm, arguments): &(&str, u32, u32, Vec<u64>)| {
        let number = if cfg!(target_arch = "x86_64") { x86 } else { arm };
        let rest = (0..6).map(|place| arguments.get(place).copied().unwrap_or_default().cast_signed().to_string());
        format!("{name}:{number}:{}", rest.collect::<Vec<_>>().join(":"))
    };
    // EPERM, ENOSYS, and what sockets of a family are refused with.
    let script = r#"if command -v perl > /dev/null; then
            found=$(perl -e 'for (split /\n/, $ARGV[0]) { my ($n, @c) = split /:/; my $r = syscall($c[0]+0, map { $_+0 } @c[1..6]);
                print "$n " if !($r == -1 && grep { $!+0 == $_ } (1, 38, 93, 97)) }' "$2")
        else
            found=$(python3 -c 'import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
for call in sys.argv[1].split("\n"):
    name, *numbers = call.split(":")
    if libc.syscall(*map(ctypes.c_long, map(int, numbers))) != -1 or ctypes.get_errno() not in (1, 38, 93, 97): print(name, end=" ")' "$2")
        fi
        if [ -n "$found" ]; then sleep $1; fi"#;
    let calls: Vec<String> = calls.iter().map(line).collect();
    let nap = Nap::until_seen()?;
    Ok(Probe::for_nap(script, nap, "calls that the filter should refuse were answered").with(calls.join("\n")))
}

/// A probe that lives for a moment, so that the kernel can be asked about it.
fn looked_at(judge: impl Fn(&Look) -> Option<String> + Send + 'static) -> Result<Probe, CheckError> {
    Ok(Probe::new("sleep $1", move |ended| {
        Ok(match &ended.seen.look {
            Some(look) => judge(look).map_or(Found::Stopped, Found::GotThrough),
            None => Found::Unclear("the host did not see the probe".to_owned()),
        })
    })
    .napping(Nap::until_seen()?))
}
