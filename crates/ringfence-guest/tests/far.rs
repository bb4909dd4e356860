//! A far guest, driven over two pipes as an engine would attach them.
//!
//! It is process 1 of namespaces that `container.sh` makes, which only root can. `RINGFENCE_TEST_FAR_GUEST` may hold a shell
//! line that starts it in a container instead, from the file `$GUEST`; `RINGFENCE_TEST_FAR_KERNEL=own` says that this has a
//! kernel of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ringfence_guest::far::{Begin, FarOrder, FarReport, FarWorkspace, PIECE, Stream, WINDOW};
use ringfence_guest::protocol::{MOST_ORDER, ProgramNumber, Reader, encode};
use ringfence_guest::relay::{
    CONNECTION_WINDOW, ConnectionNumber, FarDoor, LONGEST_QUESTION, MOST_QUESTIONS, OfConnection, To, ToConnection,
};
use ringfence_guest::seal::{Direction, FrameKey, Seal};
use ringfence_guest::{InputFile, Order, Report, Start, Why};
use ringfence_linux::keeper::{Rlimit, RlimitKind};
use ringfence_linux::wall::{Access, Contained, Ground, Kernel, Program, TerminalSize, Writable};

const GUEST: &str = env!("CARGO_BIN_EXE_ringfence-far-guest");
const LIMIT: Duration = Duration::from_secs(20);
/// Where the doors of these tests are.
const DOOR: u16 = 3128;
/// Where names are asked for there, and where programs connect to that know of no proxy.
const NAMES: &str = "127.0.0.1:53";
const PLACES: [&str; 2] = ["0.0.0.0:80", "127.198.0.2:8080"];

fn kernel() -> Kernel {
    match std::env::var("RINGFENCE_TEST_FAR_KERNEL") {
        Ok(word) if word == "own" => Kernel::Own,
        _ => Kernel::Host,
    }
}

fn contained() -> Contained {
    let paths = [
        ("/", Access::ReadOnly),
        ("/tmp", Access::ReadWrite),
        ("/dev", Access::ReadWrite),
        ("/proc", Access::ReadWrite),
    ];
    let in_container = std::env::var_os("RINGFENCE_TEST_FAR_GUEST").is_some() && kernel() == Kernel::Host;
    Contained {
        uid: 1000,
        gid: 1000,
        kernel: kernel(),
        workspace: "/tmp".into(),
        writable: vec![
            Writable { at: "/tmp".into(), bytes: 16 << 20, on: Ground::Memory },
            Writable { at: "/dev/shm".into(), bytes: 8 << 20, on: Ground::Memory },
        ],
        rlimits: vec![
            Rlimit { kind: RlimitKind::Core, most: 1 },
            Rlimit { kind: RlimitKind::OpenFiles, most: 256 },
            Rlimit { kind: RlimitKind::FileSize, most: 64 << 20 },
        ],
        paths: paths.into_iter().map(|(path, access)| (path.into(), access)).collect(),
        // Plain namespaces show no cgroup; a container does.
        memory: in_container.then_some(256 << 20),
        processes: in_container.then_some(64),
        processors: None,
    }
}

/// The host's end.
struct Host {
    child: Child,
    orders: Option<ChildStdin>,
    reports: Receiver<FarReport>,
    key: FrameKey,
    /// Of orders, once the first was given.
    seal: Option<Seal>,
    /// The folder that the root was made in.
    _root: tempfile::TempDir,
}

