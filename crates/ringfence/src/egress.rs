//! The way out of a wall under `net.mode: allowlist`: our proxy at the wall's only doors, and what it decided.

mod asked;
mod log;
mod news;
mod thread;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ringfence_egress::{Identity, Limits, Record, Sink, Upstream, Usage, Via, plain_and_short};
use ringfence_linux::launcher::Threads;
use ringfence_policy::UnknownHosts;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use self::asked::Asked;
pub(crate) use self::log::Log;
use self::thread::Thread;
use crate::backend::door::Doors;
use crate::event::Violation;
use crate::plan::Plan;
use crate::way_out::WayOut;

/// The most different contacts of one run that are told one by one: of those that were let through, and of those that were
/// denied. Together with what follows they fit into a line of the ledger.
const MOST_CONTACTS: usize = 96;
/// The most characters of what a program wrote.
const LONGEST_HOST: usize = 256;
const LONGEST_METHOD: usize = 16;
const LONGEST_PATH: usize = 128;
/// The most violations of one run that are told one by one: a program that tries a thousand names is told of enough.
const MOST_VIOLATIONS: usize = 32;

/// What a program wanted of the network, as often as it wanted it, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    /// The host, in canonical form.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The way that was taken: `http`, `connect`, `socks`, `direct`, `tunnel`, `tls`; `lookup` for a name alone, which has no port.
    pub via: String,
    /// The method, where there was a request to look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path, without the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether it was let through.
    pub allowed: bool,
    /// The rule that decided.
    pub rule: String,
    /// Why it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The proxy above ours that it went through: names are looked up there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// How often.
    pub count: u64,
    /// Bytes out of the sandbox.
    pub bytes_up: u64,
    /// Bytes into it.
    pub bytes_down: u64,
    /// The last status of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the last one took to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<u64>,
}

impl Contact {
    fn of(record: &Record) -> Self {
        Self {
            host: plain_and_short(&record.host, LONGEST_HOST),
            port: record.port,
            via: via(record.via).to_owned(),
            method: record.method.as_deref().map(|method| plain_and_short(method, LONGEST_METHOD)),
            path: record.path.as_deref().map(|path| plain_and_short(path, LONGEST_PATH)),
            allowed: record.denied.is_none(),
            rule: record.rule.to_string(),
            reason: record.denied.map(|reason| reason.code().to_owned()),
            through: None,
            count: 0,
            bytes_up: 0,
            bytes_down: 0,
            status: None,
            latency_ms: None,
        }
    }

    /// What was denied, in one line.
    fn violation(&self) -> Violation {
        let method = self.method.as_deref().map(|method| format!("{method} ")).unwrap_or_default();
        let path = self.path.as_deref().unwrap_or_default();
        let port = if self.via == via(Via::Lookup) { String::new() } else { format!(":{}", self.port) };
        // What is built in has no other name than its reason.
        let reason = self.reason.as_deref().filter(|reason| *reason != self.rule);
        let reason = reason.map(|reason| format!("{reason}; ")).unwrap_or_default();
        Violation {
            rule: "net.allowlist".to_owned(),
            message: format!("denied: {method}{}{port}{path} ({reason}{})", self.host, self.rule),
        }
    }
}

fn via(via: Via) -> &'static str {
    match via {
        Via::Forward => "http",
        Via::Connect => "connect",
        Via::Socks => "socks",
        Via::Transparent => "direct",
        Via::Lookup => "lookup",
        Via::Tunnelled => "tunnel",
        Via::Inspected => "tls",
    }
}

/// All that one run wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contacts {
    pub(crate) list: Vec<Contact>,
    /// How many are not in the list.
    pub(crate) omitted: u64,
    /// How many of those were denied.
    omitted_denied: u64,
}

impl Contacts {
    /// What was denied, each once.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let denied = self.list.iter().filter(|contact| !contact.allowed);
        let more =
            u64::try_from(denied.clone().skip(MOST_VIOLATIONS).count()).unwrap_or(u64::MAX) + self.omitted_denied;
        let mut violations: Vec<Violation> = denied.take(MOST_VIOLATIONS).map(Contact::violation).collect();
        if more > 0 {
            let message = format!("denied: {more} more");
            violations.push(Violation { rule: "net.allowlist".to_owned(), message });
        }
        violations
    }

    /// For the ledger; nothing when nothing was wanted.
    pub(crate) fn body(&self) -> Option<serde_json::Value> {
        let is_empty = self.list.is_empty() && self.omitted == 0;
        (!is_empty).then(|| serde_json::json!({ "contacts": self.list, "omitted": self.omitted }))
    }
}

/// Our proxy at the doors of one wall. Dropping it ends every connection.
#[derive(Debug)]
pub(crate) struct Egress {
    told: Arc<Told>,
    serving: Serving,
}

