//! N, E and S rows: processes, sockets and shared memory of the host, which no namespace keeps away.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::time::{Duration, Instant};

use ringfence_testkit::canary::secret;

use crate::probe::{PYTHON, Victim, Wall, fenced, outside, python, run, sh, text};
use crate::stage::Stage;

#[test]
fn n09_n10_n16_e13_no_socket_reaches_a_listener_of_the_host() {
    let code = "
path, datagrams, abstract, port = sys.argv[1:]
def knock(kind, address, family=socket.AF_UNIX):
    with socket.socket(family, kind) as one:
        one.connect(address)
        one.send(b'x')
attempt(lambda: knock(socket.SOCK_STREAM, path))
attempt(lambda: knock(socket.SOCK_DGRAM, datagrams))
attempt(lambda: knock(socket.SOCK_STREAM, '\\0' + abstract))
attempt(lambda: knock(socket.SOCK_STREAM, ('127.0.0.1', int(port)), socket.AF_INET))
def by_pair(kind):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    attempt(lambda: one.sendto(b'x', datagrams))
    attempt(lambda: one.connect(datagrams) or one.send(b'x'))
    attempt(lambda: one.sendmsg([b'x'], [], 0, datagrams))
    attempt(lambda: one.connect(path))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    attempt(lambda: by_pair(kind))
made = 0
for family in range(46):
    for kind in range(1, 6):
        descriptor, _ = call(41, family, kind, 0)
        if descriptor >= 0:
            made += 1
            os.close(descriptor)
print('made', made)
";
    let hits = |wall| {
        let stage = fenced()?;
        let folder = outside(&stage);
        let name = secret().unwrap();
        let stream = UnixListener::bind(folder.join("stream")).unwrap();
        let datagrams = UnixDatagram::bind(folder.join("datagrams")).unwrap();
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        stream.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        hidden.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        let arguments =
            [text(&folder.join("stream")), text(&folder.join("datagrams")), &name, &port].map(str::to_owned);
        let ended = python(&stage, wall, code, &arguments.each_ref().map(String::as_str));
        let datagram = datagrams.recv(&mut [0; 8]).is_ok();
        let made = ended.text().contains("made ") && !ended.text().contains("made 0\n");
        Some([stream.accept().is_ok(), datagram, hidden.accept().is_ok(), tcp.accept().is_ok(), made])
    };
    let Some(bare) = hits(Wall::Bare) else { return };
    assert_eq!(bare, [true; 5], "the twin");
    assert_eq!(hits(Wall::Tier), Some([false; 5]));
}

#[test]
fn n11_a_process_of_the_same_user_cannot_be_signalled() {
    let script = "kill -9 \"$1\"; kill -STOP \"$1\"; kill -9 -1; true";
    let survives = |wall, script| {
        let stage = fenced()?;
        let mut victim = Victim::start();
        sh(&stage, wall, script, &[&victim.id()]);
        std::thread::sleep(Duration::from_millis(100));
        Some(victim.is_alive() && victim.read("stat").contains(") S "))
    };
    // Without a wall `kill -9 -1` would end the tests as well.
    let Some(bare) = survives(Wall::Bare, "kill -9 \"$1\"") else { return };
    assert!(!bare, "the twin");
    assert_eq!(survives(Wall::Tier, script), Some(true));
    let by_descriptor = "
fd, _ = call(434, int(sys.argv[1]), 0)
call(424, fd, 9, 0, 0)
call(234, int(sys.argv[1]), int(sys.argv[1]), 9)
";
    for (wall, expected) in [(Wall::Bare, false), (Wall::Tier, true)] {
        let Some(stage) = fenced() else { return };
        let mut victim = Victim::start();
        python(&stage, wall, by_descriptor, &[&victim.id()]);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(victim.is_alive(), expected, "{wall:?}");
    }
}