impl Host {
    /// A guest that was told nothing yet; nothing where there can be none.
    fn bare() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let mut command = match std::env::var("RINGFENCE_TEST_FAR_GUEST") {
            Ok(line) => {
                let mut command = Command::new("sh");
                command.args(["-c", &line]).env("GUEST", GUEST);
                command
            }
            Err(_) if !rustix::process::geteuid().is_root() => {
                eprintln!("SKIPPED: only root can make what a container engine makes");
                return None;
            }
            Err(_) => {
                let mut command = Command::new("unshare");
                command.args(["--pid", "--fork", "--net", "--ipc", "--uts", "--mount", "--kill-child"]);
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/container.sh");
                command.args(["sh", script]).arg(root.path()).arg(GUEST);
                command
            }
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take();
        let mut output = child.stdout.take().unwrap();
        let (sender, reports) = channel();
        let key = FrameKey::generate().unwrap();
        let seal = Seal::new(key.clone(), Direction::Reports);
        std::thread::spawn(move || {
            let mut reader = Reader::<FarReport>::default();
            reader.seal(seal);
            let mut bytes = vec![0; 64 * 1024];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                reader.push(&bytes[..read]);
                // A guest that is not to be believed is not listened to.
                let Ok(mut next) = reader.next_message() else { return };
                while let Some(report) = next {
                    // Whether anything is counted depends on where the test runs.
                    let is_counted = matches!(report, FarReport::Counted { .. });
                    if !is_counted && sender.send(report).is_err() {
                        return;
                    }
                    let Ok(after) = reader.next_message() else { return };
                    next = after;
                }
            }
        });
        Some(Self { child, orders, reports, key, seal: None, _root: root })
    }

    /// A guest that has proven its wall.
    fn begun() -> Option<Self> {
        let mut host = Self::bare()?;
        host.begin(contained(), FarWorkspace::AsItIs);
        match host.next() {
            FarReport::Report(Report::Proven(_)) => Some(host),
            other => panic!("no proofs: {other:?}"),
        }
    }

    /// A guest that has opened a door for so many connections, and proven its wall.
    fn with_a_door(connections: u32) -> Option<Self> {
        let mut host = Self::bare()?;
        let places = PLACES.iter().map(|at| at.parse().unwrap()).collect();
        let door = Some(FarDoor { port: DOOR, names: NAMES.parse().unwrap(), places, connections });
        host.begin_as(Begin { contained: contained(), workspace: FarWorkspace::AsItIs, door });
        assert_eq!(host.next(), FarReport::Report(Report::Door));
        assert!(matches!(host.next(), FarReport::Report(Report::Proven(_))));
        Some(host)
    }

    fn begin(&mut self, contained: Contained, workspace: FarWorkspace) {
        self.begin_as(Begin { contained, workspace, door: None });
    }

    fn begin_as(&mut self, begin: Begin) {
        let order = FarOrder::Begin { begin: Box::new(begin), key: self.key.clone() };
        self.send(&order);
        self.seal = Some(Seal::new(self.key.clone(), Direction::Orders));
    }

    /// Says something of a connection.
    fn connection(&mut self, connection: ConnectionNumber, what: ToConnection) {
        self.send(&FarOrder::Connection { connection, what });
    }

    /// The next report about a connection.
    #[track_caller]
    fn next_of_connections(&self) -> (ConnectionNumber, OfConnection) {
        loop {
            if let FarReport::Connection { connection, what } = self.next() {
                return (connection, what);
            }
        }
    }

    fn send(&mut self, order: &FarOrder) {
        let frame = self.frame(order);
        self.orders.as_mut().unwrap().write_all(&frame).unwrap();
    }

    /// The next frame, which has to be sent next.
    fn frame(&mut self, order: &FarOrder) -> Vec<u8> {
        let mut frame = encode(order, MOST_ORDER).unwrap();
        if let Some(seal) = &mut self.seal {
            seal.close(&mut frame).unwrap();
        }
        frame
    }

    fn order(&mut self, order: Order) {
        self.send(&FarOrder::Order(order));
    }

    #[track_caller]
    fn next(&self) -> FarReport {
        self.reports.recv_timeout(LIMIT).expect("a report")
    }

    fn is_gone(&mut self) -> bool {
        let until = Instant::now() + LIMIT;
        loop {
            match self.reports.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return self.child.wait().is_ok(),
            }
        }
    }

    fn start(&mut self, number: ProgramNumber, line: &str, terminal: Option<TerminalSize>) {
        self.start_with(number, line, terminal, Vec::new());
        let started = FarReport::Report(Report::Started { program: number, terminal: terminal.is_some() });
        assert_eq!(self.next_but_ends(), started, "for {line}");
    }

    /// The next report that does not tell of the end of a stream: those of an earlier program may come late.
    #[track_caller]
    fn next_but_ends(&self) -> FarReport {
        loop {
            match self.next() {
                FarReport::OutputEnd { .. } => {}
                other => return other,
            }
        }
    }

    fn start_with(&mut self, number: ProgramNumber, line: &str, terminal: Option<TerminalSize>, files: Vec<InputFile>) {
        let program = Program {
            files: vec!["/no/such/sh".into(), "/bin/sh".into()],
            argv: ["sh", "-c", line].map(Into::into).to_vec(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/tmp".into(),
        };
        self.order(Order::Start(Box::new(Start {
            number,
            program,
            folder: format!("/tmp/code-{number}").into(),
            files,
            terminal,
        })));
    }

    /// Everything until the program's end: its status, and what it wrote to both streams. What comes is taken at once.
    fn until_end(&mut self, number: ProgramNumber) -> Ended {
        let mut ended = Ended { status: 0, output: Vec::new(), error: Vec::new(), most_untaken: 0 };
        let mut untaken = 0;
        loop {
            match self.next() {
                FarReport::Output { program, stream, bytes } if program == number => {
                    let length = u32::try_from(bytes.len()).unwrap();
                    untaken += bytes.len();
                    ended.most_untaken = ended.most_untaken.max(untaken);
                    if stream == Stream::Output { &mut ended.output } else { &mut ended.error }.extend(bytes);
                    if untaken >= WINDOW / 2 || stream == Stream::Error {
                        let taken = if stream == Stream::Error { length } else { u32::try_from(untaken).unwrap() };
                        untaken -= usize::try_from(taken).unwrap().min(untaken);
                        self.send(&FarOrder::Taken { program, stream, bytes: taken });
                    }
                }
                FarReport::Report(Report::Ended { program, wait_status, .. }) if program == number => {
                    ended.status = wait_status;
                    return ended;
                }
                FarReport::OutputEnd { .. } | FarReport::InputClosed { .. } | FarReport::InputTaken { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn run(&mut self, number: ProgramNumber, line: &str) -> Ended {
        self.start(number, line, None);
        self.send(&FarOrder::InputEnd { program: number });
        self.until_end(number)
    }

    /// Asks for the end, and returns the last words.
    fn end(mut self) -> Vec<FarReport> {
        self.order(Order::End);
        let mut all = Vec::new();
        while let Ok(report) = self.reports.recv_timeout(LIMIT) {
            all.push(report);
        }
        self.child.wait().unwrap();
        all
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.orders = None;
        self.child.wait().ok();
    }
}

struct Ended {
    status: i32,
    output: Vec<u8>,
    error: Vec<u8>,
    most_untaken: usize,
}

impl Ended {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

#[test]
fn a_far_guest_proves_its_wall_and_runs_programs() {
    let Some(mut host) = Host::bare() else { return };
    host.begin(contained(), FarWorkspace::AsItIs);
    let proofs = match host.next() {
        FarReport::Report(Report::Proven(proofs)) => proofs,
        other => panic!("no proofs: {other:?}"),
    };
    let names: Vec<&str> = proofs.iter().map(|proof| proof.name.as_str()).collect();
    eprintln!("{proofs:#?}");
    for name in [
        "priv.none",
        "priv.no-new",
        "kernel.filter",
        "proc.hidden",
        "net.none",
        "fs.confined",
        "fd.clean",
        "proc.no-core",
        "proc.file-size",
        "proc.open-files",
        "fs.size",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    let open_files = proofs.iter().find(|proof| proof.name == "proc.open-files").unwrap();
    assert_eq!(open_files.found, "256, soft and hard, also after an attempt to raise it");
    let ended = host.run(1, "echo out; echo err >&2; exit 7");
    assert_eq!((ended.text().as_str(), ended.error.as_slice()), ("out\n", b"err\n".as_slice()));
    assert_eq!(ended.status, 7 << 8);
    assert_eq!(host.run(2, "kill -9 $$").status, 9);
    assert_eq!(host.run(3, "exit 137").status, 137 << 8);
    host.send(&FarOrder::Find(vec!["/bin/sh".into(), "/no/such".into()]));
    let found = std::iter::from_fn(|| Some(host.next())).find(|report| matches!(report, FarReport::Found(_)));
    assert_eq!(found, Some(FarReport::Found(vec![true, false])));
    let last = host.end();
    assert!(matches!(last.last(), Some(FarReport::Report(Report::Gone { .. }))), "{last:?}");
}

#[test]
fn a_far_guest_puts_files_in_place_and_takes_them_away() {
    let Some(mut host) = Host::begun() else { return };
    let file = InputFile { path: "a/b.sh".into(), content: b"echo from a file; echo /tmp/*".to_vec() };
    host.start_with(1, "sh /tmp/code-1/a/b.sh", None, vec![file]);
    assert_eq!(host.next(), FarReport::Report(Report::Started { program: 1, terminal: false }));
    assert_eq!(host.until_end(1).text(), "from a file\n/tmp/code-1\n");
    assert_eq!(host.run(2, "echo /tmp/*").text(), "/tmp/*\n");
    let outside = InputFile { path: "../b.sh".into(), content: Vec::new() };
    host.start_with(3, "true", None, vec![outside]);
    let refused = std::iter::from_fn(|| Some(host.next()))
        .find(|report| matches!(report, FarReport::Report(Report::Failed { program: 3, why: Why::Said(_) })));
    assert!(refused.is_some());
}

#[test]
fn five_megabytes_come_whole_and_never_more_than_the_window_at_once() {
    let Some(mut host) = Host::begun() else { return };
    let ended = host.run(1, "head -c 5000000 /dev/zero | tr '\\0' x; echo end >&2");
    assert_eq!((ended.output.len(), ended.error.as_slice()), (5_000_000, b"end\n".as_slice()));
    assert!(ended.most_untaken <= WINDOW, "{}", ended.most_untaken);
    // Nobody takes anything: no more than the window comes, and the program waits.
    host.start(2, "head -c 5000000 /dev/zero", None);
    let mut came = 0;
    while let Ok(report) = host.reports.recv_timeout(Duration::from_secs(1)) {
        match report {
            FarReport::Output { program: 2, bytes, .. } => came += bytes.len(),
            FarReport::Report(report) => panic!("{report:?}"),
            _ => {}
        }
    }
    assert_eq!(came, WINDOW);
    host.order(Order::Kill { program: 2 });
    host.send(&FarOrder::Taken { program: 2, stream: Stream::Output, bytes: u32::try_from(WINDOW).unwrap() });
    assert_eq!(host.until_end(2).status, 9);
}

#[test]
fn a_program_reads_what_it_is_sent_and_too_much_at_once_ends_the_guest() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "cat; echo end", None);
    host.send(&FarOrder::Input { program: 1, bytes: b"hello ".to_vec() });
    host.send(&FarOrder::Input { program: 1, bytes: b"there\n".to_vec() });
    host.send(&FarOrder::InputEnd { program: 1 });
    let ended = host.until_end(1);
    assert_eq!(ended.text(), "hello there\nend\n");
    // One that reads nothing: the window fits, one byte more than it and the pipe hold does not.
    host.start(2, "sleep 100", None);
    for _ in 0..WINDOW / PIECE {
        host.send(&FarOrder::Input { program: 2, bytes: vec![0; PIECE] });
    }
    host.order(Order::Measure);
    let measured = std::iter::from_fn(|| Some(host.next()))
        .find(|report| matches!(report, FarReport::Report(Report::Measured { tasks: 1.., .. })));
    assert!(measured.is_some());
    for _ in 0..16 {
        let frame = host.frame(&FarOrder::Input { program: 2, bytes: vec![0; PIECE] });
        // It may be gone already.
        host.orders.as_mut().unwrap().write_all(&frame).ok();
    }
    assert!(host.is_gone());
}

#[test]
fn a_program_that_closes_its_input_is_told_of() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "exec <&-; sleep 100", None);
    assert_eq!(host.next(), FarReport::InputClosed { program: 1 });
}

#[test]
fn a_terminal_is_one_and_can_be_resized() {
    let Some(mut host) = Host::begun() else { return };
    host.start(
        1,
        "test -t 0 && test -t 1 && stty size; read line; stty size; echo got $line",
        Some(TerminalSize { rows: 24, columns: 80 }),
    );
    let mut seen = Vec::new();
    let mut wait_for = |host: &Host, wanted: &str| {
        while !String::from_utf8_lossy(&seen).contains(wanted) {
            if let FarReport::Output { bytes, .. } = host.next() {
                seen.extend(bytes);
            }
        }
        String::from_utf8_lossy(&seen).into_owned()
    };
    wait_for(&host, "24 80");
    host.send(&FarOrder::Resize { program: 1, size: TerminalSize { rows: 10, columns: 20 } });
    host.send(&FarOrder::Input { program: 1, bytes: b"typed\n".to_vec() });
    let all = wait_for(&host, "got typed\r\n");
    assert!(all.contains("10 20"), "{all:?}");
    assert_eq!(host.until_end(1).status, 0);
}

#[test]
fn programs_are_stopped_and_killed_one_by_one_and_all_at_once() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "sleep 100", None);
    host.order(Order::Kill { program: 1 });
    assert_eq!(host.until_end(1).status, 9);
    host.start(2, "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done", None);
    while !matches!(host.next(), FarReport::Output { .. }) {}
    host.order(Order::Stop { program: 2 });
    assert_eq!(host.until_end(2).status, 3 << 8);
    host.start(3, "setsid sleep 100 & setsid sleep 100 & echo ready; sleep 100", None);
    while !matches!(host.next(), FarReport::Output { program: 3, .. }) {}
    host.order(Order::KillAll);
    assert_eq!(host.until_end(3).status, 9);
    host.order(Order::Measure);
    let measured = std::iter::from_fn(|| Some(host.next()))
        .find(|report| matches!(report, FarReport::Report(Report::Measured { .. })));
    assert!(matches!(measured, Some(FarReport::Report(Report::Measured { tasks: 0, .. }))), "{measured:?}");
}

