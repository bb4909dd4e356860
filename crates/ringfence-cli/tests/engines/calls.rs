//! N rows: privileges, and system calls by number.

use crate::walls::{field, for_each_engine, with_and_without_a_way_out};

const CALL: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    print(name, ctypes.get_errno() if result < 0 else 0, flush=True)
";

fn answers(text: &str) -> Vec<(&str, i32)> {
    text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(n, e)| Some((n, e.parse().ok()?))).collect()
}

#[test]
fn n01_the_program_is_nobody_has_no_capability_and_a_filter() {
    for_each_engine("", |place| {
        let inside = place.sh("cat /proc/self/status", &[]).expect(0, &[]).text();
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            // A kernel that does not tell has nothing to show.
            assert!(field(&inside, set).is_none_or(|value| value == "0000000000000000"), "{set}: {inside}");
        }
        assert!(field(&inside, "CapEff").is_some(), "{inside}");
        assert_eq!(place.sh("id -u; id -g; id -G", &[]).text(), "1000\n1000\n1000\n");
        if place.wall.shows_processes() {
            assert_eq!(field(&inside, "NoNewPrivs").as_deref(), Some("1"), "{inside}");
            assert_eq!(field(&inside, "Seccomp").as_deref(), Some("2"), "{inside}");
        }
        let bare = place.bare_sh("cat /proc/self/status", &[]).text();
        assert_ne!(field(&bare, "CapBnd").unwrap(), "0000000000000000", "the probe proves nothing");
    });
}

#[test]
fn n02_n05_no_namespace_is_made_entered_or_changed() {
    for_each_engine("", |place| {
        let script = "unshare -Urm true && echo unshared; unshare -n true && echo unshared; nsenter -t 1 -m true && echo entered
            mount -t tmpfs none /tmp && echo mounted; umount /proc && echo unmounted; chroot / true && echo changed
            mount -o remount,rw / && echo remounted; echo x > /usr/x && echo written; echo x > /etc/x && echo written; :";
        assert_eq!(place.sh(&format!("({script}) 2> /dev/null"), &[]).text(), "");
        let twin = place.bare_sh("unshare -Urm true && echo unshared", &[]);
        assert_eq!(twin.text(), "unshared\n", "the probe proves nothing: {twin:?}");
    });
}

#[test]
fn n03_n04_n05_dangerous_calls_are_refused_before_their_arguments_are_read() {
    let code = format!(
        "{CALL}
if os.uname().machine != 'x86_64': sys.exit(77)
calls = dict(clone3=435, io_uring_setup=425, bpf=321, perf_event_open=298, userfaultfd=323, add_key=248, keyctl=250, fsopen=430,
    open_tree=428, mount=165, setns=308, ptrace=101, process_vm_readv=310, pidfd_getfd=438, kexec_load=246, init_module=175,
    open_by_handle_at=304)
for name, number in calls.items():
    if name in ('clone3', 'add_key', 'keyctl', 'process_vm_readv', 'bpf') or sys.argv[1:] != ['harmless']: call(name, number, -1, -1, -1, -1, -1, -1)
"
    );
    for_each_engine("", |place| {
        let ended = place.python(&code, &[]);
        if ended.code == 77 {
            eprintln!("SKIPPED: the numbers of these calls are those of x86_64");
            return;
        }
        let text = ended.text();
        assert_eq!(answers(&text).len(), 17, "{ended:?}");
        for (name, error) in answers(&text) {
            assert!([1, 38].contains(&error), "{}: {name} answered {error}", place.wall);
        }
        let twin = place.bare_python(&code, &["harmless"]).text();
        assert!(answers(&twin).iter().any(|(_, error)| ![1, 38].contains(error)), "the probe proves nothing: {twin}");
    });
}

#[test]
fn n06_calls_of_another_architecture_are_refused() {
    let code = format!("{CALL}\nif os.uname().machine != 'x86_64': sys.exit(77)\ncall('x32', 0x40000000 | 39)\n");
    for_each_engine("", |place| {
        let ended = place.python(&code, &[]);
        let refused = ended.code == 77 || ended.code > 128 || ended.text() == "x32 38\n" || ended.text() == "x32 1\n";
        assert!(refused, "{ended:?}");
    });
}

#[test]
fn n07_nobody_types_into_a_terminal() {
    let code = "
import ctypes, os, pty
libc = ctypes.CDLL(None, use_errno=True)
child, terminal = pty.fork()
if child == 0:
    answers = []
    for command in (0x5412, 0x5412 | 1 << 32):
        ctypes.set_errno(0)
        answers.append(ctypes.get_errno() if libc.ioctl(0, ctypes.c_ulong(command), ctypes.c_char_p(b'x')) < 0 else 0)
    os.write(1, ('typed %d %d\\n' % tuple(answers)).encode()); os._exit(0)
text = b''
while b'typed' not in text or not text.endswith(b'\\n'): text += os.read(terminal, 1000)
print(text.decode().replace('\\r', ''))
";
    for_each_engine("", |place| {
        let ended = place.python(code, &[]);
        assert!(!ended.text().contains("typed 0") && !ended.text().contains(" 0\n"), "{ended:?}");
    });
}

#[test]
fn n08_a_program_that_is_somebody_elses_gains_nothing() {
    for_each_engine("", |place| {
        let script = "for program in /bin/su /bin/mount /usr/bin/passwd /usr/bin/newgrp; do [ -u $program ] && echo there; done; \
            su -c 'id -u' 2> /dev/null < /dev/null; echo end";
        let text = place.sh(script, &[]).text();
        assert!(text.ends_with("end\n") && !text.lines().any(|line| line == "0"), "{text}");
    });
}

#[test]
fn n10_only_common_families_of_sockets_are_there() {
    let code = "
import socket
for name, family, kind, protocol in [('vsock', 40, 1, 0), ('packet', 17, 3, 768), ('generic', 16, 3, 16), ('audit', 16, 3, 9),
        ('uevent', 16, 3, 15), ('raw', 2, 3, 1), ('alg', 38, 5, 0), ('inet', 2, 1, 0), ('unix', 1, 1, 0)]:
    try: socket.socket(family, kind, protocol); print(name)
    except OSError: pass
";
    with_and_without_a_way_out(|place| {
        assert_eq!(place.python(code, &[]).text(), "inet\nunix\n", "{}", place.wall);
        let bare = place.bare_python(code, &[]).text();
        assert!(bare.contains("generic\n") && bare.contains("uevent\n"), "the probe proves nothing: {bare}");
    });
}

#[test]
fn n15_the_kernels_files_are_masked_and_no_cgroup_can_be_written() {
    for_each_engine("", |place| {
        let script = "for file in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname; do
                (echo x > $file) 2> /dev/null && echo \"wrote $file\"; done
            find /sys/fs/cgroup -writable -type f 2> /dev/null | head -n 3; find /proc/sys -writable -type f 2> /dev/null | head -n 3
            for file in /proc/kcore /proc/kmsg /proc/sched_debug /proc/timer_list; do head -c 1 $file 2> /dev/null | wc -c | grep -v 0; done; :";
        assert_eq!(place.sh(script, &[]).text(), "");
        let twin = place.bare_sh("[ -r /proc/version ] && find . -writable -type d | head -n 1", &[]);
        assert_eq!(twin.text(), ".\n", "the probe proves nothing");
        // Whoever owns them, they are mounted to be read only; the control of a check is its twin.
        let checked = place.ringfence(&["check", "--json", "--only", "N15-kernel-files"]).run().json();
        assert_eq!(checked["attacks"][0]["result"], "held", "{}: {checked:#}", place.wall);
    });
}
