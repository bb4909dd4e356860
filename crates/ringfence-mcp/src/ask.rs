//! Questions for the person behind a client: how they are put, and what an answer is bound to.
//!
//! A client of 2025-11-25 is asked by elicitation. One of 2026-07-28 gets a result that needs input, and calls again: the run waits
//! meanwhile, nothing of it started. What such a client brings back is a ticket of ours: signed, for exactly that call under exactly
//! that policy, good for one answer and a few minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringfence::{Approval, Approver, Ask, BoxFuture};
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::call::Going;
use crate::limits::ANSWER_WITHIN;
use crate::shown::Shown;

/// The name of the only question in a result that needs input, and of what a form asks for.
pub(crate) const APPROVAL: &str = "approval";
const APPROVE: &str = "approve";
const HANDLE: usize = 16;
const MAC: usize = 32;

/// A question that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Shown,
    pub(crate) answer: oneshot::Sender<Approval>,
}

/// Asks whoever drives the call.
#[derive(Debug)]
pub(crate) struct ByClient(pub(crate) mpsc::Sender<Asked>);

impl Approver for ByClient {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(put(&self.0, ask))
    }
}

/// Asks whoever drives the newest call in a sandbox that is kept: its wall outlives the call that opened it.
#[derive(Debug, Default)]
pub(crate) struct Relay(Mutex<Vec<mpsc::Sender<Asked>>>);

impl Relay {
    /// From now on questions go to `to`, until that is gone.
    pub(crate) fn lead_to(&self, to: mpsc::Sender<Asked>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| !other.is_closed());
        known.push(to);
    }
}

impl Approver for Relay {
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = known.iter().rev().find(|to| !to.is_closed()).cloned();
        drop(known);
        Box::pin(async move {
            match to {
                Some(to) => put(&to, ask).await,
                None => absent("nobody is there to be asked"),
            }
        })
    }
}

/// Nobody was shown the question: whoever comes later may be asked.
pub(crate) fn absent(reason: &str) -> Approval {
    Approval::Absent { reason: reason.to_owned() }
}

fn denied(reason: &str) -> Approval {
    Approval::Denied { reason: reason.to_owned() }
}

/// Puts a question, if it can be shown whole.
async fn put(to: &mpsc::Sender<Asked>, ask: &Ask) -> Approval {
    match Shown::of(ask) {
        Some(question) => put_shown(to, question).await,
        None => denied("it is too long to be shown whole to whoever could be asked; do it in smaller parts"),
    }
}

/// Puts a question, and waits for the answer as long as a person may take.
pub(crate) async fn put_shown(to: &mpsc::Sender<Asked>, question: Shown) -> Approval {
    let (answer, answered) = oneshot::channel();
    if to.send(Asked { question, answer }).await.is_err() {
        return absent("whoever could be asked is gone");
    }
    match tokio::time::timeout(ANSWER_WITHIN, answered).await {
        Ok(Ok(approval)) => approval,
        Ok(Err(_)) => absent("whoever could be asked is gone"),
        Err(_) => denied("nobody answered in time"),
    }
}

/// A call that waits for its second half.
pub(crate) struct Waiting {
    pub(crate) going: Going,
    pub(crate) answer: oneshot::Sender<Approval>,
    pub(crate) until: Instant,
}

/// Signs tickets. The key is made when the server starts, and dies with it.
#[derive(Debug)]
pub(crate) struct Signer([u8; 32]);

impl Signer {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The ticket for the call that `bound` names.
    pub(crate) fn seal(&self, handle: &[u8; HANDLE], bound: &[u8; 32]) -> String {
        let mut ticket = handle.to_vec();
        ticket.extend_from_slice(self.mac(handle, bound).as_bytes());
        URL_SAFE_NO_PAD.encode(ticket)
    }