#[test]
fn what_was_written_comes_before_the_end_and_who_holds_the_pipe_holds_nobody_up() {
    let Some(mut host) = Host::begun() else { return };
    // The pipe is full when the program ends, and somebody it left holds it and writes on.
    host.start(1, "(while :; do echo noise; done) & head -c 60000 /dev/zero; echo last >&2", None);
    let begin = Instant::now();
    let ended = host.until_end(1);
    assert!(ended.output.len() >= 60_000 && ended.error == b"last\n", "{}", ended.output.len());
    assert!(begin.elapsed() < Duration::from_secs(10));
    for stream in [Stream::Output, Stream::Error] {
        host.send(&FarOrder::OutputClosed { program: 1, stream });
    }
    host.order(Order::Measure);
    while !matches!(host.next(), FarReport::Report(Report::Measured { .. })) {}
    // Nobody reads what is written now: its next write ends it.
    let until = Instant::now() + LIMIT;
    loop {
        host.order(Order::Measure);
        match host.next() {
            FarReport::Report(Report::Measured { tasks: 0, .. }) => break,
            FarReport::Report(Report::Measured { .. }) => assert!(Instant::now() < until),
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn s05_n11_a_program_cannot_speak_for_the_guest_look_into_it_or_end_it() {
    let Some(mut host) = Host::begun() else { return };
    // The twin: between processes of one program each of these works.
    let twin = "sleep 5 & cd /proc/$!; echo written > fd/1 && head -c 1 environ && true < mem && true < task/$!/mem && echo seen; kill -9 $! && echo killed";
    let ended = host.run(1, twin);
    assert_eq!(ended.text().replace('P', ""), "written\nseen\nkilled\n", "{}", String::from_utf8_lossy(&ended.error));
    let descriptors = "for fd in 0 1 2 3 4 5; do echo forged > /proc/1/fd/$fd && echo broken; head -c 1 < /proc/1/fd/$fd && echo broken; done; \
         for fd in /proc/1/fd/*; do test -e $fd && echo broken; done; ";
    let attempts = "test -n \"$(head -c 1 /proc/1/environ)\" && echo broken; for mem in /proc/1/mem /proc/1/task/1/mem; do true < $mem && echo broken; true > $mem && echo broken; done; ";
    // With a kernel of its own they may be found: then they are of no use, which another test shows.
    let descriptors = if kernel() == Kernel::Own { "" } else { descriptors };
    let ended = host.run(2, &format!("{descriptors}{attempts}echo done"));
    assert_eq!(ended.text(), "done\n", "{}", String::from_utf8_lossy(&ended.error));
    let kills = "for signal in KILL STOP TERM HUP INT CHLD SEGV ABRT; do kill -$signal 1; done; kill -9 -1; echo done";
    if kernel() == Kernel::Own {
        // Such a kernel may let it be ended, and everything with it: then nothing more is said.
        host.start(3, kills, None);
        while let Ok(said) = host.reports.recv_timeout(Duration::from_secs(3)) {
            assert!(!matches!(said, FarReport::Report(Report::Gone { .. })), "{said:?}");
        }
        return;
    }
    assert_eq!(host.run(4, kills).text(), "done\n");
    // It is still there, and what it says is still its own.
    assert_eq!(host.run(5, "exit 5").status, 5 << 8);
    let last = host.end();
    assert!(matches!(last.last(), Some(FarReport::Report(Report::Gone { .. }))), "{last:?}");
}

#[test]
fn a_program_that_finds_the_descriptors_of_its_guest_is_never_believed() {
    // As a guest and a host would say it, but for the seal.
    let report = encode(&FarReport::Report(Report::Measured { tasks: 77, resident_bytes: 7 }), MOST_ORDER).unwrap();
    let order = encode(&FarOrder::Order(Order::Measure), MOST_ORDER).unwrap();
    for (frame, descriptor) in [(report, 4), (order, 3)] {
        let Some(mut host) = Host::begun() else { return };
        let file = InputFile { path: "frame".into(), content: frame };
        // The twin: the same bytes reach a descriptor of a process that can be looked into.
        let line =
            format!("cat $0/frame > /proc/$$/fd/1; echo; cat $0/frame > /proc/1/fd/{descriptor}; sleep 1; exit 3");
        let line = line.replace("$0", "/tmp/code-1");
        host.start_with(1, &line, None, vec![file]);
        assert_eq!(host.next(), FarReport::Report(Report::Started { program: 1, terminal: false }));
        let (mut seen, mut status) = (Vec::new(), None);
        while let Ok(said) = host.reports.recv_timeout(Duration::from_secs(3)) {
            match said {
                FarReport::Output { bytes, stream: Stream::Output, .. } => seen.extend(bytes),
                FarReport::Report(Report::Ended { wait_status, .. }) => status = Some(wait_status),
                FarReport::Report(report) => panic!("{report:?}"),
                _ => {}
            }
        }
        assert!(seen.starts_with(b"RFG"), "{seen:?}");
        match status {
            // It could not be written there, and the guest is as it was.
            Some(status) => assert_eq!((status, host.run(2, "exit 5").status), (3 << 8, 5 << 8)),
            // It could, and both have given each other up.
            None => assert_eq!(kernel(), Kernel::Own),
        }
    }
}

#[test]
fn orders_that_are_forged_said_again_missing_or_in_another_order_end_the_guest() {
    let measure = FarOrder::Order(Order::Measure);
    let attempt = |name: &str, change: &dyn Fn(&mut Host) -> Vec<u8>, believed: bool| {
        let Some(mut host) = Host::begun() else { return };
        host.start(1, "sleep 100", None);
        let bytes = change(&mut host);
        // It may be gone before it has read all.
        host.orders.as_mut().unwrap().write_all(&bytes).ok();
        let answers = std::iter::from_fn(|| host.reports.recv_timeout(Duration::from_secs(2)).ok());
        let answers = answers.filter(|said| matches!(said, FarReport::Report(Report::Measured { .. }))).count();
        assert_eq!(answers == 3, believed, "{name}: {answers} answers");
        if !believed {
            assert!(host.is_gone(), "{name}");
        }
    };
    let frames = |host: &mut Host| [host.frame(&measure), host.frame(&measure), host.frame(&measure)];
    attempt("in their order", &|host| frames(host).concat(), true);
    attempt("no seal", &|_| encode(&measure, MOST_ORDER).unwrap().repeat(3), false);
    attempt(
        "forged",
        &|host| {
            let mut forged = encode(&measure, MOST_ORDER).unwrap();
            Seal::new(FrameKey::known([1; 32]), Direction::Orders).close(&mut forged).unwrap();
            let [_, second, third] = frames(host);
            [forged, second, third].concat()
        },
        false,
    );
    attempt(
        "said again",
        &|host| {
            let [first, second, _] = frames(host);
            [first, second.clone(), second].concat()
        },
        false,
    );
    attempt(
        "missing",
        &|host| {
            let [first, _, third] = frames(host);
            [first, third.clone(), third].concat()
        },
        false,
    );
    attempt(
        "in another order",
        &|host| {
            let [first, second, third] = frames(host);
            [first, third, second].concat()
        },
        false,
    );
}

#[test]
fn f14_nothing_of_ours_is_open_in_a_program() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "sleep 100", None);
    let ended = host.run(2, "for fd in /proc/self/fd/*; do test -e $fd && echo ${fd##*/}; done");
    assert_eq!(ended.text().lines().filter(|fd| fd.parse::<u32>().is_ok_and(|fd| fd <= 2)).count(), 3);
    assert!(ended.text().lines().all(|fd| fd.parse::<u32>().is_ok_and(|fd| fd <= 3)), "{}", ended.text());
}

#[test]
fn a_host_that_goes_away_takes_everything_with_it() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "trap '' HUP TERM; setsid sleep 100 & sleep 100", None);
    host.orders = None;
    assert!(host.is_gone());
}

