//! A request that policy allows and one backend can enforce in full. Holding one is the proof.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ringfence_policy::{BackendKind, Firmness, ResolvedPolicy};
use tokio::sync::{Notify, mpsc};

use crate::approve::Approver;
use crate::backend::Capabilities;
use crate::backend::environment::Person;
use crate::event::Event;
use crate::guarantee::{self, Evidence, Guarantee, Strength};
use crate::judge::Cleared;
use crate::refusal::Refusal;
use crate::request::{InputFile, Request, Stdin, TerminalSize, Work, WorkspaceAt};
use crate::run_id::RunId;
use crate::sandbox_images::{Listener, Progress};

/// The limits that the supervisor keeps, the same behind every wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// When the program is told to end.
    pub timeout: Duration,
    /// How long after that it is killed.
    pub grace: Duration,
    /// Kept of each output stream.
    pub output: u64,
    /// Kept by looking at the tree, where the wall does not keep it.
    pub watched_memory: Option<u64>,
    /// Likewise, processes and threads.
    pub watched_processes: Option<u64>,
}

/// What will be run, where, behind which wall, under which limits. Private fields: only [`plan`] makes one.
#[derive(Debug)]
pub struct Plan {
    run_id: RunId,
    work: Work,
    workspace: PathBuf,
    workspace_at: WorkspaceAt,
    cwd: PathBuf,
    env: Vec<(OsString, OsString)>,
    env_withheld: Vec<String>,
    stdin: Stdin,
    files: Vec<InputFile>,
    terminal: Option<TerminalSize>,
    policy: ResolvedPolicy,
    backend: BackendKind,
    limits: Limits,
    receipt: Vec<Evidence>,
    not_enforced: Vec<Guarantee>,
    approver: Arc<dyn Approver>,
    upstream_credential: Option<Hidden>,
    /// Who is told what is done before it can start.
    told: Option<mpsc::Sender<Event>>,
    /// That it stands in the ledger, on the disk.
    written_down: Arc<Notify>,
    /// Whether its program is started for it, whatever was started before.
    anew: bool,
    /// What its code is run by, once that is chosen.
    run_by: OnceLock<String>,
}

/// A secret, which no debug output shows.
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// The host's side of a plan: what a request cannot say.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// The workspace, absolute.
    pub workspace: &'a Path,
    /// The host's environment, of which the policy passes a part.
    pub environment: &'a [(OsString, OsString)],
    /// Whether it runs in a session, where what it leaves behind stays.
    pub in_session: bool,
    /// Who is asked while it runs.
    pub approver: &'a Arc<dyn Approver>,
}

/// The host's variable with `NAME:PASSWORD` for the proxy of `net.upstream`. Programs never get it.
pub const UPSTREAM_CREDENTIAL: &str = "RINGFENCE_UPSTREAM_CREDENTIAL";

