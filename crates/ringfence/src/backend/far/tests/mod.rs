//! A far guest that lives in the test, honest or not.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_guest::far::{
    Begin, FarOrder, FarReport, FarWorkspace, MOST_FAR_REPORT, Node, PIECE, Stream, WINDOW, What,
};
use ringfence_guest::protocol::{HEADER, MOST_ORDER, ProgramNumber, body_length, decode, encode};
use ringfence_guest::seal::{Direction, Seal, TAG};
use ringfence_guest::{Order, Report, Start, Why};
use ringfence_linux::wall::{Contained, Kernel, Program, Proof};
use ringfence_linux::{Layer, Room, Usage};
use ringfence_policy::{BackendKind, Layer as PolicyLayer, LayerInput, parse, resolve};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};

use super::{Bringing, FarLink};
use crate::analysis::{Surroundings, analyse};
use crate::approve::{Nobody, Standing};
use crate::backend::guest::{Kept, Link};
use crate::backend::process::{alone, in_session};
use crate::backend::{Capabilities, Sandbox, StartError};
use crate::guarantee::{Guarantee, Strength};
use crate::judge::Judge;
use crate::plan::{Host, Plan};
use crate::request::{Request, TerminalSize};
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::layer::{Life, Lower, PrivateLayer};

mod hostile;
mod lone;
mod programs;
mod relay;

/// What a test waits for at most.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// A plan for `request`, with every guarantee.
pub(super) async fn plan(request: Request, policy: &str) -> Plan {
    let file = parse("sandbox.policy.yaml", &format!("version: 1\nvalidate: off\n{policy}")).unwrap();
    let policy = resolve(&[LayerInput { layer: PolicyLayer::Project, file }], &[]).unwrap();
    let kept = Guarantee::ALL.map(|guarantee| (guarantee, Strength::Enforced, "a test")).to_vec();
    let (surroundings, standing) = (Surroundings::default(), Standing::default());
    let judge = Judge { policy: &policy, surroundings: &surroundings, approver: &Nobody, standing: &standing };
    let cleared = judge.judge(&request.work, &analyse(&request.work, &surroundings)).await.unwrap();
    let approver: Arc<dyn crate::approve::Approver> = Arc::new(crate::approve::Nobody);
    let host = Host { workspace: Path::new("/w"), environment: &[], in_session: true, approver: &approver };
    let id = RunId::generate().unwrap();
    crate::plan::plan(id, request, &cleared, policy, &Capabilities::new(BackendKind::Native, kept), host).unwrap()
}

pub(super) fn begin() -> Begin {
    let contained = Contained {
        uid: 1000,
        gid: 1000,
        kernel: Kernel::Host,
        workspace: "/workspace".into(),
        writable: Vec::new(),
        rlimits: Vec::new(),
        paths: Vec::new(),
        memory: None,
        processes: None,
        processors: None,
    };
    Begin { contained, workspace: FarWorkspace::Kept, door: None }
}

/// The order for the program that `plan` names, as a guest of these tests understands it.
pub(super) fn start(plan: &Plan) -> impl FnOnce(ProgramNumber) -> Result<Start, StartError> {
    let (argv, terminal) = match plan.work() {
        crate::request::Work::Argv(argv) => (argv.clone(), plan.terminal()),
        other => panic!("{other:?}"),
    };
    move |number| {
        let program = Program { files: Vec::new(), argv, env: Vec::new(), cwd: "/".into() };
        Ok(Start { number, program, folder: "/code".into(), files: Vec::new(), terminal })
    }
}

/// The host's side of a guest, and how often it was killed from outside.
pub(super) struct Held {
    pub(super) link: Arc<FarLink>,
    pub(super) kills: Arc<AtomicUsize>,
}

impl Held {
    pub(super) fn kills(&self) -> usize {
        self.kills.load(Ordering::SeqCst)
    }

    /// Waits until it was killed, and everything that waited for it was told.
    pub(super) async fn is_given_up(&self) {
        let wait = async {
            while self.kills() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, wait).await.expect("the guest is not killed");
    }