#[test]
fn a_guest_that_is_told_to_meet_speaks_over_that_socket_alone_and_ends_with_it() {
    // Outside of what the guest's root hides.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = folder.path().join("meet");
    let listener = UnixListener::bind(&at).unwrap();
    for path in [folder.path(), &at] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let Some(mut host) = Host::bare() else { return };
    if std::env::var_os("RINGFENCE_TEST_FAR_GUEST").is_some() {
        return eprintln!("SKIPPED: a container does not see the socket");
    }
    host.send(&FarOrder::Meet { at: at.into() });
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let begin = Begin { contained: contained(), workspace: FarWorkspace::AsItIs, door: None };
    let order = FarOrder::Begin { begin: Box::new(begin), key: host.key.clone() };
    socket.write_all(&encode(&order, MOST_ORDER).unwrap()).unwrap();
    let mut reader = Reader::<FarReport>::default();
    reader.seal(Seal::new(host.key.clone(), Direction::Reports));
    let proven = loop {
        let mut bytes = [0; 4096];
        let read = socket.read(&mut bytes).unwrap();
        assert!(read > 0, "it ended");
        reader.push(&bytes[..read]);
        if let Some(report) = reader.next_message().unwrap() {
            break report;
        }
    };
    assert!(matches!(proven, FarReport::Report(Report::Proven(_))), "{proven:?}");
    assert!(host.reports.try_recv().is_err(), "it says nothing elsewhere");
    // The twin: it lives while the socket is open, whatever becomes of its input.
    host.orders = None;
    std::thread::sleep(Duration::from_millis(100));
    assert!(host.child.try_wait().unwrap().is_none());
    drop(socket);
    assert!(host.child.wait().is_ok());
}

