//! One call of a tool, from its arguments to its result: what it may use, how it is watched, and how it is asked about.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence::request::Metadata;
use ringfence::{Approval, Engine};
use rmcp::model::{
    CallToolResponse, CallToolResult, ClientResult, ElicitRequest, ErrorData, InputRequest, ProgressNotificationParam,
    ProgressToken, ServerRequest,
};
use rmcp::service::PeerRequestOptions;
use rmcp::task_manager::{TaskContext, TaskExit, TaskOptions};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ask::{self, Asked, ByClient, Waiting};
use crate::client::Client;
use crate::limits::{ANSWER_WITHIN, ENDS_WITHIN, MOST_WAITING, TASK_AFTER, TASK_KEPT};
use crate::server::Shared;
use crate::shown::Shown;

const CANNOT_ASK: &str = "this client cannot ask anybody: it does not say that it knows elicitation";

/// What a tool may use.
pub(crate) struct Call {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) progress: Progress,
    pub(crate) questions: mpsc::Sender<Asked>,
    pub(crate) metadata: Metadata,
}

impl Call {
    /// The engine, which asks the client of this call.
    pub(crate) fn engine(&self) -> Engine {
        self.shared.setup.engine.asking(Arc::new(ByClient(self.questions.clone())))
    }

    /// Asks the person behind the client.
    pub(crate) async fn ask(&self, question: Shown) -> Approval {
        ask::put_shown(&self.questions, question).await
    }
}

/// Who hears of progress, and by which token.
type Listener = (Peer<RoleServer>, ProgressToken);

/// Tells a client that its call goes on, when it gave a token for that.
#[derive(Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<Option<Listener>>>);

impl Progress {
    /// From now on those go to whoever gave this token; to nobody when there is none.
    fn listen(&self, peer: &Peer<RoleServer>, token: Option<ProgressToken>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = token.map(|token| (peer.clone(), token));
    }

    fn stop(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) async fn tell(&self, since: Duration, message: String) {
        let to = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((peer, token)) = to {
            let told = ProgressNotificationParam::new(token, since.as_secs_f64()).with_message(message);
            // A client that does not listen any more misses nothing that it needs.
            peer.notify_progress(told).await.ok();
        }
    }
}

/// A call that goes on. Dropping it ends it, and kills what it runs.
pub(crate) struct Going {
    work: JoinHandle<CallToolResult>,
    questions: mpsc::Receiver<Asked>,
    cancel: CancellationToken,
    progress: Progress,
}

impl Drop for Going {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.work.abort();
    }
}

impl Going {
    pub(crate) fn new(
        work: JoinHandle<CallToolResult>,
        questions: mpsc::Receiver<Asked>,
        cancel: CancellationToken,
        progress: Progress,
    ) -> Self {
        Self { work, questions, cancel, progress }
    }

    /// Kills what it runs, and waits until that is over.
    async fn end(&mut self) {
        self.cancel.cancel();
        tokio::time::timeout(ENDS_WITHIN, &mut self.work).await.ok();
    }
}

/// How the person behind a client is reached.
pub(crate) enum Way {
    /// By a request of ours.
    Elicit,
    /// By a result that needs input, and a second call.
    Rounds,
    /// Not at all.
    Nobody,
}

/// Who calls, in one request.
pub(crate) struct Caller {
    pub(crate) shared: Arc<Shared>,
    pub(crate) client: Arc<Client>,
    pub(crate) peer: Peer<RoleServer>,
    pub(crate) token: Option<ProgressToken>,
    pub(crate) way: Way,
    /// Cancelled when the client wants no answer any more.
    pub(crate) gone: CancellationToken,
    /// By whom an answer was given, for the ledger.
    pub(crate) by: String,
    /// Names the call.
    pub(crate) bound: [u8; 32],
    /// Whether the client knows tasks, and this call may become one.
    pub(crate) may_be_task: bool,
}

impl Caller {
    /// Waits for the result, and brings questions to the client meanwhile.
    pub(crate) async fn drive(mut self, mut going: Going) -> Result<CallToolResponse, ErrorData> {
        going.progress.listen(&self.peer, self.token.clone());
        let task_at = tokio::time::sleep(TASK_AFTER);
        tokio::pin!(task_at);
        loop {
            let asked = tokio::select! {
                biased;
                done = &mut going.work => return done.map(CallToolResponse::Complete).map_err(|_| ended()),
                () = self.gone.cancelled() => {
                    going.end().await;
                    return Err(ended());
                }
                () = self.shared.closing.cancelled() => {
                    going.end().await;
                    return Err(ended());
                }
                asked = going.questions.recv() => asked,
                () = &mut task_at, if self.may_be_task => {
                    if self.client.begin_task() {
                        going.progress.stop();
                        return Ok(self.become_task(going));
                    }
                    self.may_be_task = false;
                    continue;
                }
            };
            // All that could ask is gone, so the result is on its way.
            let Some(asked) = asked else {
                return (&mut going.work).await.map(CallToolResponse::Complete).map_err(|_| ended());
            };
            match self.way {
                Way::Nobody => {
                    asked.answer.send(ask::absent(CANNOT_ASK)).ok();
                }
                Way::Elicit => {
                    let approval = tokio::select! {
                        approval = self.elicit(&asked.question) => approval,
                        () = self.gone.cancelled() => ask::absent("the call was cancelled"),
                        () = self.shared.closing.cancelled() => ask::absent("the client is gone"),
                    };
                    asked.answer.send(approval).ok();
                }
                Way::Rounds => {
                    going.progress.stop();
                    return self.wait_for_input(going, asked);
                }
            }
        }
    }