    pub(super) async fn proven(self) -> (Self, Kept) {
        self.link.proven(begin()).await.unwrap();
        let kept = Kept::new(Link::Far(Arc::clone(&self.link)));
        (self, kept)
    }
}

/// A link, and the guest's end of it.
pub(super) fn connect(bringing: Option<Box<dyn Bringing>>) -> (Held, Fake) {
    let (ours, theirs) = duplex(64 * 1024);
    let (reader, writer) = split(ours);
    let kills = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&kills);
    let kill = move || async move {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    let link = Arc::new(FarLink::new(reader, writer, kill, bringing));
    let (reader, writer) = split(theirs);
    (Held { link, kills }, Fake { reader, writer, seals: None, running: BTreeMap::new(), made: Arc::default() })
}

/// A link to an honest guest that has proven its wall, and is kept.
pub(super) async fn honest() -> (Held, Kept) {
    let (held, fake) = connect(None);
    tokio::spawn(fake.live());
    held.proven().await
}

/// A program of the test in a session.
pub(super) async fn run(guest: &Kept, request: Request) -> Sandbox {
    let plan = plan(request, "").await;
    let mut sandbox = in_session(&plan, guest, start(&plan)).unwrap();
    sandbox.release().await.unwrap();
    sandbox
}

/// The guest's end of a link.
pub(super) struct Fake {
    pub(super) reader: ReadHalf<DuplexStream>,
    pub(super) writer: WriteHalf<DuplexStream>,
    /// Of what it says and of what it is told, once it was told to begin.
    seals: Option<(Seal, Seal)>,
    running: BTreeMap<ProgramNumber, Running>,
    /// What the workspace was filled with.
    pub(super) made: Arc<Mutex<Vec<Node>>>,
}

#[derive(Default)]
struct Running {
    name: String,
    terminal: bool,
    /// What it wrote and what may be sent of it.
    written: Vec<u8>,
    on_its_way: usize,
    ends: bool,
}

pub(super) const USAGE: Usage =
    Usage { user_us: 1, system_us: 2, max_resident_bytes: 3, read_bytes: 4, written_bytes: 5 };

pub(super) fn ended(program: ProgramNumber, wait_status: i32) -> FarReport {
    FarReport::Report(Report::Ended { program, wait_status, usage: USAGE, left: 0 })
}

pub(super) fn gone(layer: Layer) -> FarReport {
    FarReport::Report(Report::Gone { usage: USAGE, layer, room: Room::Left })
}

pub(super) fn file(path: &str, bytes: &[u8]) -> Node {
    let what = What::File { mode: 0o644, modified: (1, 2), bytes: bytes.to_vec() };
    Node { path: path.into(), what }
}

/// What guests of these tests prove.
fn proof() -> Proof {
    Proof { name: "net.none".to_owned(), found: "nothing".to_owned() }
}

impl Fake {
    /// The next order that is more than a sign of life.
    pub(super) async fn order(&mut self) -> Option<FarOrder> {
        loop {
            let mut header = [0u8; HEADER];
            self.reader.read_exact(&mut header).await.ok()?;
            let mut body = vec![0; body_length(header, MOST_ORDER + TAG).unwrap()];
            self.reader.read_exact(&mut body).await.ok()?;
            let opened = match &mut self.seals {
                Some((_, orders)) => orders.open(&body).unwrap(),
                None => &body,
            };
            match decode(opened).unwrap() {
                FarOrder::StillHere => {}
                FarOrder::Begin { begin, key } => {
                    self.seals =
                        Some((Seal::new(key.clone(), Direction::Reports), Seal::new(key.clone(), Direction::Orders)));
                    return Some(FarOrder::Begin { begin, key });
                }
                order => return Some(order),
            }
        }
    }

    /// Says it. A host that does not listen any more is the test's business.
    pub(super) async fn tell(&mut self, report: FarReport) {
        let frame = self.sealed(encode(&report, MOST_FAR_REPORT).unwrap());
        self.writer.write_all(&frame).await.ok();
    }

