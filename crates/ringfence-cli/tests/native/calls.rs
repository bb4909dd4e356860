//! N rows: system calls by number, with arguments that a permitted call would stumble over.

use crate::network::with_and_without_a_way_out;
use crate::probe::{Wall, python, run, walled};

/// Prints the error of each call, by name.
const CALL: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    print(name, ctypes.get_errno() if result < 0 else 0, flush=True)
";

const X86: &str = "
if os.uname().machine != 'x86_64': sys.exit(77)
";

fn answers(text: &str) -> Vec<(&str, i32)> {
    text.lines().filter_map(|line| line.split_once(' ')).map(|(name, number)| (name, number.parse().unwrap())).collect()
}

#[test]
fn n03_n04_n05_dangerous_calls_are_refused_before_their_arguments_are_read() {
    let Some(stage) = walled() else { return };
    // -1 as a pointer: a call that gets as far as its arguments answers EFAULT or the like.
    let code = format!(
        "{CALL}{X86}
calls = dict(clone3=435, io_uring_setup=425, io_uring_enter=426, io_uring_register=427, bpf=321, perf_event_open=298,
    userfaultfd=323, add_key=248, request_key=249, keyctl=250, fsopen=430, fsconfig=431, fsmount=432, fspick=433,
    open_tree=428, move_mount=429, mount_setattr=442, open_tree_attr=467, mount=165, umount2=166, pivot_root=155,
    chroot=161, setns=308, ptrace=101, process_vm_readv=310, process_vm_writev=311, pidfd_getfd=438,
    process_madvise=440, kcmp=312, kexec_load=246, kexec_file_load=320, init_module=175, finit_module=313,
    delete_module=176, name_to_handle_at=303, open_by_handle_at=304, fanotify_init=300, syslog=103, reboot=169,
    swapon=167, acct=163, quotactl=179, settimeofday=164, clock_settime=227, adjtimex=159, sethostname=170,
    iopl=172, ioperm=173, modify_ldt=154, move_pages=279, unknown=470)
if sys.argv[1:] == ['harmless']:
    # With nothing to read, none of these does anything even for root.
    for name in ['clone3', 'io_uring_setup', 'bpf', 'add_key', 'keyctl', 'process_vm_readv', 'kcmp', 'name_to_handle_at']:
        call(name, calls[name], -1, -1, -1, -1, -1, -1)
else:
    for name, number in calls.items(): call(name, number, -1, -1, -1, -1, -1, -1)
"
    );
    let Some(ended) = python(&stage, Wall::Native, &code, &[]) else { return };
    if ended.code == 77 {
        eprintln!("SKIPPED: the numbers of these calls are those of x86_64");
        return;
    }
    let text = ended.text();
    let refused = answers(&text);
    assert_eq!(refused.len(), 51, "{ended:?}");
    for (name, error) in refused {
        let expected: &[i32] = if name == "clone3" || name == "unknown" { &[38] } else { &[1, 38] };
        assert!(expected.contains(&error), "{name} answered {error}");
    }
    let bare = python(&stage, Wall::Bare, &code, &["harmless"]).unwrap().text();
    let reached = answers(&bare).into_iter().filter(|(_, error)| ![1, 38].contains(error)).count();
    assert!(reached >= 4, "the probe proves nothing: {bare}");
}

#[test]
fn n03_threads_and_processes_work_without_clone3() {
    let Some(stage) = walled() else { return };
    let code = "
import subprocess, threading
thread = threading.Thread(target=lambda: print('thread')); thread.start(); thread.join()
print(subprocess.run(['echo', 'process'], capture_output=True, text=True).stdout, end='')
";
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    assert_eq!(ended.text(), "thread\nprocess\n", "{ended:?}");
}

#[test]
fn n06_calls_of_another_architecture_are_refused() {
    let Some(stage) = walled() else { return };
    let code = format!(
        "{CALL}{X86}
import mmap
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex('b814000000cd80c3'))
call('x32', 0x40000000 | 39)
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
print('int80', function() - os.getpid(), flush=True)
"
    );
    let Some(ended) = python(&stage, Wall::Native, &code, &[]) else { return };
    if ended.code == 77 {
        eprintln!("SKIPPED: int 0x80 is of x86_64");
        return;
    }
    assert_eq!((ended.code, &*ended.text()), (128 + 31, "x32 38\n"), "SIGSYS: {ended:?}");
    let bare = python(&stage, Wall::Bare, &code, &[]).unwrap();
    if bare.text().contains("int80 0\n") {
        return;
    }
    eprintln!("SKIPPED: the twin of int 0x80: this kernel has no 32-bit calls");
}