/// Turns a judged request into a plan for the backend that `capabilities` describe, or says why it cannot.
pub fn plan(
    run_id: RunId,
    request: Request,
    _cleared: &Cleared,
    policy: ResolvedPolicy,
    capabilities: &Capabilities,
    host: Host<'_>,
) -> Result<Plan, Refusal> {
    let not_enforced = missing(&policy, capabilities);
    let mut receipt = Vec::new();
    for guarantee in guarantee::required(&policy).into_iter().filter(|guarantee| !not_enforced.contains(guarantee)) {
        if let Some(strength) = capabilities.strength(guarantee) {
            receipt.push(Evidence { guarantee, strength, evidence: capabilities.evidence(guarantee, &policy) });
        }
    }
    let kind = capabilities.kind();
    // Whoever runs in a session wants what is left behind to stay there. It is said, and no reason to refuse.
    let accepted = |guarantee: &Guarantee| host.in_session && *guarantee == Guarantee::NoSurvivors;
    let lacking: Vec<Guarantee> = not_enforced.iter().copied().filter(|guarantee| !accepted(guarantee)).collect();
    let only_watched = |guarantee: &Guarantee| capabilities.strength(*guarantee) == Some(Strength::Watched);
    if kind.isolates() && !lacking.is_empty() && lacking.iter().all(only_watched) {
        return Err(refuse_watched(kind, &lacking, &policy));
    }
    // The weak ones are chosen by name only, and that choice is the acceptance. Of a wall that isolates, all is expected.
    if kind.isolates() && !lacking.is_empty() {
        let missing: Vec<&str> = lacking.iter().map(|guarantee| guarantee.name()).collect();
        return Err(Refusal::new(
            "plan.enforceable",
            format!("`{kind}` cannot enforce this policy here"),
            format!("not available: {}", missing.join(", ")),
        )
        .hint("`ringfence doctor` says what is missing and how to get it")
        .do_not_retry("The host cannot enforce its policy. Only a person can change that."));
    }
    if !kind.isolates()
        && let WorkspaceAt::Path(path) = &request.workspace_at
    {
        return Err(Refusal::new(
            "plan.workspace-at",
            format!("the workspace cannot appear at {}", path.display()),
            format!("`{kind}` shows the host's own files, so the workspace is where it is"),
        )
        .hint("leave it out, or choose a backend with its own view of files")
        .instead("Do not ask for another path of the workspace."));
    }
    let watches = |guarantee| capabilities.strength(guarantee) == Some(Strength::Watched);
    let limits = Limits {
        timeout: policy.proc.timeout.value.get(),
        grace: policy.proc.grace.value.get(),
        output: policy.proc.output.value.get(),
        watched_memory: watches(Guarantee::Memory).then(|| policy.proc.memory.value.get()),
        watched_processes: watches(Guarantee::Processes).then(|| u64::from(policy.proc.processes.value)),
    };
    let (env, env_withheld) = if capabilities.strength(Guarantee::CleanEnvironment).is_some() {
        let person = if kind.isolates() { Person::Agent } else { Person::Host };
        crate::backend::environment::clean(&policy, host.environment, person)
    } else {
        (crate::backend::environment::whole(&policy, host.environment), Vec::new())
    };
    let named = host.environment.iter().find(|(name, _)| name == UPSTREAM_CREDENTIAL);
    let upstream_credential = named.filter(|_| policy.net.upstream.is_some()).map(|(_, value)| value);
    Ok(Plan {
        approver: Arc::clone(host.approver),
        told: None,
        written_down: Arc::default(),
        anew: false,
        run_by: OnceLock::new(),
        upstream_credential: upstream_credential.map(|value| Hidden(value.to_string_lossy().into_owned())),
        run_id,
        work: request.work,
        workspace: host.workspace.to_owned(),
        workspace_at: request.workspace_at,
        cwd: request.cwd,
        env,
        env_withheld,
        stdin: request.stdin,
        files: request.files,
        terminal: request.terminal,
        policy,
        backend: kind,
        limits,
        receipt,
        not_enforced,
    })
}

/// What `policy` requires and a backend does not keep, or not as firmly as the policy wants it.
pub(crate) fn missing(policy: &ResolvedPolicy, capabilities: &Capabilities) -> Vec<Guarantee> {
    let kept = |guarantee: &Guarantee| {
        capabilities.strength(*guarantee).is_some_and(|strength| suffices(*guarantee, strength, policy))
    };
    guarantee::required(policy).into_iter().filter(|guarantee| !kept(guarantee)).collect()
}

/// Whether a guarantee that is kept this firmly is what `policy` asks for.
fn suffices(guarantee: Guarantee, strength: Strength, policy: &ResolvedPolicy) -> bool {
    match strength {
        Strength::Enforced => true,
        Strength::Watched => guarantee.may_be_watched() && policy.proc.limits.value == Firmness::Watched,
    }
}

fn refuse_watched(kind: BackendKind, watched: &[Guarantee], policy: &ResolvedPolicy) -> Refusal {
    let names: Vec<&str> = watched.iter().map(|guarantee| guarantee.name()).collect();
    let refusal = Refusal::new(
        "proc.limits",
        format!("`{kind}` can only watch limits here, and the policy wants them enforced"),
        format!("only watched: {}", names.join(", ")),
    );
    refusal
        .at(&policy.proc.limits.origin)
        .hint(
            "give it a cgroup: start it with `systemd-run --user --scope -p Delegate=yes -- ringfence …`, or as root; or \
             let limits be watched, with `proc: { limits: watched }` in the policy",
        )
        .do_not_retry("The host cannot enforce the policy's limits. Only a person can change that.")
}

impl Plan {
    /// Tells `events` what is done before it can start.
    pub(crate) fn tell(&mut self, events: mpsc::Sender<Event>) {
        self.told = Some(events);
    }