#[test]
fn a_guest_meets_once_and_before_it_begins() {
    let nowhere = || FarOrder::Meet { at: "/no/such/socket".into() };
    let Some(mut host) = Host::bare() else { return };
    host.send(&nowhere());
    assert!(host.is_gone(), "there is nobody to meet");
    let Some(mut host) = Host::begun() else { return };
    host.send(&nowhere());
    assert!(host.is_gone(), "it has begun");
}

#[test]
fn orders_that_make_no_sense_end_the_guest() {
    let begin = Begin { contained: contained(), workspace: FarWorkspace::AsItIs, door: None };
    let again = FarOrder::Begin { begin: Box::new(begin), key: FrameKey::known([1; 32]) };
    for order in [again, FarOrder::Made, FarOrder::Order(Order::Release)] {
        let Some(mut host) = Host::begun() else { return };
        host.send(&order);
        assert!(host.is_gone());
    }
    let Some(mut host) = Host::begun() else { return };
    host.orders.as_mut().unwrap().write_all(b"what is this, please").unwrap();
    assert!(host.is_gone());
    // And before anything else was said.
    let Some(mut host) = Host::bare() else { return };
    host.order(Order::Measure);
    assert!(host.is_gone());
}

#[test]
fn a_wall_that_is_not_as_it_must_be_is_refused() {
    let refused = |change: &dyn Fn(&mut Contained), word: &str| {
        let Some(mut host) = Host::bare() else { return };
        let mut contained = contained();
        change(&mut contained);
        host.begin(contained, FarWorkspace::AsItIs);
        match host.next() {
            FarReport::Report(Report::Failed { program: 0, why: Why::Said(words) }) => {
                assert!(words.contains(word), "{words}");
            }
            other => panic!("{other:?} instead of {word}"),
        }
        assert!(host.is_gone());
    };
    refused(&|contained| contained.uid = 1001, "1001");
    refused(&|contained| contained.gid = 0, "1000:0");
    refused(&|contained| contained.writable[0].bytes = 1 << 20, "fs.size");
    refused(&|contained| contained.writable.truncate(1), "fs.confined");
    refused(&|contained| contained.memory = Some(1), "proc.memory");
    refused(&|contained| contained.processes = Some(1), "proc.processes");
    refused(
        &|contained| contained.writable.push(Writable { at: "/usr".into(), bytes: u64::MAX, on: Ground::Memory }),
        "fs.size",
    );
}