#[test]
fn n07_nobody_types_into_a_terminal() {
    let Some(stage) = walled() else { return };
    let code = "
import ctypes, os, pty, sys
libc = ctypes.CDLL(None, use_errno=True)
child, terminal = pty.fork()
if child == 0:
    def ask(name, command):
        ctypes.set_errno(0)
        result = libc.ioctl(0, ctypes.c_ulong(command), ctypes.c_char_p(b'x'))
        return '%s %d' % (name, ctypes.get_errno() if result < 0 else 0)
    answers = [ask('typed', 0x5412), ask('high-bits', 0x5412 | 1 << 32)]
    # Without a wall, root would take the machine's console.
    if sys.argv[1:] == ['all']: answers += [ask('linux', 0x541C), ask('console', 0x541D), ask('line', 0x5423)]
    os.write(1, (';'.join(answers) + '\\n').encode()); os._exit(0)
text = b''
while b'high-bits' not in text: text += os.read(terminal, 1000)
os.waitpid(child, 0)
print(text.decode().replace('\\r', ''))
";
    let Some(ended) = python(&stage, Wall::Native, code, &["all"]) else { return };
    assert!(ended.text().contains("typed 1;high-bits 1;linux 1;console 1;line 1"), "EPERM: {ended:?}");
    let bare = python(&stage, Wall::Bare, code, &[]).unwrap().text();
    if !bare.contains("typed 0") {
        eprintln!("SKIPPED: the twin of typing into a terminal: this kernel permits it to nobody: {bare}");
    }
}

#[test]
fn n10_only_common_families_of_sockets_are_there() {
    let code = "
import socket
for name, family, kind, protocol in [('vsock', 40, 1, 0), ('packet', 17, 3, 768), ('generic', 16, 3, 16), ('audit', 16, 3, 9),
        ('netfilter', 16, 3, 12), ('uevent', 16, 3, 15), ('xfrm', 16, 3, 6), ('raw', 2, 3, 1), ('raw6', 10, 3, 58), ('alg', 38, 5, 0),
        ('can', 29, 3, 1), ('bluetooth', 31, 3, 1), ('sctp', 2, 1, 132), ('tipc', 30, 2, 0), ('xdp', 44, 3, 0), ('key', 15, 3, 2),
        ('inet', 2, 1, 0), ('inet6', 10, 2, 0), ('unix', 1, 1, 0), ('route', 16, 3, 0)]:
    try: socket.socket(family, kind, protocol); print(name)
    except OSError: pass
";
    with_and_without_a_way_out(|stage| {
        let ended = python(stage, Wall::Native, code, &[]).unwrap();
        assert_eq!(ended.text(), "inet\ninet6\nunix\nroute\n", "{ended:?}");
        let bare = python(stage, Wall::Bare, code, &[]).unwrap().text();
        assert!(bare.contains("generic\n") && bare.contains("uevent\n"), "the probe proves nothing: {bare}");
    });
}

#[test]
fn n05_nsenter_and_remounting_do_not_work() {
    let Some(stage) = walled() else { return };
    // What is harmless in a namespace of one's own, and the rest.
    let harmless = "nsenter -t $$ -n true && echo entered; mount -t tmpfs none /tmp && echo mounted
        umount /tmp && echo unmounted; chroot / true && echo changed";
    let script = &format!("{harmless}; nsenter -t 1 -m -n true && echo entered; mount -o remount,rw /usr && echo remounted
        mount -o remount,rw / && echo remounted; umount /workspace && echo unmounted; umount -l /proc && echo unmounted
        mount --bind / /tmp && echo mounted
        echo x > /usr/x && echo written; echo x > /x && echo written; echo x > /etc/x && echo written; echo x > /dev/x && echo written; :");
    let ended = run(&stage, Wall::Native, &[], &["sh", "-c", script]).run().expect(0, &[]);
    assert_eq!(ended.text(), "", "{ended:?}");
    let twin = run(&stage, Wall::Bare, &[], &["unshare", "-Urmn", "sh", "-c", harmless]).run();
    assert_eq!(twin.text(), "entered\nmounted\nunmounted\nchanged\n", "the probe proves nothing: {twin:?}");
}