    /// `frame` with the next seal, if it has a key.
    pub(super) fn sealed(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        if let Some((reports, _)) = &mut self.seals {
            reports.close(&mut frame).unwrap();
        }
        frame
    }

    /// Is asked to begin, and says that its wall stands.
    pub(super) async fn prove(&mut self) {
        assert!(matches!(self.order().await, Some(FarOrder::Begin { .. })), "the first order");
        self.tell(FarReport::Report(Report::Proven(vec![proof()]))).await;
    }

    /// Lives as an honest guest does, until it is told to end.
    pub(super) async fn live(mut self) {
        self.prove().await;
        while let Some(order) = self.order().await {
            if self.obey(order).await.is_none() {
                return;
            }
        }
    }

    pub(super) async fn obey(&mut self, order: FarOrder) -> Option<()> {
        match order {
            FarOrder::Order(Order::Start(start)) => self.start(&start).await,
            FarOrder::Order(Order::Kill { program }) => self.end(program, 9).await,
            FarOrder::Order(Order::Signal { program, signal }) => self.end(program, i32::from(signal)).await,
            FarOrder::Order(Order::Measure) => {
                self.tell(FarReport::Report(Report::Measured { tasks: 7, resident_bytes: 77 })).await;
            }
            FarOrder::Order(Order::End) => {
                for program in self.running.keys().copied().collect::<Vec<_>>() {
                    self.end(program, 9).await;
                }
                self.tell(gone(Layer::Unchanged)).await;
                return None;
            }
            FarOrder::Input { program, bytes } => {
                let taken = u32::try_from(bytes.len()).unwrap();
                self.tell(FarReport::InputTaken { program, bytes: taken }).await;
                self.write(program, &bytes).await;
            }
            FarOrder::InputEnd { program } => {
                if self.running.get(&program).is_some_and(|running| running.name == "cat") {
                    self.running.get_mut(&program).unwrap().ends = true;
                    self.send(program).await;
                }
            }
            FarOrder::Taken { program, stream: Stream::Output, bytes } => {
                if let Some(running) = self.running.get_mut(&program) {
                    let taken = usize::try_from(bytes).unwrap();
                    // A test may have said more in its name.
                    running.on_its_way = running.on_its_way.saturating_sub(taken);
                }
                self.send(program).await;
            }
            FarOrder::Resize { program, size } => {
                self.write(program, format!("{}x{}\n", size.columns, size.rows).as_bytes()).await;
            }
            FarOrder::Find(files) => {
                self.tell(FarReport::Found(files.iter().map(|file| file == "/bin/sh").collect())).await;
            }
            FarOrder::Prove => self.tell(FarReport::Report(Report::Proven(vec![proof()]))).await,
            FarOrder::Make(nodes) => self.made.lock().unwrap().extend(nodes),
            FarOrder::Made => self.tell(FarReport::Filled(Ok(()))).await,
            FarOrder::Collect => {
                self.tell(FarReport::Differs(vec![file("now", b"changed")])).await;
                self.tell(FarReport::Collected(Ok(()))).await;
            }
            FarOrder::OutputClosed { program, .. } => {
                self.running.get_mut(&program).into_iter().for_each(|running| running.written.clear());
            }
            FarOrder::Taken { .. } => {}
            other => panic!("an order that no host gives: {other:?}"),
        }
        Some(())
    }

    async fn start(&mut self, start: &Start) {
        let number = start.number;
        let name = start.program.argv[0].to_str().unwrap().to_owned();
        if name == "missing" {
            let why = Why::Said("there is no such program".to_owned());
            return self.tell(FarReport::Report(Report::Failed { program: number, why })).await;
        }
        let terminal = start.terminal.is_some();
        self.running.insert(number, Running { name: name.clone(), terminal, ..Running::default() });
        self.tell(FarReport::Report(Report::Started { program: number, terminal })).await;
        if name == "big" {
            self.running.get_mut(&number).unwrap().ends = true;
            self.write(number, &big()).await;
        }
    }