    async fn elicit(&self, question: &Shown) -> Approval {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(ask::form(question)));
        let options = PeerRequestOptions::with_timeout(ANSWER_WITHIN);
        let denied = |reason: &str| Approval::Denied { reason: reason.to_owned() };
        let answer = match self.peer.send_request_with_option(request, options).await {
            Ok(handle) => handle.await_response().await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(ClientResult::ElicitResult(answer)) => ask::read_answer(&answer, &self.by),
            Ok(_) => denied("the answer makes no sense"),
            Err(_) => denied("the client brought no answer"),
        }
    }

    /// Puts the call aside until the client comes back with an answer.
    fn wait_for_input(&self, going: Going, asked: Asked) -> Result<CallToolResponse, ErrorData> {
        let handle = crate::server::random::<16>()?;
        let ticket = self.shared.signer.seal(&handle, &self.bound);
        let mut waiting = self.client.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, waiting| !ask::is_past(waiting.until));
        if waiting.len() >= MOST_WAITING {
            let reason = "too many questions of this client wait for an answer already".to_owned();
            asked.answer.send(Approval::Denied { reason }).ok();
            return Err(ErrorData::invalid_request("too many questions wait for an answer; answer those first", None));
        }
        let result = ask::input_required(&asked.question, ticket);
        waiting.insert(hex(&handle), Waiting { going, answer: asked.answer, until: ask::until() });
        Ok(CallToolResponse::InputRequired(result))
    }

    /// The call that a ticket stands for, which is then nobody's any more.
    pub(crate) fn resume(&self, ticket: &str) -> Option<Waiting> {
        let handle = self.shared.signer.open(ticket, &self.bound)?;
        let waiting = self.client.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&hex(&handle))?;
        (!ask::is_past(waiting.until)).then_some(waiting)
    }

    /// Lets the call go on without anybody waiting; the client asks for its result.
    fn become_task(self, going: Going) -> CallToolResponse {
        let kept = u64::try_from(TASK_KEPT.as_millis()).unwrap_or(u64::MAX);
        let options = TaskOptions::new().with_ttl_ms(kept).with_status_message("running");
        let tasks = self.client.tasks.clone();
        let task = tasks.spawn(options, |context| Box::pin(self.follow_task(context, going)));
        CallToolResponse::Task(rmcp::model::CreateTaskResult::new(task))
    }

    async fn follow_task(self, context: TaskContext, mut going: Going) -> Result<CallToolResult, TaskExit> {
        for number in 0u32.. {
            let asked = tokio::select! {
                biased;
                done = &mut going.work => return done.map_err(|_| TaskExit::Cancelled),
                () = context.cancelled() => {
                    going.end().await;
                    return Err(TaskExit::Cancelled);
                }
                () = self.shared.closing.cancelled() => {
                    going.end().await;
                    return Err(TaskExit::Cancelled);
                }
                asked = going.questions.recv() => asked,
            };
            let Some(asked) = asked else { break };
            let approval = match self.way {
                Way::Nobody => ask::absent(CANNOT_ASK),
                Way::Elicit | Way::Rounds => {
                    let question = InputRequest::Elicitation(ElicitRequest::new(ask::form(&asked.question)));
                    tokio::select! {
                        biased;
                        () = self.shared.closing.cancelled() => ask::absent("the client is gone"),
                        () = context.cancelled() => ask::absent("the call was cancelled"),
                        answer = context.request_input(format!("{}-{number}", ask::APPROVAL), question) => {
                            ask::read_answer_json(answer.ok().as_ref(), &self.by)
                        }
                        () = tokio::time::sleep(ANSWER_WITHIN) => ask::read_answer_json(None, &self.by),
                    }
                }
            };
            asked.answer.send(approval).ok();
        }
        (&mut going.work).await.map_err(|_| TaskExit::Cancelled)
    }
}

/// A client that cancelled does not read it.
fn ended() -> ErrorData {
    ErrorData::internal_error("the call was ended before it had a result", None)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How long something took, for people.
pub(crate) fn since(began: Instant) -> String {
    format!("{:.0} s", began.elapsed().as_secs_f64())
}