#[test]
fn a_wall_that_stood_before_it_was_needed_is_proven_once_more_or_ends() {
    let Some(mut host) = Host::begun() else { return };
    // At once, and many times: none must count what another one was proven by.
    for _ in 0..50 {
        host.send(&FarOrder::Prove);
        match host.next() {
            FarReport::Report(Report::Proven(proofs)) => {
                assert!(proofs.iter().any(|proof| proof.name == "fs.confined"), "{proofs:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(host.run(1, "exit 3").status, 3 << 8, "the twin: programs run behind it");
    if std::env::var_os("RINGFENCE_TEST_FAR_GUEST").is_some() {
        // Who can mount there is another matter with an engine.
        return;
    }
    let Some(mut host) = Host::begun() else { return };
    // Whoever has power over the machine opens the wall while it waits.
    let first = fs::read_to_string(format!("/proc/{0}/task/{0}/children", host.child.id())).unwrap();
    let process = first.split_whitespace().next().unwrap();
    let opened = Command::new("nsenter")
        .args([&format!("--mount=/proc/{process}/ns/mnt"), &format!("--root=/proc/{process}/root")])
        .args(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/mnt"])
        .status();
    assert!(opened.unwrap().success());
    host.send(&FarOrder::Prove);
    match host.next() {
        FarReport::Report(Report::Failed { program: 0, why: Why::Said(words) }) => {
            assert!(words.contains("/mnt"), "{words}");
        }
        other => panic!("what was opened is proven: {other:?}"),
    }
    assert!(host.is_gone());
}

#[test]
fn a_workspace_that_is_not_said_to_be_written_is_tried() {
    let check = |at: &str, word: Option<&str>| {
        let Some(mut host) = Host::bare() else { return };
        let contained = Contained { workspace: at.into(), ..contained() };
        host.begin(contained, FarWorkspace::AsItIs);
        match (host.next(), word) {
            (FarReport::Report(Report::Proven(_)), None) => {}
            (FarReport::Report(Report::Failed { why: Why::Said(words), .. }), Some(word)) => {
                assert!(words.contains(word), "{words}");
            }
            other => panic!("{at}: {other:?}"),
        }
    };
    check("/usr", None);
    check("/tmp/.", Some("can be written"));
    check("/no/such", Some("fs.confined"));
}

#[test]
fn a_wall_with_a_program_behind_it_is_not_proven_once_more() {
    let Some(mut host) = Host::begun() else { return };
    host.start(1, "sleep 60", None);
    host.send(&FarOrder::Prove);
    assert!(host.is_gone());
}

#[test]
fn a_workspace_that_is_not_filled_keeps_programs_from_starting() {
    let Some(mut host) = Host::bare() else { return };
    host.begin(contained(), FarWorkspace::Kept);
    assert!(matches!(host.next(), FarReport::Report(Report::Proven(_))));
    host.start_with(1, "true", None, Vec::new());
    assert!(matches!(host.next(), FarReport::Report(Report::Failed { program: 1, .. })));
}

#[test]
fn an_idle_guest_is_small() {
    let Some(mut host) = Host::begun() else { return };
    assert_eq!(host.run(1, "true").status, 0);
    if std::env::var_os("RINGFENCE_TEST_FAR_GUEST").is_some() {
        return;
    }
    let child = i32::try_from(host.child.id()).unwrap();
    let guest = ringfence_linux::tree::children_of(child);
    let status = std::fs::read_to_string(format!("/proc/{}/status", guest[0])).unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let kilobytes: u64 = anonymous.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kilobytes < 3072, "{kilobytes} kB");
}

#[test]
fn started_by_a_person_it_says_what_it_is() {
    let output = Command::new(GUEST).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("inside a container"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_door_carries_bytes_both_ways_and_its_ends() {
    let Some(mut host) = Host::with_a_door(4) else { return };
    // Its last process holds the connection only to read it, and so the shell has written all when it is told what comes.
    host.start(1, "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; cat <&3; echo over'", None);
    assert_eq!(host.next_of_connections(), (1, OfConnection::Opened(To::Proxy)));
    assert_eq!(host.next_of_connections(), (1, OfConnection::Bytes(b"hello\n".to_vec())));
    host.connection(1, ToConnection::Taken(6));
    let big = vec![b'b'; PIECE];
    let pieces = 2 * CONNECTION_WINDOW / PIECE;
    let (mut taken, mut sent, mut output) = (0, 0, 0);
    let mut ends = Vec::new();
    while ends.len() < 3 {
        while sent < pieces && sent * PIECE - taken + PIECE <= CONNECTION_WINDOW {
            host.connection(1, ToConnection::Bytes(big.clone()));
            sent += 1;
            if sent == pieces {
                host.connection(1, ToConnection::End);
            }
        }
        match host.next() {
            FarReport::Connection { connection: 1, what: OfConnection::Taken(bytes) } => taken += bytes as usize,
            FarReport::Connection { connection: 1, what: what @ (OfConnection::End | OfConnection::Closed) } => {
                ends.push(Some(what))
            }
            FarReport::Output { program: 1, stream, bytes } => {
                output += bytes.len();
                host.send(&FarOrder::Taken { program: 1, stream, bytes: bytes.len().try_into().unwrap() });
            }
            FarReport::Report(Report::Ended { wait_status: 0, .. }) => ends.push(None),
            FarReport::OutputEnd { .. } | FarReport::InputClosed { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(output, pieces * PIECE + "over\n".len(), "all arrived, and then the end");
    let closed: Vec<_> = ends.into_iter().flatten().collect();
    assert_eq!(closed, [OfConnection::End, OfConnection::Closed]);
    // What was on its way to one that is closed harms nobody.
    host.connection(1, ToConnection::Close);
    assert_eq!(host.run(2, "true").status, 0);
}

#[test]
fn at_its_bound_a_door_takes_nobody_and_later_everybody() {
    let Some(mut host) = Host::with_a_door(2) else { return };
    let line = "exec bash -c 'for n in 1 2 3; do exec {fd}<>/dev/tcp/127.0.0.1/3128; echo $n >&$fd; done; sleep 100'";
    host.start(1, line, None);
    let mut opened = Vec::new();
    while opened.len() < 2 {
        if let (number, OfConnection::Bytes(bytes)) = host.next_of_connections() {
            opened.push((number, bytes));
        }
    }
    opened.sort();
    assert_eq!(opened, [(1, b"1\n".to_vec()), (2, b"2\n".to_vec())]);
    assert!(host.reports.recv_timeout(Duration::from_millis(300)).is_err(), "a third is taken");
    host.connection(1, ToConnection::Close);
    assert_eq!(host.next_of_connections(), (1, OfConnection::Closed));
    assert_eq!(host.next_of_connections(), (3, OfConnection::Opened(To::Proxy)));
    assert_eq!(host.next_of_connections(), (3, OfConnection::Bytes(b"3\n".to_vec())));
    // With its program, what it held is closed.
    host.order(Order::Kill { program: 1 });
    let (mut left, mut closed) = (Vec::new(), 0);
    while closed < 2 {
        let (number, what) = host.next_of_connections();
        if what == OfConnection::End {
            host.connection(number, ToConnection::Close);
            left.push(number);
        } else {
            assert_eq!(what, OfConnection::Closed);
            closed += 1;
        }
    }
}

#[test]
fn orders_about_connections_that_make_no_sense_end_the_guest() {
    let opened = |host: &mut Host| {
        host.start(1, "exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; sleep 100'", None);
        assert_eq!(host.next_of_connections(), (1, OfConnection::Opened(To::Proxy)));
    };
    let bytes = || ToConnection::Bytes(vec![0; PIECE]);
    let orders: [(&str, Vec<(ConnectionNumber, ToConnection)>); 5] = [
        ("nobody", vec![(0, ToConnection::Close)]),
        ("not opened yet", vec![(2, ToConnection::Close)]),
        ("nothing to be taken", vec![(1, ToConnection::Taken(1))]),
        ("after its end", vec![(1, ToConnection::End), (1, bytes())]),
        ("two ends", vec![(1, ToConnection::End), (1, ToConnection::End)]),
    ];
    for (name, orders) in orders {
        let Some(mut host) = Host::with_a_door(4) else { return };
        opened(&mut host);
        for (connection, what) in orders {
            host.connection(connection, what);
        }
        assert!(host.is_gone(), "{name}");
    }
    // A host that never waits is cut off at the window, however much the kernel inside takes before.
    let Some(mut host) = Host::with_a_door(4) else { return };
    opened(&mut host);
    for _ in 0..100_000 {
        let frame = host.frame(&FarOrder::Connection { connection: 1, what: bytes() });
        if host.orders.as_mut().unwrap().write_all(&frame).is_err() {
            break;
        }
    }
    assert!(host.is_gone());
    // Without a door there is nothing that such an order could be about.
    let Some(mut host) = Host::begun() else { return };
    host.connection(1, ToConnection::Close);
    assert!(host.is_gone());
}

#[test]
fn a_connection_is_told_with_what_it_was_made_to() {
    let Some(mut host) = Host::with_a_door(8) else { return };
    for (number, (to, expected)) in [
        ("127.198.3.4/80", To::Place("127.198.3.4:80".parse().unwrap())),
        ("127.0.0.1/80", To::Place("127.0.0.1:80".parse().unwrap())),
        ("127.198.0.2/8080", To::Place("127.198.0.2:8080".parse().unwrap())),
        ("127.0.0.1/53", To::Names),
        ("127.0.0.1/3128", To::Proxy),
    ]
    .into_iter()
    .enumerate()
    {
        let number = ProgramNumber::try_from(number).unwrap() + 1;
        host.start(number, &format!("exec bash -c 'exec 3<>/dev/tcp/{to}; sleep 100'"), None);
        assert_eq!(host.next_of_connections(), (number.into(), OfConnection::Opened(expected)), "{to}");
    }
    // Where nobody listens there is nobody, and what was taken is not to be had.
    let script = "bash -c 'exec 3<>/dev/tcp/127.198.0.3/8080' 2>/dev/null || echo none";
    assert_eq!(host.run(9, script).output, b"none\n");
}

impl Host {
    /// The next question for a name.
    #[track_caller]
    fn next_question(&self) -> (u64, Vec<u8>) {
        loop {
            if let FarReport::Question { question, message } = self.next() {
                return (question, message);
            }
        }
    }

    fn answer(&mut self, question: u64, message: &[u8]) {
        self.send(&FarOrder::Answer { question, message: message.to_vec() });
    }
}

#[test]
fn a_question_for_a_name_is_passed_on_and_its_answer_comes_to_who_asked() {
    let Some(mut host) = Host::with_a_door(4) else { return };
    let ask = |word: &str| format!("exec bash -c 'exec 3<>/dev/udp/127.0.0.1/53; printf {word} >&3; head -c 3 <&3'");
    host.start(1, &ask("one"), None);
    assert_eq!(host.next_question(), (1, b"one".to_vec()));
    host.start(2, &ask("two"), None);
    assert_eq!(host.next_question(), (2, b"two".to_vec()));
    host.answer(2, b"TWO");
    host.answer(1, b"ONE");
    let mut output = BTreeMap::new();
    while output.len() < 2 {
        if let FarReport::Output { program, bytes, .. } = host.next() {
            output.insert(program, bytes);
        }
    }
    assert_eq!(output, BTreeMap::from([(1, b"ONE".to_vec()), (2, b"TWO".to_vec())]));
}

#[test]
fn only_so_many_questions_are_on_their_way_and_one_that_is_too_long_is_none() {
    let Some(mut host) = Host::with_a_door(4) else { return };
    let script = format!(
        "exec bash -c 'exec 3<>/dev/udp/127.0.0.1/53; dd if=/dev/zero bs={} count=1 status=none >&3; for n in {{1..40}}; do printf $n >&3; done; sleep 100'",
        LONGEST_QUESTION + 1
    );
    host.start(1, &script, None);
    let most = u64::try_from(MOST_QUESTIONS).unwrap();
    for number in 1..=most {
        assert_eq!(host.next_question(), (number, number.to_string().into_bytes()));
    }
    assert!(host.reports.recv_timeout(Duration::from_millis(300)).is_err(), "one more is taken");
    // One that gets no answer makes room as well.
    host.answer(7, b"");
    assert_eq!(host.next_question(), (most + 1, (most + 1).to_string().into_bytes()));
}

#[test]
fn answers_that_nobody_asked_for_end_the_guest() {
    for answers in [vec![1], vec![0], vec![u64::MAX]] {
        let Some(mut host) = Host::with_a_door(4) else { return };
        answers.into_iter().for_each(|number| host.answer(number, b"x"));
        assert!(host.is_gone());
    }
    let Some(mut host) = Host::with_a_door(4) else { return };
    host.start(1, "exec bash -c 'exec 3<>/dev/udp/127.0.0.1/53; printf x >&3; sleep 100'", None);
    assert_eq!(host.next_question().0, 1);
    host.answer(1, b"once");
    host.answer(1, b"twice");
    assert!(host.is_gone());
    let Some(mut host) = Host::begun() else { return };
    host.answer(1, b"x");
    assert!(host.is_gone(), "without a door");
}