    /// Says that it stands in the ledger, on the disk: its program may run.
    pub(crate) fn is_written_down(&self) {
        self.written_down.notify_one();
    }

    /// Waits until it does. For one alone, and once.
    pub(crate) async fn written_down(&self) {
        self.written_down.notified().await;
    }

    /// Has its program started for it: what was started before and waited for something like it is not to be trusted once more.
    pub(crate) fn begin_anew(&mut self) {
        self.anew = true;
    }

    /// Whether nothing that was started before will do.
    pub(crate) fn begins_anew(&self) -> bool {
        self.anew
    }

    /// The same behind the wall that `capabilities` describe, or why it cannot be. It was cleared before it was planned, and stays so.
    pub(crate) fn behind(
        self,
        cleared: &Cleared,
        capabilities: &Capabilities,
        environment: &[(OsString, OsString)],
    ) -> Result<Self, Refusal> {
        let mut request = Request::new(self.work);
        request.workspace_at = self.workspace_at;
        request.cwd = self.cwd;
        request.stdin = self.stdin;
        request.files = self.files;
        request.terminal = self.terminal;
        let host = Host { workspace: &self.workspace, environment, in_session: false, approver: &self.approver };
        plan(self.run_id, request, cleared, self.policy, capabilities, host)
    }

    /// Says what its code is run by. For the same plan that is always the same.
    pub(crate) fn is_run_by(&self, interpreter: &str) {
        self.run_by.get_or_init(|| interpreter.to_owned());
    }

    /// What its code is run by, once that is chosen: when its wall is raised.
    pub(crate) fn run_by(&self) -> Option<&str> {
        self.run_by.get().map(String::as_str)
    }

    /// Who hears how far something is that has to be made first: every step of it, and none of the words of tools.
    pub(crate) fn listener(&self) -> Listener {
        // Whoever makes something may outlive a run that was cancelled, whose events end with it.
        let told = self.told.as_ref().map(mpsc::Sender::downgrade);
        Arc::new(move |progress| {
            let events = told.as_ref().and_then(mpsc::WeakSender::upgrade);
            if let (Some(events), Progress::Step(what)) = (events, progress) {
                // Whoever is too slow to hear of a step hears of the next.
                events.try_send(Event::Preparing { what }).ok();
            }
        })
    }

    /// Who is asked while it runs.
    pub(crate) fn approver(&self) -> &Arc<dyn Approver> {
        &self.approver
    }

    /// `NAME:PASSWORD` for the proxy of `net.upstream`, where the host has it.
    pub(crate) fn upstream_credential(&self) -> Option<&str> {
        self.upstream_credential.as_ref().map(|Hidden(secret)| secret.as_str())
    }

    /// The run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// What is run.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The workspace on the host, absolute.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Where the workspace appears inside, when that is not left to the backend.
    pub fn workspace_at(&self) -> &WorkspaceAt {
        &self.workspace_at
    }