/// Who serves.
#[derive(Debug)]
enum Serving {
    /// A thread of its own: a program that keeps it busy holds up neither the watching of itself nor another sandbox.
    Apart(Thread),
    /// The caller's runtime, of a process that may have to raise another wall and has one thread for that.
    Here(AbortHandle),
}

/// How long connections may take to be put away at the end.
const ENDS: Duration = Duration::from_secs(1);
/// Descriptors that are kept for everything else.
const RESERVED_DESCRIPTORS: u64 = 128;
/// The most descriptors of one connection: both ends, and two pipes.
const DESCRIPTORS_OF_ONE: u64 = 6;

/// As many connections as this process has descriptors for.
fn limits() -> Limits {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = most.saturating_sub(RESERVED_DESCRIPTORS) / DESCRIPTORS_OF_ONE;
    let usual = Limits::default();
    let connections = usize::try_from(room).unwrap_or(usize::MAX).clamp(4, usual.connections);
    Limits { connections, ..usual }
}

/// The most connections that the way out of one wall has at once.
pub(crate) fn most_connections() -> usize {
    limits().connections
}

impl Egress {
    /// Lets through the doors what `way_out`, which is that of `plan`, allows. The wall of the doors stands already: from here on this
    /// process has several threads, if it may.
    pub(crate) fn open(doors: Doors, way_out: WayOut, plan: &Plan) -> io::Result<Self> {
        let (policy, sandbox, threads) = (&plan.policy().net, plan.run_id(), way_out.threads());
        let told = Arc::new(Told::default());
        let sink: Arc<dyn Sink> = Arc::clone(&told) as _;
        let identity = Identity::new(sandbox.as_str(), sandbox.as_str());
        let mut builder = way_out.proxy(identity).sink(sink).limits(limits());
        if policy.unknown.value == UnknownHosts::Ask {
            let asked =
                Asked { approver: Arc::clone(plan.approver()), policy: policy.clone(), runtime: Handle::current() };
            builder = builder.ask(Arc::new(asked));
        }
        if let Some(upstream) = &policy.upstream {
            let upstream = Upstream::new(&upstream.value);
            builder = builder.upstream(match plan.upstream_credential() {
                Some(credential) => upstream.authorized(credential).map_err(io::Error::other)?,
                None => upstream,
            });
        }
        let proxy = builder.build();
        let serve = || {
            let (listener, direct) = doors.listen()?;
            Ok(async move {
                drop(tokio::join!(proxy.serve(listener), proxy.serve_direct(direct)));
            })
        };
        let serving = match threads {
            Threads::Any => Serving::Apart(Thread::begin(serve)?),
            Threads::One => Serving::Here(tokio::spawn(serve()?).abort_handle()),
        };
        Ok(Self { told, serving })
    }

    /// What is decided from now on, for one run. Of several runs that go on at once behind one wall, nobody can tell which
    /// one asked: each is told.
    pub(crate) fn follow(&self) -> Arc<Log> {
        let log = Arc::new(Log::followed());
        let mut logs = self.told.logs();
        logs.retain(|log| log.strong_count() > 0);
        logs.push(Arc::downgrade(&log));
        log
    }

    /// Ends every connection, and every question about one.
    pub(crate) fn stop(&self) {
        match &self.serving {
            Serving::Apart(thread) => thread.stop(),
            Serving::Here(task) => task.abort(),
        }
    }

    /// Ends every connection, and returns when all that they carried is counted.
    pub(crate) async fn close(&self) {
        self.stop();
        let counted = async {
            match &self.serving {
                Serving::Apart(thread) => thread.end().await,
                // Whoever carries something holds the sink.
                Serving::Here(_) => {
                    while Arc::strong_count(&self.told) > 1 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
        };
        tokio::time::timeout(ENDS, counted).await.ok();
    }

    /// What was wanted while no run went on: by what a run of a session had left behind.
    pub(crate) fn between_runs(&self) -> Contacts {
        self.told.between.contacts()
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Passes decisions on to the runs that go on.
#[derive(Debug, Default)]
struct Told {
    logs: Mutex<Vec<Weak<Log>>>,
    /// What no run can be told.
    between: Log,
    /// How many there were.
    decisions: AtomicU64,
}

impl Told {
    fn logs(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Log>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn each(&self, act: impl Fn(&Log)) {
        let logs: Vec<Arc<Log>> = self.logs().iter().filter_map(Weak::upgrade).collect();
        if logs.is_empty() {
            act(&self.between);
        }
        logs.iter().for_each(|log| act(log));
    }
}

impl Sink for Told {
    fn decided(&self, record: &Record) -> u64 {
        let number = self.decisions.fetch_add(1, Ordering::Relaxed) + 1;
        self.each(|log| log.decided(number, record));
        number
    }

    fn ended(&self, number: u64, record: &Record, usage: &Usage) {
        self.each(|log| log.ended(number, record, usage));
    }
}