    /// The handle in a ticket, if we made it for the call that `bound` names.
    pub(crate) fn open(&self, ticket: &str, bound: &[u8; 32]) -> Option<[u8; HANDLE]> {
        if ticket.len() > 2 * (HANDLE + MAC) {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(ticket).ok()?;
        let (handle, mac) = bytes.split_first_chunk::<HANDLE>()?;
        let mac = <[u8; MAC]>::try_from(mac).ok()?;
        // A comparison that takes the same time wherever they differ.
        (self.mac(handle, bound) == mac).then_some(*handle)
    }

    fn mac(&self, handle: &[u8; HANDLE], bound: &[u8; 32]) -> blake3::Hash {
        blake3::Hasher::new_keyed(&self.0).update(handle).update(bound).finalize()
    }
}

/// Names a call: the tool, every argument, the policy.
pub(crate) fn name_call(tool: &str, arguments: &Value, policy: &str) -> [u8; 32] {
    // Objects are sorted by their keys, so that the order in which they were written is no difference.
    let text = json!([tool, arguments, policy]).to_string();
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// The question as a form. One word has to be said on purpose: a form that was sent off empty approves nothing.
pub(crate) fn form(question: &Shown) -> ElicitRequestParams {
    let schema = json!({
        "type": "object",
        "properties": {
            APPROVE: { "type": "boolean", "title": "Approve", "description": "Let it happen, this once" }
        },
        "required": [APPROVE],
    });
    let requested_schema = serde_json::from_value(schema).unwrap_or_else(|_| ElicitationSchema::new(BTreeMap::new()));
    ElicitRequestParams::FormElicitationParams { meta: None, message: question.as_str().to_owned(), requested_schema }
}

/// The result that makes a client ask.
pub(crate) fn input_required(question: &Shown, ticket: String) -> InputRequiredResult {
    let question = InputRequest::Elicitation(ElicitRequest::new(form(question)));
    InputRequiredResult::new(Some(BTreeMap::from([(APPROVAL.to_owned(), question)])), Some(ticket))
}

/// What an answer means. Everything but a plain yes is a no.
pub(crate) fn read_answer(answer: &ElicitResult, by: &str) -> Approval {
    let said = answer.content.as_ref().and_then(|content| content.get(APPROVE)).and_then(Value::as_bool);
    match (&answer.action, said) {
        (ElicitationAction::Accept, Some(true)) => Approval::Granted { by: by.to_owned() },
        (ElicitationAction::Accept, _) | (ElicitationAction::Decline, _) => denied("the person who was asked said no"),
        (ElicitationAction::Cancel, _) => denied("the person who was asked gave no answer"),
        _ => denied("the answer makes no sense"),
    }
}

/// Likewise, of an answer that came as JSON.
pub(crate) fn read_answer_json(answer: Option<&Value>, by: &str) -> Approval {
    match answer.and_then(|answer| serde_json::from_value::<ElicitResult>(answer.clone()).ok()) {
        Some(answer) => read_answer(&answer, by),
        None => denied("no answer was brought"),
    }
}

/// How long a question may wait, from now.
pub(crate) fn until() -> Instant {
    Instant::now() + ANSWER_WITHIN
}

/// Whether a moment lies in the past.
pub(crate) fn is_past(until: Instant) -> bool {
    until.saturating_duration_since(Instant::now()) == Duration::ZERO
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    #[test]
    fn a_ticket_is_good_for_one_call_one_policy_and_one_server() {
        let signer = Signer::new([7; 32]);
        let call = name_call("t", &json!({"a": 1, "b": 2}), "p");
        let ticket = signer.seal(&[3; HANDLE], &call);
        assert_eq!(signer.open(&ticket, &call), Some([3; HANDLE]));
        assert_eq!(signer.open(&ticket, &name_call("t", &json!({"b": 2, "a": 1}), "p")), Some([3; HANDLE]));
        for other in [
            name_call("u", &json!({"a": 1, "b": 2}), "p"),
            name_call("t", &json!({"a": 1, "b": 3}), "p"),
            name_call("t", &json!({"a": 1, "b": 2}), "q"),
        ] {
            assert_eq!(signer.open(&ticket, &other), None);
        }
        assert_eq!(Signer::new([8; 32]).open(&ticket, &call), None);
        for bad in ["", "x", &ticket[1..], &format!("{ticket}A"), &"A".repeat(5000)] {
            assert_eq!(signer.open(bad, &call), None, "{bad:.20}");
        }
    }

    #[test]
    fn only_a_plain_yes_is_a_yes() {
        let granted = |answer: Value| matches!(read_answer_json(Some(&answer), "me"), Approval::Granted { .. });
        assert!(granted(json!({"action": "accept", "content": {"approve": true}})));
        for no in [
            json!({"action": "accept", "content": {"approve": false}}),
            json!({"action": "accept", "content": {"approve": "true"}}),
            json!({"action": "accept", "content": {}}),
            json!({"action": "accept"}),
            json!({"action": "decline", "content": {"approve": true}}),
            json!({"action": "cancel", "content": {"approve": true}}),
            json!({"action": "other", "content": {"approve": true}}),
            json!(true),
        ] {
            assert!(!granted(no.clone()), "{no}");
        }
        assert!(matches!(read_answer_json(None, "me"), Approval::Denied { .. }));
    }

    #[test]
    fn the_form_asks_for_one_word_that_must_be_there() {
        let ask = Ask { subject: "rm\u{1b}[2J x".to_owned(), rule: "r".to_owned(), reason: "why".to_owned() };
        let form = serde_json::to_value(form(&Shown::of(&ask).unwrap())).unwrap();
        assert_eq!(form["requestedSchema"]["required"], json!(["approve"]));
        assert_eq!(form["mode"], "form");
        assert!(!form["message"].as_str().unwrap().contains('\u{1b}'));
    }

    #[tokio::test]
    async fn nobody_there_is_not_a_no_and_what_cannot_be_shown_is_one() {
        let ask = |subject: &str| Ask { subject: subject.to_owned(), rule: "r".to_owned(), reason: "why".to_owned() };
        assert!(matches!(Relay::default().decide(&ask("x")).await, Approval::Absent { .. }));
        let (to, asked) = mpsc::channel(1);
        drop(asked);
        assert!(matches!(put(&to, &ask("x")).await, Approval::Absent { .. }));
        let (to, mut asked) = mpsc::channel(1);
        assert!(matches!(put(&to, &ask(&"x".repeat(9000))).await, Approval::Denied { .. }));
        assert!(asked.try_recv().is_err(), "it was put all the same");
        let by = async {
            let Asked { question, answer } = asked.recv().await.unwrap();
            assert!(question.as_str().ends_with("what: x"));
            answer.send(Approval::Granted { by: "me".to_owned() }).unwrap();
        };
        let wanted = ask("x");
        let (approval, ()) = tokio::join!(put(&to, &wanted), by);
        assert!(matches!(approval, Approval::Granted { .. }));
    }
}