    /// Where the program starts, relative to the workspace.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// The program's whole environment.
    pub fn env(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    /// Names of the host's variables that stay outside.
    pub fn env_withheld(&self) -> &[String] {
        &self.env_withheld
    }

    /// What the program reads.
    pub fn stdin(&self) -> &Stdin {
        &self.stdin
    }

    /// Files beside the code.
    pub fn files(&self) -> &[InputFile] {
        &self.files
    }

    /// The size of its terminal, when it has one.
    pub fn terminal(&self) -> Option<TerminalSize> {
        self.terminal
    }

    /// The policy of this run.
    pub fn policy(&self) -> &ResolvedPolicy {
        &self.policy
    }

    /// The wall.
    pub fn backend(&self) -> BackendKind {
        self.backend
    }

    /// The supervisor's limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What the wall will enforce, and how.
    pub fn receipt(&self) -> &[Evidence] {
        &self.receipt
    }

    /// What the policy asks for and the wall cannot keep.
    pub fn not_enforced(&self) -> &[Guarantee] {
        &self.not_enforced
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{Layer, LayerInput, parse, resolve};

    use super::*;
    use crate::analysis::{Surroundings, analyse};
    use crate::approve::{Nobody, Standing};
    use crate::judge::Judge;

    /// A plan behind a wall that keeps everything, `weakened` only by watching.
    fn check(kind: BackendKind, weakened: &[Guarantee], policy: &str) -> Result<Plan, Refusal> {
        let file = parse("sandbox.policy.yaml", &format!("version: 1\n{policy}")).unwrap();
        let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
        let strength = |guarantee| if weakened.contains(&guarantee) { Strength::Watched } else { Strength::Enforced };
        let kept = Guarantee::ALL.map(|guarantee| (guarantee, strength(guarantee), "a test")).to_vec();
        let work = Work::Argv(vec!["true".into()]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (surroundings, standing) = (Surroundings::default(), Standing::default());
        let judge = Judge { policy: &policy, surroundings: &surroundings, approver: &Nobody, standing: &standing };
        let cleared = runtime.block_on(judge.judge(&work, &analyse(&work, &surroundings))).unwrap();
        let approver: Arc<dyn Approver> = Arc::new(crate::approve::Nobody);
        let host = Host { workspace: Path::new("/w"), environment: &[], in_session: false, approver: &approver };
        let id = RunId::generate().unwrap();
        plan(id, Request::new(work), &cleared, policy, &Capabilities::new(kind, kept), host)
    }

    const LIMITS: [Guarantee; 3] = [Guarantee::Memory, Guarantee::Cpus, Guarantee::Processes];

    #[test]
    fn limits_that_are_only_watched_are_refused_where_the_policy_wants_them_enforced() {
        let refusal = check(BackendKind::Native, &LIMITS, "extends: [preset:strict]").unwrap_err();
        assert_eq!(refusal.rule, "proc.limits");
        assert_eq!(refusal.reason, "only watched: proc.memory, proc.cpus, proc.processes");
        assert!(refusal.hint.unwrap().contains("Delegate=yes"));
        assert!(check(BackendKind::Native, &[Guarantee::Cpus], "proc: { limits: enforced }").is_err(), "each counts");
    }

    #[test]
    fn limits_that_are_watched_will_do_by_default_and_say_so() {
        let plan = check(BackendKind::Native, &LIMITS, "").unwrap();
        let watched = plan.receipt().iter().filter(|evidence| evidence.strength == Strength::Watched);
        assert_eq!(watched.map(|evidence| evidence.guarantee).collect::<Vec<_>>(), LIMITS);
        assert!(plan.limits().watched_memory.is_some());
        assert!(check(BackendKind::Native, &LIMITS, "extends: [preset:strict]\nproc: { limits: watched }").is_ok());
        assert!(check(BackendKind::Native, &[], "extends: [preset:strict]").is_ok(), "the twin: enforced limits");
    }

    #[test]
    fn what_keeps_a_program_in_is_never_only_watched() {
        for guarantee in Guarantee::ALL.into_iter().filter(|guarantee| !LIMITS.contains(guarantee)) {
            let required = guarantee::required(check(BackendKind::Native, &[], "").unwrap().policy());
            let refused = check(BackendKind::Native, &[guarantee], "").is_err();
            assert_eq!(refused, required.contains(&guarantee), "{guarantee}");
        }
    }

    #[test]
    fn a_weak_backend_that_only_watches_lists_the_limits_it_cannot_enforce_and_watches_all_the_same() {
        let plan = check(BackendKind::Spawn, &LIMITS, "extends: [preset:strict]").unwrap();
        assert_eq!(plan.not_enforced(), LIMITS);
        assert!(plan.limits().watched_memory.is_some() && plan.limits().watched_processes.is_some());
        assert_eq!(check(BackendKind::Spawn, &LIMITS, "").unwrap().not_enforced(), []);
    }

    #[test]
    fn whoever_waits_for_an_image_hears_its_steps_and_nothing_of_what_tools_write() {
        let mut plan = check(BackendKind::Docker, &[], "").unwrap();
        let (events, mut heard) = mpsc::channel(4);
        plan.tell(events);
        let listener = plan.listener();
        for progress in [
            Progress::Step("one".to_owned()),
            Progress::Detail("\u{1b}[2J".to_owned()),
            Progress::Step("two".to_owned()),
        ] {
            listener(progress);
        }
        drop(plan);
        listener(Progress::Step("nobody waits for it any more".to_owned()));
        let mut steps = Vec::new();
        while let Ok(Event::Preparing { what }) = heard.try_recv() {
            steps.push(what);
        }
        assert_eq!(steps, ["one", "two"]);
        assert!(heard.is_closed() && heard.is_empty(), "who still makes an image keeps nobody waiting");
    }
}