    async fn write(&mut self, program: ProgramNumber, bytes: &[u8]) {
        if let Some(running) = self.running.get_mut(&program) {
            running.written.extend_from_slice(bytes);
        }
        self.send(program).await;
    }

    /// Sends what may be sent, and ends a program that has nothing more to say.
    async fn send(&mut self, program: ProgramNumber) {
        loop {
            let Some(running) = self.running.get_mut(&program) else { return };
            let size = running.written.len().min(PIECE).min(WINDOW - running.on_its_way);
            if size == 0 {
                if running.ends && running.written.is_empty() {
                    self.end(program, 0).await;
                }
                return;
            }
            let bytes: Vec<u8> = running.written.drain(..size).collect();
            running.on_its_way += size;
            self.tell(FarReport::Output { program, stream: Stream::Output, bytes }).await;
        }
    }

    async fn end(&mut self, program: ProgramNumber, wait_status: i32) {
        let Some(running) = self.running.remove(&program) else { return };
        // In the order in which it is hardest to get right.
        self.tell(ended(program, wait_status)).await;
        self.tell(FarReport::OutputEnd { program, stream: Stream::Output }).await;
        if !running.terminal {
            self.tell(FarReport::OutputEnd { program, stream: Stream::Error }).await;
        }
    }
}

/// Five megabytes that differ everywhere.
pub(super) fn big() -> Vec<u8> {
    (0u32..1_310_720).flat_map(u32::to_le_bytes).collect()
}

/// Makes a layer that holds what it was brought.
#[derive(Debug)]
pub(super) struct Paper {
    folder: tempfile::TempDir,
    pub(super) brought: Arc<Mutex<Vec<String>>>,
    /// After so many nodes there is no room.
    pub(super) room: usize,
}

impl Paper {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), brought: Arc::default(), room: usize::MAX }
    }
}

impl Bringing for Paper {
    fn bring(&mut self, nodes: Vec<Node>) -> io::Result<()> {
        let mut brought = self.brought.lock().unwrap();
        brought.extend(nodes.iter().map(|node| node.path.to_string_lossy().into_owned()));
        if brought.len() > self.room { Err(io::Error::other("there is no room")) } else { Ok(()) }
    }

    fn finish(self: Box<Self>) -> io::Result<PrivateLayer> {
        let state = StateFolder::prepare(self.folder.path().join("state")).unwrap();
        let scratch = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        let folder = |path: &Path| OwnedFd::from(std::fs::File::open(path).unwrap());
        let (from, to) = (self.folder.path().join("from"), self.folder.path().join("to"));
        std::fs::create_dir(&from)?;
        std::fs::create_dir(&to)?;
        let (lower, upper) = (folder(&from), folder(&to));
        let manifest = {
            use std::os::fd::AsFd;
            crate::workspace::copy::copy(
                lower.as_fd(),
                upper.as_fd(),
                1 << 20,
                crate::workspace::copy::Owners::Ours,
                |_, _| false,
            )
            .unwrap()
        };
        let lower = Lower::new(lower, from, Vec::new(), Vec::new())?;
        Ok(PrivateLayer::copy(upper, lower, manifest, scratch, Life::Over))
    }
}

/// The writing end of a pipe whose reading end is a program's input.
pub(super) fn input() -> (OwnedFd, std::fs::File) {
    let (read, write) = io::pipe().unwrap();
    (read.into(), std::fs::File::from(OwnedFd::from(write)))
}

pub(super) fn write_all(file: &mut std::fs::File, bytes: &[u8]) {
    file.write_all(bytes).unwrap();
}

/// A terminal of this size.
pub(super) const SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// A program that is alone, and what was dropped when nothing was left.
pub(super) async fn lone(guest: &Kept, request: Request) -> (Sandbox, Plan, Arc<()>) {
    let plan = plan(request, "").await;
    let place = Arc::new(());
    let sandbox = alone(&plan, guest, start(&plan), Box::new(Arc::clone(&place))).unwrap();
    (sandbox, plan, place)
}