#[test]
fn n11_the_keeper_cannot_be_killed_or_stopped_and_nothing_survives() {
    let Some(stage) = fenced() else { return };
    let mark = format!("{}", 3_000_000 + std::process::id());
    let script = "(setsid sh -c 'trap \"\" TERM HUP; sleep \"$1\"' sh \"$1\" > /dev/null 2>&1 &) ; sleep 0.2; \
        kill -9 $PPID; kill -STOP $PPID; echo still here";
    let begin = Instant::now();
    let ended = run(&stage, Wall::Tier, &["--json", "--timeout", "20s"], &["sh", "-c", script, "sh", &mark]);
    let outcome = ended.json();
    assert_eq!((&outcome["status"], &outcome["exitCode"]), (&"exited".into(), &0.into()), "{outcome:#}");
    assert!(outcome["stdout"].to_string().contains("still here"));
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!command_lines().contains(&mark), "a daemon survived");
    let bare = run(&stage, Wall::Bare, &["--json"], &["sh", "-c", "kill -9 $PPID; sleep 1"]).json();
    assert_eq!(bare["status"], "couldNotRun", "the twin: {bare:#}");
}

/// What runs on the host now.
fn command_lines() -> String {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " ") + "\n").collect()
}

#[test]
fn s01_the_environment_and_memory_of_other_processes_are_closed() {
    let word = secret().unwrap();
    let code = "
pid = int(sys.argv[1])
attempt(lambda: print(open('/proc/%d/environ' % pid).read()))
attempt(lambda: print(os.listdir('/proc/%d/fd' % pid), os.readlink('/proc/%d/cwd' % pid)))
attempt(lambda: open('/proc/%d/mem' % pid, 'rb') and print('memory'))
for file in ('/proc/%d/environ' % os.getppid(), '/proc/self/environ'):
    attempt(lambda: print('own', len(open(file).read())))
print('traced', call(101, 16, pid, 0, 0)[0])
print('taken', call(438, call(434, pid, 0)[0], 0, 0)[0] >= 0)
";
    let seen = |wall| {
        let stage = fenced()?;
        let mut command = std::process::Command::new("/bin/sleep");
        let mut victim = command.arg("300").env("HIDDEN", &word).spawn().unwrap();
        let ended = python(&stage, wall, code, &[&victim.id().to_string()]);
        victim.kill().unwrap();
        victim.wait().unwrap();
        let text = ended.text();
        Some((text.contains(&word), text.contains("memory"), text.contains("traced 0"), text.contains("taken True")))
    };
    let Some(bare) = seen(Wall::Bare) else { return };
    assert!(bare.0, "the twin: {bare:?}");
    assert_eq!(seen(Wall::Tier), Some((false, false, false, false)));
}

#[test]
fn limits_priority_and_processors_of_another_process_stay() {
    let code = "
pid = int(sys.argv[1])
class Limit(ctypes.Structure): _fields_ = [('soft', ctypes.c_ulong), ('hard', ctypes.c_ulong)]
call(302, pid, 7, ctypes.byref(Limit(33, 33)), 0)
attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 7))
attempt(lambda: os.setpriority(os.PRIO_USER, os.getuid(), 7) if len(sys.argv) > 2 else None)
attempt(lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)))
";
    let look = |victim: &Victim| {
        let stat = victim.read("stat");
        let nice = stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().to_owned();
        (victim.read("limits").lines().find(|line| line.contains("open files")).unwrap().to_owned(), nice)
    };
    for (wall, changes) in [(Wall::Bare, true), (Wall::Tier, false)] {
        let Some(stage) = fenced() else { return };
        let victim = Victim::start();
        let before = look(&victim);
        // Without a wall the priority of all processes would change, the tests' own included.
        let all = if wall == Wall::Tier { &[victim.id(), "all".to_owned()][..] } else { &[victim.id()] };
        let arguments: Vec<&str> = all.iter().map(String::as_str).collect();
        let ended = python(&stage, wall, code, &arguments);
        let after = look(&victim);
        assert_eq!(before.0 != after.0, changes, "{wall:?}: limits, {ended:?}");
        assert_eq!(before.1 != after.1, changes, "{wall:?}: priority, {ended:?}");
    }
}

