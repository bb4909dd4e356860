//! Privileges, and the calls that a filtered kernel refuses.

use super::super::CheckError;
use super::super::attack::{Attack, Control, Found, Probe};
use super::super::host::{Look, Nap, own_status};
use crate::Guarantee;

const SETS: [&str; 5] = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"];

/// Calls that do nothing when each argument is -1, also for root, with their numbers on x86_64 and aarch64. Refused, each
/// answers EPERM or ENOSYS; otherwise it stumbles over its arguments.
const CALLS: [(&str, u32, u32); 12] = [
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
        needs: &["perl", "python3"],
        applies: |_| cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
        set: |_, _, _| {
            let on = |x86: u32, arm: u32| if cfg!(target_arch = "x86_64") { x86 } else { arm };
            let calls: Vec<String> =
                CALLS.iter().map(|(name, x86, arm)| format!("{name}:{}", on(*x86, *arm))).collect();
            let script = format!(
                r#"calls='{}'
                if command -v perl > /dev/null; then
                    found=$(perl -e 'sub open_ {{ my $r = syscall($_[0], @_[1..6]); !($r == -1 && ($!+0 == 1 || $!+0 == 38)) }}
                        for (@ARGV) {{ my ($n, $c) = split /:/; print "$n " if open_($c+0, -1, -1, -1, -1, -1, -1) }}
                        print "ioctl " if open_({ioctl}, 0, 0x5412, 0, 0, 0, 0)' $calls)
                else
                    found=$(python3 -c 'import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
def is_open(*a): return not (libc.syscall(*map(ctypes.c_long, a)) == -1 and ctypes.get_errno() in (1, 38))
for call in sys.argv[1:]:
    n, c = call.split(":")
    if is_open(int(c), -1, -1, -1, -1, -1, -1): print(n, end=" ")
if is_open({ioctl}, 0, 0x5412, 0, 0, 0, 0): print("ioctl", end=" ")' $calls)
                fi
                if [ -n "$found" ]; then sleep $1; fi"#,
                calls.join(" "),
                ioctl = on(IOCTL.0, IOCTL.1)
            );
            Ok(Probe::for_nap(script, Nap::until_seen()?, "calls that the filter should refuse were answered"))
        },
    },
];

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