#[test]
fn shared_memory_of_the_host_is_closed() {
    let Some(stage) = fenced() else { return };
    let word = secret().unwrap();
    let make = "import ctypes, sys
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
made = libc.shmget(0, 4096, 0o600); at = libc.shmat(made, None, 0)
ctypes.memmove(at, sys.argv[1].encode(), len(sys.argv[1])); print(made)";
    let made = std::process::Command::new(PYTHON).args(["-c", make, &word]).output().unwrap();
    let id = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let code = "
libc.shmat.restype = ctypes.c_void_p
at = libc.shmat(int(sys.argv[1]), None, 0o10000)
print(ctypes.string_at(at, 64) if at not in (None, ctypes.c_void_p(-1).value) else 'closed')
print('queue', libc.mq_open(b'/ringfence', os.O_CREAT | os.O_RDWR, 0o600, None) if hasattr(libc, 'mq_open') else -1)
libc.mq_unlink(b'/ringfence')
";
    let bare = python(&stage, Wall::Bare, code, &[&id]);
    let ended = python(&stage, Wall::Tier, code, &[&id]);
    let remove = format!("import ctypes; ctypes.CDLL(None).shmctl({id}, 0, None)");
    std::process::Command::new(PYTHON).args(["-c", &remove]).status().unwrap();
    assert!(bare.text().contains(&word), "the twin: {bare:?}");
    assert!(ended.text().contains("closed") && !ended.text().contains(&word), "{ended:?}");
    assert!(ended.text().contains("queue -1"), "{ended:?}");
}

#[test]
fn what_happens_in_a_closed_folder_cannot_be_watched() {
    let code = "
watch = libc.inotify_init1(os.O_NONBLOCK)
print('watching', libc.inotify_add_watch(watch, sys.argv[1].encode(), 0xfff))
";
    for (wall, watches) in [(Wall::Bare, true), (Wall::Tier, false)] {
        let Some(stage) = fenced() else { return };
        let ended = python(&stage, wall, code, &[text(&outside(&stage))]);
        assert_eq!(ended.text().contains("watching 1"), watches, "{wall:?} {ended:?}");
    }
}

#[test]
fn n02_n04_n05_n08_dangerous_calls_and_privileges_are_refused() {
    let code = "
names = {'mount': 165, 'unshare': 272, 'setns': 308, 'io_uring_setup': 425, 'bpf': 321, 'userfaultfd': 323, 'keyctl': 250,
         'perf_event_open': 298, 'open_by_handle_at': 304, 'clone3': 435, 'chroot': 161, 'fanotify_init': 300}
for name, number in names.items():
    print(name, errno.errorcode.get(call(number, 0x10000000, 0, 0, 0, 0)[1], 'none'))
print('new', libc.prctl(39, 0, 0, 0, 0), 'filter', libc.prctl(21, 0, 0, 0, 0))
import resource
print('core', resource.getrlimit(resource.RLIMIT_CORE))
";
    let Some(stage) = fenced() else { return };
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("SKIPPED: the numbers are those of x86_64");
        return;
    }
    let ended = python(&stage, Wall::Tier, code, &[]);
    let text = ended.text();
    for line in text.lines().take(12) {
        assert!(line.ends_with("EPERM") || line.ends_with("ENOSYS"), "{line}\n{ended:?}");
    }
    assert!(text.contains("new 1 filter 2") && text.contains("core (1, 1)"), "{ended:?}");
    let bare = python(&stage, Wall::Bare, code, &[]);
    assert!(bare.text().contains("filter 0") && bare.text().contains("EFAULT"), "the twin: {bare:?}");
}

#[test]
fn f14_s01_only_listed_variables_and_no_descriptor_go_in() {
    let Some(stage) = fenced() else { return };
    let word = secret().unwrap();
    let script =
        "env; ls -l /proc/self/fd/ 2>/dev/null; for fd in 3 4 5 6 7 8 9; do readlink /proc/self/fd/$fd; done; true";
    let run = |stage: &Stage, backend: &str| {
        let argv = ["run", "-q", "--backend", backend, "--", "sh", "-c", script];
        stage.ringfence(argv).env("GITHUB_TOKEN", &word).run()
    };
    assert!(run(&stage, "none").text().contains(&word), "the twin");
    let ended = run(&stage, "landlock");
    assert!(!ended.text().contains(&word), "{ended:?}");
    assert!(
        !ended.text().lines().any(|line| line.starts_with("socket:") || line.starts_with("anon_inode")),
        "{ended:?}"
    );
    assert!(ended.text().contains("HOME=") && ended.text().contains("/scratch/"), "{ended:?}");
}
